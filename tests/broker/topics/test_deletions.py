"""Offsets committed for a deleted topic are removed, whatever the state of their partition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.topics.registry import DeletedTopic
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.support.group_harness import GroupClient, GroupHarness
from tests.support.journals import LATE_MS


class RegistryBroker:
    """A broker whose topic registry and groups have logs in memory."""

    def __init__(self, load: bool = True, deleted: tuple[DeletedTopic, ...] = ()) -> None:
        self.harness = GroupHarness(load=False)
        self.topics = self.harness.topics
        self.log = self.harness.registry_log
        self.registry = self.harness.registry
        self.folders = self.harness.deleted_folders
        self.answers: list[int] = []
        self.deletions = self.harness.deletions
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


def test_a_deletion_is_answered_once_however_often_its_partitions_are_visited(broker: RegistryBroker) -> None:
    """A node visits them again when it has read the registry again."""
    broker.harness.shards.journals[2].refusal = ErrorCode.NOT_COORDINATOR  # keeps the deletion open
    broker.delete("t")
    (deletion,) = broker.deletions._open
    broker.deletions.enqueue([deletion])
    broker.run()
    assert broker.answers == [0]


def test_a_start_finishes_the_deletions_of_a_killed_broker() -> None:
    deleted = DeletedTopic("t", b"t" * 16, 3, 2_000_000)
    broker = RegistryBroker(load=False, deleted=(deleted,))
    broker.topics.folders_gone(deleted.id)
    assert broker.kept_deletions == {"t"}
    broker.harness.shards.load_all()
    broker.run()
    assert broker.kept_deletions == set()


def recreate(broker: RegistryBroker, name: str = "t") -> None:
    broker.topics.create(name, 2, {}, broker.harness.clock.wall)
    broker.registry.turn.call_first_at_turn_end(broker.registry)
    broker.run()


def test_offsets_of_a_recreated_topic_are_kept_when_its_deletion_is_repeated(broker: RegistryBroker) -> None:
    """After a start, or a change of controller, the deletion is repeated while a new topic has the name."""
    broker.delete("t")
    recreate(broker)
    broker.commit("group-0", "t")
    for _ in range(2):
        broker.deletions.resume(broker.topics.deleted.values())
        broker.run()
        assert broker.offsets("group-0") == {"t", "u"}
        assert broker.offsets("group-1") == {"u"}


@pytest.mark.parametrize("clock_ms", [-8 * 86_400_000, 8 * 86_400_000])
def test_clocks_do_not_decide_whose_offsets_are_removed(broker: RegistryBroker, clock_ms: int) -> None:
    """The clocks of the node that deleted the topic, of the one that created the new one, and of the coordinator may differ."""
    broker.delete("t")
    recreate(broker)
    broker.topics.by_name["t"] = replace(broker.topics.by_name["t"], created_ms=broker.harness.clock.wall + clock_ms)
    wall = broker.harness.clock.wall
    broker.harness.clock._wall_ns = lambda: (wall - clock_ms) * 1_000_000
    broker.commit("group-0", "t")
    broker.harness.shards.journal_of("group-0").unload(lambda: None)
    broker.run()
    broker.harness.shards.load(broker.harness.shards.journal_of("group-0").partition)
    broker.run()
    assert broker.offsets("group-0") == {"t", "u"}


def test_a_deletion_that_was_complete_is_not_repeated_after_commits_to_the_new_topic(broker: RegistryBroker) -> None:
    """A node that takes the partition over may not have read yet that the deletion is complete."""
    deleted = broker.topics.by_name["t"]
    broker.delete("t")
    before = DeletedTopic("t", deleted.id, deleted.partition_count, 0, broker.topics.last_deletion)
    broker.topics.folders_gone(deleted.id)
    assert broker.kept_deletions == set()
    recreate(broker)
    broker.commit("group-0", "t")
    broker.deletions.resume([before])
    broker.run()
    assert broker.offsets("group-0") == {"t", "u"}
    assert broker.offsets("group-1") == {"u"}


def test_a_partition_notes_the_newest_deletion_before_the_next_commit(broker: RegistryBroker) -> None:
    shard = broker.harness.shards.journal_of("group-0").shard
    broker.delete("t")
    assert shard.deletions_applied == 0
    broker.commit("group-0", "u")
    assert shard.deletions_applied == 1
    recreate(broker)
    broker.commit("group-0", "t", "u")
    emitted = shard.hold.emitted
    broker.commit("group-0", "t")
    assert shard.hold.emitted == emitted + 2
    broker.delete("t")
    assert broker.offsets("group-0") == {"u"}
    recreate(broker)
    broker.commit("group-0", "t")
    assert shard.deletions_applied == 2


def test_offsets_that_a_deletion_will_remove_are_not_shown_for_the_new_topic(broker: RegistryBroker) -> None:
    """A deletion removes offsets in slices; a client may read or commit before the slice of its partition."""
    times = iter(float(number) for number in range(1_000))
    broker.deletions._monotonic = lambda: next(times)  # each partition takes a slice of its own
    journal = broker.harness.shards.journal_of("group-0")
    others = [group for group in GROUPS if broker.harness.shards.journal_of(group) is journal]
    broker.offsets("group-0")  # learns a fast path
    deleted = broker.topics.deleted[broker.topics.delete("t", 0).id]
    broker.topics.create("t", 2, {}, 0)
    broker.topics.hold.confirm(broker.topics.hold.emitted)
    broker.deletions.resume([deleted])
    if journal.queued_deletions:
        assert broker.offsets("group-0") == {"u"}
    broker.commit("group-0", "t")
    broker.run()
    assert broker.offsets("group-0") == {"t", "u"}
    assert all(broker.offsets(group) == {"u"} for group in others[1:])
    assert not any(each.queued_deletions for each in broker.harness.shards.journals)


def test_a_commit_waits_until_the_deletion_before_the_new_topic_is_durable(broker: RegistryBroker) -> None:
    broker.log.immediate = False
    broker.deletions.delete(["t"], broker.answers.append)
    broker.topics.create("t", 2, {}, 0)
    requested = [OffsetCommitRequestTopic("t", [OffsetCommitRequestPartition(0, 5)])]
    reply = broker.peer.ask(OffsetCommitRequest("group-0", -1, "", None, -1, requested), 8)
    assert reply.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    broker.run()
    broker.log.immediate = True
    broker.log.succeed()
    broker.run()
    broker.commit("group-0", "t")
    assert broker.offsets("group-0") == {"t", "u"}


def test_a_partition_ahead_of_this_nodes_registry_takes_no_commits(broker: RegistryBroker) -> None:
    journal = broker.harness.shards.journal_of("group-0")
    journal.call(journal.shard.note_deletions, 3, 0, 0)
    requested = [OffsetCommitRequestTopic("t", [OffsetCommitRequestPartition(0, 5)])]
    reply = broker.peer.ask(OffsetCommitRequest("group-0", -1, "", None, -1, requested), 8)
    assert reply.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    broker.topics.last_deletion = 3
    broker.commit("group-0", "t")


def test_a_deletion_without_a_number_is_applied_each_time(broker: RegistryBroker) -> None:
    deleted = DeletedTopic("t", b"t" * 16, 3, 0)
    for _ in range(2):
        broker.deletions.resume([deleted])
        broker.run()
        assert broker.offsets("group-0") == {"u"}
        broker.commit("group-0", "t")


def test_offsets_committed_by_a_clock_ahead_are_removed_with_their_topic(broker: RegistryBroker) -> None:
    wall = broker.harness.clock.wall
    broker.harness.clock._wall_ns = lambda: (wall + 8 * 86_400_000) * 1_000_000
    broker.commit("group-0", "t")
    broker.harness.clock._wall_ns = lambda: (wall + 10) * 1_000_000
    broker.harness.pass_ms(1)
    broker.delete("t")
    assert all(broker.offsets(group) == {"u"} for group in GROUPS)
