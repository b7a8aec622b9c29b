"""What a node says of itself and its logs for `tenure cluster`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from broker.cluster.status import LISTED_MAX, status
from broker.internal_topics import CONSUMER_OFFSETS, REGISTRY_LOG_ID
from storage import LogId

WALL_MS, NOW_MS = 1_700_000_000_000, 5_000


def shown(owned: dict[LogId, int], controller: bool = False, draining: tuple[int, ...] = (), settled: bool = True) -> dict[str, str]:
    cluster = SimpleNamespace(
        node_id=1,
        started_ms=1_000,
        settled=settled,
        ownership=SimpleNamespace(owned=lambda: owned),
        registry=SimpleNamespace(is_controller=controller),
        members=SimpleNamespace(live=[3, 1, 2], draining=set(draining)),
    )
    return {name.removeprefix("status."): value for name, value in status(cast(Any, cluster), cast(Any, SimpleNamespace(wall=WALL_MS, tick=lambda: NOW_MS))).items()}


def at(ms: int) -> str:
    """A moment of the node's own clock, in milliseconds since 1970."""
    return str(WALL_MS - NOW_MS + ms)


def test_a_node_shows_its_logs_by_kind_and_since_when_it_owns_them() -> None:
    groups = {LogId(CONSUMER_OFFSETS, 10): 2_000, LogId(CONSUMER_OFFSETS, 9): 3_000}
    topics = {LogId("b", 0): 4_500, LogId("a", 1): 4_000}
    entries = shown({REGISTRY_LOG_ID: 1_500} | groups | topics, controller=True, draining=(3, 2))
    assert entries == {
        "node": "serving",
        "started.ms": at(1_000),
        "controller": "true",
        "controller.since.ms": at(1_500),
        "live.nodes": "1,2,3",
        "draining.nodes": "2,3",
        "groups.partitions": "2",
        "groups.owned": "9,10",
        "groups.newest.ms": at(3_000),
        "topics.partitions": "2",
        "topics.owned": "a-1,b-0",
        "topics.newest.ms": at(4_500),
        "settled": "true",
    }


def test_a_node_without_logs_shows_no_times() -> None:
    entries = shown({}, draining=(1,), settled=False)
    assert (entries["node"], entries["controller"], entries["settled"], entries["draining.nodes"]) == ("draining", "false", "false", "1")
    for name in ("controller.since.ms", "groups.owned", "groups.newest.ms", "topics.owned", "topics.newest.ms"):
        assert entries[name] == ""
    assert (entries["groups.partitions"], entries["topics.partitions"]) == ("0", "0")


def test_only_the_first_logs_of_topics_are_listed() -> None:
    entries = shown({LogId("many", number): 0 for number in range(LISTED_MAX + 1)})
    assert entries["topics.partitions"] == str(LISTED_MAX + 1)
    assert entries["topics.owned"].split(",")[-1] == f"many-{LISTED_MAX - 1}"
    assert len(entries["topics.owned"].split(",")) == LISTED_MAX
