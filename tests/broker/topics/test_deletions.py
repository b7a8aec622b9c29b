"""Offsets committed for a deleted topic are removed, whatever the state of their partition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.groups.journal import Journal
from broker.topics.deletions import Deletions
from broker.topics.registry import DeletedTopic, Topic
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.support.group_harness import Harness, Peer
from tests.support.journals import LATE_MS, ScriptedLog


class Folders:
    """A stand-in for the partitions of topics, which handle the folders."""

    def __init__(self) -> None:
        self.set_aside: list[str] = []

    def deleted(self, topic: Topic) -> None:
        self.set_aside.append(topic.name)


class Place:
    """A broker whose registry has its own log."""

    def __init__(self, load: bool = True, deleted: tuple[DeletedTopic, ...] = ()) -> None:
        self.harness = Harness(load=False)
        self.topics = self.harness.topics
        self.log = ScriptedLog(immediate=True)
        self.registry = Journal("__topics", self.topics, self.log, self.harness.turn, LATE_MS)
        self.folders = Folders()
        self.answers: list[int] = []
        self.deletions = Deletions(
            self.topics,
            self.registry,
            self.harness.shards,
            self.folders,  # type: ignore[arg-type]
            self.harness.loop,  # type: ignore[arg-type]
            lambda: 0.0,
        )
        for topic in deleted:
            self.topics.deleted[topic.id] = topic
        self.deletions.resume(deleted)
        if load:
            self.harness.shards.load_all()
        self.peer = Peer(self.harness)
        self.run()

    def run(self) -> None:
        self.harness.loop.run()

    def commit(self, group: str, *topics: str) -> None:
        self.harness.pass_ms(1)
        requested = [OffsetCommitRequestTopic(name, [OffsetCommitRequestPartition(0, 5), OffsetCommitRequestPartition(1, 6)]) for name in topics]
        reply = self.peer.ask(OffsetCommitRequest(group, -1, "", None, -1, requested), 8)
        assert {partition.error_code for topic in reply.topics for partition in topic.partitions} == {0}

    def delete(self, *names: str) -> None:
        self.deletions.delete(names, self.answers.append)
        self.run()

    def offsets(self, group: str) -> set[str]:
        reply = self.peer.ask(OffsetFetchRequest([OffsetFetchRequestGroup(group, None, -1, None)]), 8)
        assert reply.groups[0].error_code == 0
        return {topic.name for topic in reply.groups[0].topics}

    @property
    def remembered(self) -> set[str]:
        return {topic.name for topic in self.topics.deleted.values()}


GROUPS = [f"group-{number}" for number in range(20)]  # some in every partition


@pytest.fixture
def place() -> Place:
    place = Place()
    for group in GROUPS:
        place.commit(group, "t", "u")
    assert len({place.harness.shards.journal_of(group) for group in GROUPS}) == len(place.harness.shards.journals)
    return place


def test_offsets_of_a_deleted_topic_are_removed_from_every_group(place: Place) -> None:
    place.delete("t")
    assert place.answers == [0]
    assert place.folders.set_aside == ["t"]
    assert all(place.offsets(group) == {"u"} for group in GROUPS)
    assert place.remembered == {"t"}  # its folders are not reported as removed yet
    (deleted,) = place.topics.deleted
    place.topics.folders_gone(deleted)
    assert place.remembered == set()


def test_no_offset_is_removed_before_the_deletion_is_durable(place: Place) -> None:
    place.log.immediate = False
    place.delete("t", "u")
    assert place.answers == []
    assert all(place.offsets(group) == {"t", "u"} for group in GROUPS)
    place.log.succeed()
    place.run()
    assert place.answers == [0]
    assert all(place.offsets(group) == set() for group in GROUPS)


def test_a_deletion_refused_by_the_log_removes_nothing(place: Place) -> None:
    place.log.replay = lambda: iter([[fact] for fact in facts])  # type: ignore[method-assign]
    facts: list[Any] = []
    place.log.immediate = False
    place.delete("t")
    place.log.refuse()
    place.run()
    assert place.answers == [56]
    assert place.remembered == set()
    assert all(place.offsets(group) == {"t", "u"} for group in GROUPS)


def test_a_late_deletion_removes_offsets_once_durable(place: Place) -> None:
    place.log.immediate = False
    place.delete("t")
    place.harness.loop.advance(LATE_MS / 1000)
    place.registry.advance(place.harness.clock.tick())
    place.run()
    assert place.answers == [7]
    assert all(place.offsets(group) == {"t", "u"} for group in GROUPS)
    place.log.succeed()
    place.run()
    assert all(place.offsets(group) == {"u"} for group in GROUPS)


def test_a_partition_loaded_later_removes_the_offsets_before_it_serves(place: Place) -> None:
    journal = place.harness.shards.journals[2]
    group = next(group for group in GROUPS if place.harness.shards.journal_of(group) is journal)
    place.harness.shards.journals[2].unload(lambda: None)
    place.run()
    place.delete("t")
    assert place.answers == [0]
    place.topics.folders_gone(next(iter(place.topics.deleted)))
    assert place.remembered == {"t"}
    place.harness.shards.load(2)
    place.run()
    assert place.offsets(group) == {"u"}
    assert place.remembered == set()


def test_a_partition_retries_refused_offset_tombstones(place: Place) -> None:
    journal = place.harness.shards.journal_of("group-0")
    log = place.harness.log_of("group-0")
    log.immediate = False
    place.delete("t")
    log.refuse()
    place.run()
    assert journal.refusal
    assert place.remembered == {"t"}
    log.immediate = True
    place.harness.pass_ms(1_000)
    log.recoveries.pop()(None)
    place.run()
    assert not journal.refusal
    assert place.offsets("group-0") == {"u"}
    place.topics.folders_gone(next(iter(place.topics.deleted)))
    assert place.remembered == set()


def test_a_start_finishes_the_deletions_of_a_killed_broker() -> None:
    deleted = DeletedTopic("t", b"t" * 16, 3, 2_000_000)
    place = Place(load=False, deleted=(deleted,))
    place.topics.folders_gone(deleted.id)
    assert place.remembered == {"t"}
    place.harness.shards.load_all()
    place.run()
    assert place.remembered == set()


@pytest.mark.parametrize("set_back_ms", [0, 8 * 86_400_000])
def test_offsets_of_a_recreated_topic_are_kept(place: Place, set_back_ms: int) -> None:
    """A start may repeat the deletion when another topic has the name, even after the clock was set back."""
    before = place.harness.clock.wall
    place.topics.by_name["t"] = replace(place.topics.by_name["t"], created_ms=before + 1)
    place.commit("group-0", "t")
    place.deletions.resume([DeletedTopic("t", b"t" * 16, 3, before + set_back_ms)])
    place.run()
    assert place.offsets("group-0") == {"t", "u"}
    assert place.offsets("group-1") == {"u"}


def test_offsets_committed_by_a_clock_ahead_are_removed_with_their_topic(place: Place) -> None:
    wall = place.harness.clock.wall
    place.harness.clock._wall_ns = lambda: (wall + 8 * 86_400_000) * 1_000_000
    place.commit("group-0", "t")
    place.harness.clock._wall_ns = lambda: (wall + 10) * 1_000_000
    place.harness.pass_ms(1)
    place.delete("t")
    assert all(place.offsets(group) == {"u"} for group in GROUPS)
