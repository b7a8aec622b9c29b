"""The controller completes a deletion when every partition has reported that it has no offsets of the topic."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.cluster.deletions import DeletionReports, SharedDeletions
from broker.internal_topics import CONSUMER_OFFSETS
from broker.topics.deletions import Deletion

ONE, TWO = b"1" * 16, b"2" * 16
PARTITIONS = 3


class World:
    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.sent: list[tuple[list[bytes], list[int]]] = []
        self.gone: list[bytes] = []
        self.forgotten: list[bytes] = []
        self.ended_turns: list[object] = []
        self.repeated = 0
        self.journal = SimpleNamespace(writable=True)
        self.registry = SimpleNamespace(is_controller=True, journal=self.journal)
        self.topics = SimpleNamespace(deleted={ONE: None, TWO: None}, by_name={CONSUMER_OFFSETS: SimpleNamespace(partition_count=PARTITIONS)}, offsets_gone=self.gone.append)
        loop = SimpleNamespace(call_soon=lambda step: self.calls.append(step))
        turn = SimpleNamespace(call_first_at_turn_end=self.ended_turns.append)
        self.reports = DeletionReports(cast(Any, loop), cast(Any, turn), cast(Any, self.topics), cast(Any, self.registry), lambda ids, partitions: self.sent.append((ids, partitions)))
        self.reports.deletions = cast(Any, SimpleNamespace(forget_completed=self.forgotten.extend, delete_offsets_again=self._repeat))

    def _repeat(self) -> None:
        self.repeated += 1

    def run(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


@pytest.fixture
def world() -> World:
    return World()


def test_a_deletion_is_complete_when_all_partitions_have_reported(world: World) -> None:
    world.reports.process([ONE, TWO], [0, 1])
    assert (world.gone, world.ended_turns) == ([], [])
    world.reports.process([ONE], [2])
    assert (world.gone, world.forgotten, world.ended_turns) == ([ONE], [ONE], [world.journal])
    world.reports.process([TWO], [1, 2])
    assert world.gone == [ONE, TWO]


@pytest.mark.parametrize("reason", ["suspended", "not the controller", "not deleted"])
def test_a_report_that_cannot_be_stored_does_not_count(world: World, reason: str) -> None:
    """The registry cannot be written now: the node that reports repeats it when the registry has been read again."""
    world.reports.process([ONE], [0, 1])
    world.journal.writable = reason != "suspended"
    world.registry.is_controller = reason != "not the controller"
    if reason == "not deleted":
        del world.topics.deleted[ONE]
    world.reports.process([ONE], [2])
    assert (world.gone, world.ended_turns) == ([], [])
    world.journal.writable = world.registry.is_controller = True
    world.topics.deleted[ONE] = None
    world.reports.process([ONE], [1])
    assert world.gone == [], "partition 2 has not reported"
    world.reports.process([ONE], [2])
    assert world.gone == [ONE]


def test_reports_count_anew_after_the_registry_was_read_again(world: World) -> None:
    world.reports.process([ONE], [0, 1])
    world.reports.repeat_all()
    assert world.repeated == 1
    world.reports.process([ONE], [2])
    assert world.gone == []


def test_reports_of_one_turn_are_sent_together(world: World) -> None:
    world.registry.is_controller = False
    for partition in (2, 0):
        world.reports.report([ONE, TWO], partition)
    world.reports.report([TWO], 1)
    assert len(world.calls) == 1
    world.run()
    assert world.sent == [([ONE], [0, 2]), ([TWO], [0, 1, 2])]
    world.reports.report([ONE], 1)
    world.run()
    assert world.sent[2:] == [([ONE], [1])]


def test_the_controller_counts_its_own_reports(world: World) -> None:
    for partition in range(PARTITIONS):
        world.reports.report([ONE], partition)
    world.run()
    assert (world.gone, world.sent) == ([ONE], [])


class Node:
    """The deletions of one of several nodes."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.journal = SimpleNamespace(owns_log=False, partition=0)
        shards = SimpleNamespace(journals=[])
        loop = SimpleNamespace(call_soon=lambda *arguments: self.calls.append(("later",)))
        self.deletions = SharedDeletions(cast(Any, None), cast(Any, self.journal), cast(Any, shards), cast(Any, None), cast(Any, loop))
        self.deletions.report = lambda ids, partition: self.calls.append(("report", ids, partition))
        self.deletions.publish = lambda number: self.calls.append(("publish", number))
        cast(Any, self.deletions).enqueue = lambda deletions: self.calls.append(("enqueue", list(deletions)))

    def deletion(self, *topics: bytes) -> Deletion:
        deleted = [cast(Any, SimpleNamespace(id=id, number=number)) for number, id in enumerate(topics, 5)]
        return Deletion(self.deletions, deleted, lambda error: self.calls.append(("done", error)))


@pytest.mark.parametrize("controller", [False, True])
def test_the_controller_publishes_the_newest_deletion_before_offsets_are_removed(controller: bool) -> None:
    node = Node()
    node.journal.owns_log = controller
    deletion = node.deletion(ONE, TWO)
    deletion.release()
    assert node.calls == [*([("publish", 6)] if controller else []), ("enqueue", [deletion])]


def test_each_partition_reports_the_topics_of_an_open_deletion() -> None:
    node = Node()
    deletion = node.deletion(ONE, TWO)
    node.deletions.removed(deletion, cast(Any, SimpleNamespace(partition=3)))
    assert node.calls == []
    node.deletions.begin(deletion)
    node.calls.clear()
    node.deletions.removed(deletion, cast(Any, SimpleNamespace(partition=3)))
    assert node.calls == [("report", [ONE, TWO], 3)]


def test_a_deletion_is_open_until_all_its_topics_are_complete() -> None:
    node = Node()
    both, one = node.deletion(ONE, TWO), node.deletion(ONE)
    node.deletions.begin(both)
    node.deletions.begin(one)
    node.deletions.forget_completed([ONE])
    node.calls.clear()
    node.deletions.delete_offsets_again()
    assert node.calls == [("enqueue", [both])]
    node.deletions.forget_completed([TWO, ONE, b"3" * 16])
    node.calls.clear()
    node.deletions.delete_offsets_again()
    assert node.calls == [("enqueue", [])]


@pytest.mark.parametrize("controller", [False, True])
def test_a_deletion_that_was_not_stored_is_checked_again_by_the_controller_alone(controller: bool) -> None:
    """Another controller knows whether the topics are deleted."""
    node = Node()
    node.journal.owns_log = controller
    node.deletion(ONE).fail(56)
    assert sorted(node.calls, key=str) == [("done", 56), *([("later",)] if controller else [])]
