"""The rows of the table: what is sent, what it needs of a broker, and the targets beside it.

A row of load is kgload's arguments; its figures are ratios to the floor, which gets the same requests. A new workload is
one more entry here.
"""

from __future__ import annotations

from typing import NamedTuple

# Requests as kgload sends them: API key and version.
METADATA, COMMIT, FETCH = (3, 12), (8, 8), (9, 8)
COORDINATOR, JOIN, HEARTBEAT, SYNC = (10, 4), (11, 9), (12, 4), (14, 5)
API_VERSIONS, CREATE_TOPICS = (18, 3), (19, 5)
NAMES = {3: "Metadata", 8: "OffsetCommit", 9: "OffsetFetch", 10: "FindCoordinator", 11: "JoinGroup", 12: "Heartbeat",
         14: "SyncGroup", 18: "ApiVersions", 19: "CreateTopics"}  # fmt: skip
MEMBER = (COORDINATOR, JOIN, SYNC, HEARTBEAT)

SECONDS_OF_TAILS = 3.0  # a 99.9th percentile of 10,000 requests a second wants some


class Targets(NamedTuple):
    """Ratios to the floor: at most, at most, good, and what Apache Kafka 4.3.1 was measured at."""

    plain: float
    compiled: float
    good: float
    kafka: str


class Metric(NamedTuple):
    """One figure of kgload's answer that a row is about, compared as broker / floor."""

    name: str
    field: str
    targets: Targets | None


class LoadRow(NamedTuple):
    """What kgload does on both sides; `broker` are arguments that the floor does not need."""

    name: str
    title: str
    arguments: tuple[str, ...]
    metrics: tuple[Metric, ...]
    needs: tuple[tuple[int, int], ...]
    broker: tuple[str, ...] = ()
    seconds_min: float = 0.0

    @property
    def paced(self) -> bool:
        """Requests are due at a rate; elsewhere the next is sent when the last is answered."""
        return "-i" in self.arguments

    def missing(self, served: dict[int, tuple[int, int]]) -> list[str]:
        """What the broker does not offer of this, by name."""
        return [f"{NAMES[key]} v{version}" for key, version in self.needs if not _offers(served, key, version)]


def _offers(served: dict[int, tuple[int, int]], key: int, version: int) -> bool:
    low, high = served.get(key, (1, 0))
    return low <= version <= high


def cpu(plain: float, compiled: float, good: float, kafka: str) -> tuple[Metric, ...]:
    return (Metric("CPU", "srv_us_per_req", Targets(plain, compiled, good, kafka)),)


UNTARGETED = (Metric("CPU", "srv_us_per_req", None),)

LOAD_ROWS = (
    LoadRow("heartbeat-200", "heartbeat, 200 connections", ("-c", "200"), cpu(1.9, 1.5, 1.25, "3.2"), MEMBER),
    LoadRow("heartbeat-2000", "heartbeat, 2000 connections", ("-c", "2000"), cpu(2.1, 1.7, 1.35, "3.9"), MEMBER),
    *(
        LoadRow(
            f"commit-{n}",
            f"commit, {n} partition{'s' * (n > 1)}",
            ("-c", "200", "-w", "commit", "-P", str(n)),
            cpu(*targets),
            (*MEMBER, COMMIT, CREATE_TOPICS),
            ("--create-topics", str(n)),
        )
        for n, targets in ((1, (2.8, 1.9, 1.5, "4.7")), (10, (5.0, 2.8, 2.0, "8.1")), (100, (25.0, 12.0, 6.0, "28-36")))
    ),
    LoadRow(
        "fetch-10",
        "fetch offsets of 10 partitions",
        ("-c", "200", "-w", "fetch", "-P", "10"),
        cpu(3.2, 1.8, 1.3, "3.4"),
        (*MEMBER, FETCH, CREATE_TOPICS),
        ("--create-topics", "10"),
    ),
    LoadRow(
        "storm", "join + sync storm, groups of 10", ("-c", "200", "-M", "10", "-w", "rebalance"), cpu(2.8, 1.8, 1.4, "4.7"), MEMBER
    ),
    LoadRow(
        "paced",
        "paced 10 k/s, 2000 connections",
        ("-c", "2000", "-i", "200"),
        (Metric("p50", "p50_us", Targets(1.4, 1.2, 1.1, "2.1")), Metric("p99.9", "p999_us", Targets(2.0, 1.5, 1.2, "3.5"))),
        MEMBER,
        seconds_min=SECONDS_OF_TAILS,
    ),
    LoadRow("api-versions", "ApiVersions, 200 connections", ("-c", "200", "-w", "api_versions"), UNTARGETED, (API_VERSIONS,)),
    LoadRow(
        "metadata",
        "Metadata of 1 topic, 200 connections",
        ("-c", "200", "-w", "metadata"),
        UNTARGETED,
        (METADATA, CREATE_TOPICS),
        ("--create-topics", "1"),
    ),
)


class SingleRow(NamedTuple):
    """A figure in a unit of its own; `at_most` is its target."""

    name: str
    title: str
    unit: str
    at_most: float | None
    kafka: str = ""


CONNECT = SingleRow("connect", "2000 connections at once, all answered", "s", 0.3)
CONNECT_ASYNCIO = SingleRow("connect-asyncio", "the same with event.loop=asyncio", "s", None)
START = SingleRow("start", "start to the first answer", "s", 0.3, "5.8")
MEMORY = SingleRow("memory", "idle memory (RSS)", "MiB", 45.0, "1024")
SINGLE_ROWS = (CONNECT, CONNECT_ASYNCIO, START, MEMORY)
CONNECTIONS = 2000

CODEC = "codec"
ALL_NAMES = (*(row.name for row in LOAD_ROWS), *(row.name for row in SINGLE_ROWS), CODEC)


def chosen(only: list[str]) -> set[str]:
    """Row names for what was asked for: a name, or the beginning of some; raises ValueError for one that is neither."""
    if not only:
        return set(ALL_NAMES)
    found: set[str] = set()
    for asked in only:
        matching = {name for name in ALL_NAMES if name == asked} or {name for name in ALL_NAMES if name.startswith(asked)}
        if not matching:
            raise ValueError(f"no row is called {asked!r}; there are {', '.join(ALL_NAMES)}")
        found |= matching
    return found
