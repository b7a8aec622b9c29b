"""The rows of the table: the requests, the APIs that they need, and the targets.

A load row has kgload's arguments; its figures are ratios to the floor: `kgfloor`, a C server that gets the same requests and sends constant
replies. A new workload is one more entry here.
"""

from __future__ import annotations

from typing import NamedTuple

# Requests as kgload and kgdata send them: API key and version.
PRODUCE, FETCH_RECORDS, INIT_PRODUCER_ID = (0, 12), (1, 17), (22, 4)
METADATA, COMMIT, FETCH = (3, 12), (8, 8), (9, 8)
COORDINATOR, JOIN, HEARTBEAT, SYNC = (10, 4), (11, 9), (12, 4), (14, 5)
BEAT = (68, 1)
API_VERSIONS, CREATE_TOPICS = (18, 3), (19, 5)
NAMES = {0: "Produce", 1: "Fetch", 3: "Metadata", 8: "OffsetCommit", 9: "OffsetFetch", 10: "FindCoordinator", 11: "JoinGroup", 12: "Heartbeat",
         14: "SyncGroup", 18: "ApiVersions", 19: "CreateTopics",
         22: "InitProducerId", 68: "ConsumerGroupHeartbeat"}  # fmt: skip
MEMBER = (COORDINATOR, JOIN, SYNC, HEARTBEAT)

CPU_FIELD = "srv_us_per_req"  # processor time of the server, from kgload's output
# The maxima of the processor time per request, as a share of Kafka's in the same run. A row that costs at most GOOD_ENOUGH times the floor is
# exempt; the floor is a C server that answers the same requests with constant bytes.
OF_KAFKA_AT_MOST = {"ours": 0.6, "compiled": 0.4}
GOOD_ENOUGH = 1.15
# How many times as much a request that writes to the log may cost if its reply waits for a flush (offsets.flush=always).
ALWAYS_AT_MOST = 2.0
SECONDS_OF_TAILS = 3.0  # the least duration of rows with a 99.9th percentile, which needs many requests


class Targets(NamedTuple):
    """Ratios to the floor: the maxima for plain and compiled code, a good value, and the measured ratio of Apache Kafka 4.3.1."""

    plain: float
    compiled: float
    good: float
    kafka: str


class Metric(NamedTuple):
    """One figure of kgload's output, compared as broker / floor."""

    name: str
    field: str
    targets: Targets | None


class LoadRow(NamedTuple):
    """A load of kgload. `arguments`: those for floor and broker; `broker`: further arguments for the broker only."""

    name: str
    title: str
    arguments: tuple[str, ...]
    metrics: tuple[Metric, ...]
    needs: tuple[tuple[int, int], ...]
    broker: tuple[str, ...] = ()
    seconds_min: float = 0.0
    stored: bool = False  # whether its requests write to the log, so that `offsets.flush` affects their cost

    @property
    def paced(self) -> bool:
        """Whether requests are sent at a fixed rate, and not each after the previous reply."""
        return "-i" in self.arguments

    def missing(self, served: dict[int, tuple[int, int]]) -> list[str]:
        """The names of the APIs that the row needs and the broker lacks."""
        return missing(self.needs, served)


def missing(needs: tuple[tuple[int, int], ...], served: dict[int, tuple[int, int]]) -> list[str]:
    return [f"{NAMES[key]} v{version}" for key, version in needs if not _offers(served, key, version)]


def _offers(served: dict[int, tuple[int, int]], key: int, version: int) -> bool:
    low, high = served.get(key, (1, 0))
    return low <= version <= high


def cpu(plain: float, compiled: float, good: float, kafka: str) -> tuple[Metric, ...]:
    return (Metric("CPU", CPU_FIELD, Targets(plain, compiled, good, kafka)),)


UNTARGETED = (Metric("CPU", CPU_FIELD, None),)
# Each request on a connection has another client id, so no fast path (for repeated requests) applies.
CLIENTS_IN_TURN = ("--vary-client-id",)

LOAD_ROWS = (
    LoadRow("heartbeat-200", "heartbeat, 200 connections", ("-c", "200"), cpu(1.9, 1.5, 1.25, "3.2"), MEMBER),
    LoadRow("heartbeat-2000", "heartbeat, 2000 connections", ("-c", "2000"), cpu(2.1, 1.7, 1.35, "3.9"), MEMBER),
    LoadRow(
        "heartbeat-turns",
        "heartbeat, 10 members in turn on each of 200",
        ("-c", "200", "-m", "2000"),
        cpu(2.8, 2.2, 1.6, ""),
        MEMBER,
    ),
    LoadRow("beat-200", "heartbeat of the consumer protocol, 200 connections", ("-c", "200", "--newer"), cpu(2.0, 1.6, 1.3, ""), (COORDINATOR, BEAT)),
    LoadRow(
        "beat-turns",
        "the same, 10 members in turn on each of 200",
        ("-c", "200", "-m", "2000", "--newer"),
        UNTARGETED,
        (COORDINATOR, BEAT),
    ),
    *(
        LoadRow(
            f"commit-{n}",
            f"commit, {n} partition{'s' * (n > 1)}",
            ("-c", "200", "-w", "commit", "-P", str(n)),
            cpu(*targets),
            (*MEMBER, COMMIT, CREATE_TOPICS),
            ("--create-topics", str(n)),
            stored=True,
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
        "commit-turns",
        "commit of 1, 10 members in turn on each of 200",
        ("-c", "200", "-m", "2000", "-w", "commit"),
        UNTARGETED,
        (*MEMBER, COMMIT, CREATE_TOPICS),
        ("--create-topics", "1"),
        stored=True,
    ),
    LoadRow(
        "fetch-turns",
        "fetch of 10, 10 members in turn on each of 200",
        ("-c", "200", "-m", "2000", "-w", "fetch", "-P", "10"),
        UNTARGETED,
        (*MEMBER, FETCH, CREATE_TOPICS),
        ("--create-topics", "10"),
    ),
    LoadRow(
        "storm",
        "join + sync storm, groups of 10",
        ("-c", "200", "-M", "10", "-w", "rebalance"),
        cpu(2.8, 1.8, 1.4, "4.7"),
        MEMBER,
        stored=True,
    ),
    LoadRow(
        "storm-turns",
        "the same, clients in turn on each of 200",
        ("-c", "200", "-M", "10", "-w", "rebalance", *CLIENTS_IN_TURN),
        UNTARGETED,
        MEMBER,
        stored=True,
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


class Figure(NamedTuple):
    """One figure of a data row, in a unit of its own. Its target is a minimum (`at_least`) or a maximum (`at_most`)."""

    name: str
    field: str  # in the generator's output
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    divisor: float = 1.0  # converts the field's unit into `unit`
    of_kafka: float | None = None  # minimum for the compiled broker, as a multiple of Kafka's figure in the same run

    def met(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    @property
    def target(self) -> str:
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return "-" if self.at_most is None else f"<= {self.at_most:g}"


class DataRow(NamedTuple):
    """A load of kgdata. `seconds_min`: the least duration of a round; `on_floor`: whether the floor supports the request."""

    name: str
    title: str
    arguments: tuple[str, ...]
    figures: tuple[Figure, ...]
    needs: tuple[tuple[int, int], ...] = (PRODUCE, FETCH_RECORDS, METADATA, CREATE_TOPICS)
    on_floor: bool = False
    seconds_min: float = 0.0

    def missing(self, served: dict[int, tuple[int, int]]) -> list[str]:
        return missing(self.needs, served)


OF_KAFKA_AT_LEAST = 1.5  # as a multiple of Kafka's work per second of processor time
MEGABYTE = ("-c", "4", "-P", "4", "-r", "1000", "-b", "1024")  # batches of 1.03 MB: below Kafka's message.max.bytes
SMALL = ("-w", "produce", "-c", "50", "-P", "10")

PRODUCE_1MB = DataRow(
    "produce-1mb",
    "produce, batches of 1 MB, 4 connections",
    ("-w", "produce", *MEGABYTE, "--mb-max", "256"),
    (Figure("CPU", "mb_per_cpu_s", "MB/CPU s", at_least=300, of_kafka=OF_KAFKA_AT_LEAST), Figure("rate", "mb_per_s", "MB/s")),
    on_floor=True,
)
FETCH_1MB = DataRow(
    "fetch-1mb",
    "fetch of the same",
    ("-w", "fetch", *MEGABYTE, "--fill", "16"),
    (Figure("CPU", "mb_per_cpu_s", "MB/CPU s", at_least=600, of_kafka=OF_KAFKA_AT_LEAST), Figure("rate", "mb_per_s", "MB/s")),
    on_floor=True,
)
PRODUCE_SMALL = DataRow(
    "produce-small",
    "produce, one record of 100 bytes, 50 connections",
    SMALL,
    (Figure("CPU", "rps_per_cpu_s", "1/CPU s", at_least=40_000, of_kafka=OF_KAFKA_AT_LEAST), Figure("rate", "rps", "1/s")),
    on_floor=True,
)
PRODUCE_TURNS = DataRow(
    "produce-turns",
    "the same, clients in turn on each of 50",
    (*SMALL, *CLIENTS_IN_TURN),
    (Figure("CPU", "rps_per_cpu_s", "1/CPU s"), Figure("rate", "rps", "1/s")),
    on_floor=True,
)
PRODUCE_IDEMPOTENT = DataRow(
    "produce-idempotent",
    "the same by idempotent producers",
    (*SMALL, "--idempotent"),
    (Figure("CPU", "rps_per_cpu_s", "1/CPU s"), Figure("rate", "rps", "1/s")),
    (PRODUCE, FETCH_RECORDS, METADATA, CREATE_TOPICS, INIT_PRODUCER_ID),
)
HEARTBEATS = DataRow(
    "heartbeats-beside-fetch",
    "200 members' heartbeats during fetches of 1 MB",
    ("-c", "200", "-i", "200"),  # arguments of kgload; the concurrent fetch, by kgdata, has those in FETCH_BESIDE
    (
        Figure("p50", "p50_us", "ms", divisor=1000),
        Figure("p99", "p99_us", "ms", at_most=10, divisor=1000),
        Figure("fetch", "beside_mb_per_s", "MB/s"),
    ),
    (*MEMBER, PRODUCE, FETCH_RECORDS, METADATA, CREATE_TOPICS),
    seconds_min=SECONDS_OF_TAILS,
)
FETCH_BESIDE = ("-w", "fetch", "-r", "1000", "-b", "1024", "--fill", "16")
LONG_POLL = DataRow(
    "long-poll",
    "a waiting fetch, from the produced record",
    ("-w", "long-poll", "--interval-ms", "2"),
    (
        Figure("sent, p50", "p50_us", "ms", at_most=2, divisor=1000),
        Figure("sent, p99", "p99_us", "ms", divisor=1000),
        Figure("reply, p50", "reply_p50_us", "ms", divisor=1000),
    ),
)
PARTITIONS = DataRow(
    "partitions-2000",
    "2000 partitions, restarted",
    ("-T", "200", "-P", "10"),
    (
        Figure("first answer", "first_answer_s", "s"),
        Figure("all served", "served_s", "s", at_most=3),
        Figure("memory", "rss_mib", "MiB", at_most=120),
        Figure("after a kill", "killed_served_s", "s"),
    ),
)
DATA_ROWS = (PRODUCE_1MB, FETCH_1MB, PRODUCE_SMALL, PRODUCE_TURNS, PRODUCE_IDEMPOTENT, HEARTBEATS, LONG_POLL, PARTITIONS)


class PipelineRow(NamedTuple):
    """The analysis of a million records. `master`: the Spark master; None: without Spark."""

    name: str
    title: str
    figures: tuple[Figure, ...]
    master: str | None = None


LOOP = (Figure("plain loop", "loop_cpu", "M/CPU s"), Figure("all tables / loop", "to_loop", "times"))
PIPELINE = PipelineRow(
    "pipeline-process",
    "pipeline, one process",
    (
        Figure("all tables", "all_cpu", "M/CPU s", at_least=0.08),
        *LOOP,
        Figure("one group", "peak_mib", "MiB", at_most=1024),
    ),
)
PIPELINE_SPARK = PipelineRow(
    "pipeline-spark",
    "pipeline on Spark, local[1]",
    (
        Figure("all tables", "all", "M/s", at_least=0.08),
        Figure("all tables", "all_cpu", "M/CPU s"),
        *LOOP,
        Figure("local[2] / local[1]", "speed_up", "times", at_least=1.7),
    ),
    "local[1]",
)
PIPELINE_ROWS = (PIPELINE, PIPELINE_SPARK)


class SingleRow(NamedTuple):
    """A figure in its own unit; `at_most` is its target."""

    name: str
    title: str
    unit: str
    at_most: float | None
    kafka: str = ""


CONNECT = SingleRow("connect", "2000 connections at once, all answered", "s", 0.3)
CONNECT_ASYNCIO = SingleRow("connect-asyncio", "the same with event.loop=asyncio", "s", None)
START = SingleRow("start", "start to the first answer", "s", 0.3, "5.8")
START_RATIO = SingleRow("start-ratio", "start to the first answer / `import uvloop`", "x", 4.0)
MEMORY = SingleRow("memory", "idle memory (RSS)", "MiB", 45.0, "1024")
SINGLE_ROWS = (CONNECT, CONNECT_ASYNCIO, START, START_RATIO, MEMORY)
CONNECTIONS = 2000

CODEC = "codec"
ALL_NAMES = (*(row.name for row in LOAD_ROWS), *(row.name for row in DATA_ROWS), *(row.name for row in SINGLE_ROWS), CODEC, *(row.name for row in PIPELINE_ROWS))


def chosen(only: list[str]) -> set[str]:
    """The rows with these names or prefixes. Raises ValueError for a name that matches none."""
    if not only:
        return set(ALL_NAMES)
    names: set[str] = set()
    for prefix in only:
        matching = {name for name in ALL_NAMES if name == prefix} or {name for name in ALL_NAMES if name.startswith(prefix)}
        if not matching:
            raise ValueError(f"no row is called {prefix!r}; the rows are {', '.join(ALL_NAMES)}")
        names |= matching
    return names
