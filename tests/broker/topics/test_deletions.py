"""Offsets committed for a deleted topic are removed, whatever the state of their partition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.topics.deletions import Deletions
from broker.topics.registry import DeletedTopic, Topic
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.support.group_harness import GroupClient, GroupHarness
from tests.support.journals import LATE_MS


class Folders:
    """A stand-in for the partitions of topics: records the deleted topics, whose folders they would set aside."""

    def __init__(self) -> None:
        self.set_aside: list[str] = []

    def deleted(self, topic: Topic) -> None:
        self.set_aside.append(topic.name)


class RegistryBroker:
    """A broker whose topic registry and groups have logs in memory."""

    def __init__(self, load: bool = True, deleted: tuple[DeletedTopic, ...] = ()) -> None:
        self.harness = GroupHarness(load=False)
        self.topics = self.harness.topics
        self.log = self.harness.registry_log
        self.registry = self.harness.registry
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
        self.peer = GroupClient(self.harness)
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
    def kept_deletions(self) -> set[str]:
        return {topic.name for topic in self.topics.deleted.values()}


GROUPS = [f"group-{number}" for number in range(20)]  # enough for every offsets partition to have some


@pytest.fixture
def broker() -> RegistryBroker:
    broker = RegistryBroker()
    for group in GROUPS:
        broker.commit(group, "t", "u")
    assert len({broker.harness.shards.journal_of(group) for group in GROUPS}) == len(broker.harness.shards.journals)
    return broker


def test_offsets_of_a_deleted_topic_are_removed_from_every_group(broker: RegistryBroker) -> None:
    broker.delete("t")
    assert broker.answers == [0]
    assert broker.folders.set_aside == ["t"]
    assert all(broker.offsets(group) == {"u"} for group in GROUPS)
    assert broker.kept_deletions == {"t"}  # the registry keeps the deletion until its folders are removed too
    (deleted,) = broker.topics.deleted
    broker.topics.folders_gone(deleted)
    assert broker.kept_deletions == set()


def test_no_offset_is_removed_before_the_deletion_is_durable(broker: RegistryBroker) -> None:
    broker.log.immediate = False
    broker.delete("t", "u")
    assert broker.answers == []
    assert all(broker.offsets(group) == {"t", "u"} for group in GROUPS)
    broker.log.succeed()
    broker.run()
    assert broker.answers == [0]
    assert all(broker.offsets(group) == set() for group in GROUPS)


def test_a_deletion_refused_by_the_log_removes_nothing(broker: RegistryBroker) -> None:
    broker.log.replay = lambda: iter([[fact] for fact in facts])  # type: ignore[method-assign]
    facts: list[Any] = []
    broker.log.immediate = False
    broker.delete("t")
    broker.log.refuse()
    broker.run()
    assert broker.answers == [56]
    assert broker.kept_deletions == set()
    assert all(broker.offsets(group) == {"t", "u"} for group in GROUPS)


def test_a_late_deletion_removes_offsets_once_durable(broker: RegistryBroker) -> None:
    broker.log.immediate = False
    broker.delete("t")
    broker.harness.loop.advance(LATE_MS / 1000)
    broker.registry.advance(broker.harness.clock.tick())
    broker.run()
    assert broker.answers == [7]
    assert all(broker.offsets(group) == {"t", "u"} for group in GROUPS)
    broker.log.succeed()
    broker.run()
    assert all(broker.offsets(group) == {"u"} for group in GROUPS)


def test_a_partition_loaded_later_removes_the_offsets_before_it_serves(broker: RegistryBroker) -> None:
    journal = broker.harness.shards.journals[2]
    group = next(group for group in GROUPS if broker.harness.shards.journal_of(group) is journal)
    broker.harness.shards.journals[2].unload(lambda: None)
    broker.run()
    broker.delete("t")
    assert broker.answers == [0]
    broker.topics.folders_gone(next(iter(broker.topics.deleted)))
    assert broker.kept_deletions == {"t"}
    broker.harness.shards.load(2)
    broker.run()
    assert broker.offsets(group) == {"u"}
    assert broker.kept_deletions == set()


def test_a_partition_retries_refused_offset_tombstones(broker: RegistryBroker) -> None:
    journal = broker.harness.shards.journal_of("group-0")
    log = broker.harness.log_of("group-0")
    log.immediate = False
    broker.delete("t")
    log.refuse()
    broker.run()
    assert journal.refusal
    assert broker.kept_deletions == {"t"}
    log.immediate = True
    broker.harness.pass_ms(1_000)
    log.recoveries.pop()(None)
    broker.run()
    assert not journal.refusal
    assert broker.offsets("group-0") == {"u"}
    broker.topics.folders_gone(next(iter(broker.topics.deleted)))
    assert broker.kept_deletions == set()


def test_a_start_finishes_the_deletions_of_a_killed_broker() -> None:
    deleted = DeletedTopic("t", b"t" * 16, 3, 2_000_000)
    broker = RegistryBroker(load=False, deleted=(deleted,))
    broker.topics.folders_gone(deleted.id)
    assert broker.kept_deletions == {"t"}
    broker.harness.shards.load_all()
    broker.run()
    assert broker.kept_deletions == set()


@pytest.mark.parametrize("set_back_ms", [0, 8 * 86_400_000])
def test_offsets_of_a_recreated_topic_are_kept(broker: RegistryBroker, set_back_ms: int) -> None:
    """A start may repeat an old deletion when a new topic has the name; the new topic's offsets must stay, even if the clock was set back."""
    before = broker.harness.clock.wall
    broker.topics.by_name["t"] = replace(broker.topics.by_name["t"], created_ms=before + 1)
    broker.commit("group-0", "t")
    broker.deletions.resume([DeletedTopic("t", b"t" * 16, 3, before + set_back_ms)])
    broker.run()
    assert broker.offsets("group-0") == {"t", "u"}
    assert broker.offsets("group-1") == {"u"}


def test_offsets_committed_by_a_clock_ahead_are_removed_with_their_topic(broker: RegistryBroker) -> None:
    wall = broker.harness.clock.wall
    broker.harness.clock._wall_ns = lambda: (wall + 8 * 86_400_000) * 1_000_000
    broker.commit("group-0", "t")
    broker.harness.clock._wall_ns = lambda: (wall + 10) * 1_000_000
    broker.harness.pass_ms(1)
    broker.delete("t")
    assert all(broker.offsets(group) == {"u"} for group in GROUPS)
