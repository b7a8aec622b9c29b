"""Topics' logs are placed once per pass of the loop; a new log's node is named before, and waited for."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.cluster.topic_placement import TopicPlacement
from broker.topics.leaders import NO_NODE
from storage import LogId
from tests.support.stepped_loop import SteppedLoop

ME, OTHER = 1, 2


def topic(name: str, partitions: int = 1, internal: bool = False) -> Any:
    return SimpleNamespace(name=name, partition_count=partitions, internal=internal)


class Ownership:
    """Places even partitions on this node and odd ones on another; records the placings."""

    def __init__(self) -> None:
        self.placed: dict[LogId, int] = {}
        self.owned: set[LogId] = set()
        self.placings: list[tuple[str, list[LogId], int]] = []
        self.plans = 0

    def node_of(self, log: LogId) -> int:
        return OTHER if log.partition % 2 else ME

    def set_logs(self, kind: str, logs: Iterable[LogId], now: int) -> None:
        self.placings.append((kind, list(logs), now))
        self.placed = {log: self.node_of(log) for log in self.placings[-1][1]}

    def planned(self, logs: Collection[LogId]) -> dict[LogId, int]:
        self.plans += 1
        return {log: self.node_of(log) for log in logs}

    def expected_owner(self, log: LogId) -> int:
        return self.placed.get(log, NO_NODE)

    def owns(self, log: LogId) -> bool:
        return log in self.owned


class World:
    def __init__(self, begun: bool = True) -> None:
        self.loop = SteppedLoop()
        self.ownership = Ownership()
        self.topics = SimpleNamespace(by_name={})
        self.placement = TopicPlacement(ME, cast(Any, self.loop), cast(Any, self.topics), cast(Any, self.ownership), lambda: 7)
        if begun:
            self.placement.begin_placing()
            self.ownership.placings.clear()

    def create(self, *topics: Any) -> None:
        for new in topics:
            self.topics.by_name[new.name] = new
            self.placement.added(new)


@pytest.fixture
def world() -> World:
    return World()


ORDERS = [LogId("orders", 0), LogId("orders", 1)]


def test_all_logs_of_topics_are_placed_when_the_node_begins() -> None:
    world = World(begun=False)
    world.create(topic("orders", 2), topic("__consumer_offsets", 8, internal=True), topic("new"))
    world.placement.place_later()
    world.loop.run()
    assert world.ownership.placings == []
    world.placement.begin_placing()
    assert world.ownership.placings == [("topics", [*ORDERS, LogId("new", 0)], 7)]


def test_many_changes_of_one_pass_are_placed_together(world: World) -> None:
    for number in range(5):
        world.create(topic(f"topic-{number}"))
        world.placement.place_later()
    assert world.ownership.placings == []
    world.loop.run()
    assert [len(logs) for _, logs, _ in world.ownership.placings] == [5]
    world.placement.place_later()
    world.loop.run()
    assert len(world.ownership.placings) == 2


def test_the_node_of_a_log_that_is_not_placed_yet_is_known(world: World) -> None:
    world.create(topic("orders", 2), topic("__notes", 1, internal=True))
    assert [world.placement.expected_owner(log) for log in ORDERS] == [ME, OTHER]
    assert world.ownership.plans == 1
    assert world.placement.expected_owner(LogId("unknown", 0)) == NO_NODE
    assert world.placement.expected_owner(LogId("__notes", 0)) == NO_NODE
    assert world.ownership.plans == 1
    assert world.placement.expected_owner(LogId("orders", 9)) == NO_NODE
    world.ownership.placed = {ORDERS[0]: OTHER}
    assert world.placement.expected_owner(ORDERS[0]) == OTHER


def test_no_node_is_named_before_this_node_knows_the_others() -> None:
    """The plan of a single node would name itself for all logs."""
    world = World(begun=False)
    world.create(topic("orders", 2))
    assert world.placement.expected_owner(ORDERS[0]) == NO_NODE
    assert world.ownership.plans == 0


@pytest.mark.parametrize("change", ["nodes", "placing"])
def test_a_plan_is_made_anew_after_a_change(world: World, change: str) -> None:
    world.create(topic("orders", 2))
    world.placement.expected_owner(ORDERS[0])
    cast(Any, world.ownership).node_of = lambda log: OTHER
    if change == "nodes":
        world.placement.nodes_changed()
    else:
        world.placement.place_later()
        world.loop.run()
        world.ownership.placed.clear()
    assert world.placement.expected_owner(ORDERS[0]) == OTHER


def test_a_change_is_confirmed_once_this_nodes_own_new_logs_are_open(world: World) -> None:
    world.create(topic("orders", 4), topic("__internal", 4, internal=True))
    world.placement.place_later()
    done: list[str] = []
    world.placement.when_opened(lambda: done.append("first"))
    assert len(world.ownership.placings) == 1  # placed now: nothing would be opened before
    assert done == []
    world.placement.opened(LogId("orders", 0))
    world.placement.opened(LogId("orders", 1))  # not this node's log
    assert done == []
    world.placement.when_opened(lambda: done.append("second"))
    world.placement.opened(LogId("orders", 2))
    assert done == ["first", "second"]
    world.placement.opened(LogId("orders", 2))
    assert done == ["first", "second"]
    world.placement.when_opened(lambda: done.append("third"))
    assert done == ["first", "second", "third"]
    world.loop.run()
    assert len(world.ownership.placings) == 1


def test_a_log_that_is_owned_already_is_not_waited_for(world: World) -> None:
    world.create(topic("orders", 1))
    world.ownership.owned = {ORDERS[0]}
    done: list[bool] = []
    world.placement.when_opened(lambda: done.append(True))
    assert done == [True]


def test_a_log_that_another_node_shall_open_now_is_not_waited_for(world: World) -> None:
    world.create(topic("orders", 1))
    done: list[bool] = []
    world.placement.when_opened(lambda: done.append(True))
    assert done == []
    world.ownership.placed = {ORDERS[0]: OTHER}
    cast(Any, world.ownership).node_of = lambda log: OTHER
    world.placement.nodes_changed()
    assert done == [True]


def test_a_failing_waiter_does_not_keep_the_others_waiting(world: World, planted_defect: None) -> None:
    done: list[bool] = []

    def fail() -> None:
        raise RuntimeError("a defect")

    world.create(topic("orders", 1))
    world.placement.when_opened(fail)
    world.placement.when_opened(lambda: done.append(True))
    world.placement.opened(ORDERS[0])
    assert done == [True]
