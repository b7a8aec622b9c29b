"""Followers of the registry of topics, and the controller that they follow, over logs in memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from broker.cluster.messages import NodeRequestKind
from broker.cluster.registry import Changes, Registry
from broker.groups.journal import Journal
from broker.topics import registry
from broker.topics.registry import TopicRegistry
from protocol.batch import build_facts, facts_of
from protocol.errors import ErrorCode, ProtocolError
from storage import AppendFailed

READ_BYTES = 200

pytestmark = pytest.mark.plain  # replaces the turn of the journal


class Log:
    """The registry's log; an appended batch can be read immediately."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, bytes]] = []  # first offset, offset after the last, bytes
        self.epoch = 0
        self.next_offset = self.start_offset = 0

    # Called by the controller, as an `OwnedLog`.

    def usable(self) -> bool:
        return True

    def replay(self) -> Iterator[list[Any]]:
        for _, _, batch in self.batches:
            yield list(facts_of(batch))

    def append(self, batch: bytearray, records: int, done: Any) -> None:
        from protocol.batch import stamp

        stamp(batch, 0, self.next_offset, self.epoch)
        self.batches.append((self.next_offset, self.next_offset + records, bytes(batch)))
        self.next_offset += records
        done(self.next_offset - records)

    def watch(self, failed: Any) -> None: ...

    def recover(self, done: Any) -> None: ...

    def release(self) -> None: ...

    # Called by followers, which read the log.

    @property
    def records(self) -> Log:
        return self

    @property
    def high_watermark(self) -> int:
        return self.next_offset

    def read(self, offset: int, bytes_max: int, end: int = -1) -> bytes:
        batches = b""
        for _, next_offset, batch in self.batches:
            if next_offset > offset and (not batches or len(batches) + len(batch) <= READ_BYTES):
                batches += batch
        return batches


class Turn:
    """A stand-in for the turn: appends at once, and not at the end of the turn."""

    def __init__(self) -> None:
        self.clock: Any = self
        self.now = self.wall = 0

    def call_first_at_turn_end(self, journal: Journal) -> None:
        journal.end_turn()

    def wake_by(self, at: int) -> None: ...


class Node:
    def __init__(self, log: Log) -> None:
        self.log = log
        self.topics = TopicRegistry(lambda: random.randbytes(16))
        journal = Journal("registry", self.topics, NO_OWNER, Turn(), 1_000)  # type: ignore[arg-type]
        journal.writable = False
        self.changes: list[Changes] = []
        self.registry = Registry(self.topics, journal, self.changes.append)

    def lead(self) -> None:
        self.log.epoch += 1
        assert self.registry.lead(self.log, self.log)  # type: ignore[arg-type]

    def create(self, name: str, partitions: int = 1) -> None:
        self.topics.create(name, partitions, {}, 0)
        self.registry.journal.end_turn()

    def delete(self, name: str) -> None:
        self.topics.delete(name, 0)
        self.registry.journal.end_turn()

    def ask(self, controller: Node) -> bool:
        request = self.registry.request(1, NodeRequestKind.FOLLOW)
        return self.registry.apply_records(request, controller.registry.answer(request))

    def follow(self, controller: Node) -> int:
        rounds = 1
        while self.ask(controller):
            rounds += 1
        return rounds


NO_OWNER: Any = Log()


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def controller(log: Log) -> Node:
    node = Node(log)
    node.lead()
    return node


@pytest.fixture
def follower(log: Log) -> Node:
    return Node(log)


def test_a_follower_reads_the_controllers_log_in_several_replies(controller: Node, follower: Node) -> None:
    for number in range(20):
        controller.create(f"topic-{number}", number + 1)
    assert not follower.registry.is_current
    assert follower.follow(controller) > 2
    assert follower.registry.is_current
    assert follower.topics.by_name == controller.topics.by_name
    assert len(follower.changes) == 1
    assert len(follower.changes[0].changed) == 20


def test_a_follower_reads_only_new_records(controller: Node, follower: Node) -> None:
    controller.create("one")
    follower.follow(controller)
    controller.create("two")
    request = follower.registry.request(1, NodeRequestKind.FOLLOW)
    reply = controller.registry.answer(request)
    assert reply.body == controller.log.batches[-1][2]
    follower.registry.apply_records(request, reply)
    assert [topic.name for topic in follower.changes[-1].changed] == ["two"]


@pytest.mark.parametrize("follows_before", [True, False])
def test_a_reply_requested_before_the_node_led_removes_no_topic(controller: Node, follower: Node, follows_before: bool) -> None:
    controller.create("one")
    if follows_before:
        follower.follow(controller)
    request = follower.registry.request(1, NodeRequestKind.FOLLOW)
    late = controller.registry.answer(request)
    controller.registry.follow()
    follower.lead()
    follower.create("two")
    follower.registry.follow()
    assert follower.registry.apply_records(request, late)  # more records follow
    assert sorted(follower.topics.by_name) == ["one", "two"]
    assert not any(change.removed for change in follower.changes)


def test_a_deletion_reaches_the_follower_with_its_remaining_steps(controller: Node, follower: Node) -> None:
    controller.create("one")
    follower.follow(controller)
    controller.delete("one")
    follower.follow(controller)
    changes = follower.changes[-1]
    assert [topic.name for topic in changes.removed] == ["one"]
    assert [deleted.name for deleted in changes.deleted] == ["one"]


def test_a_follower_reads_everything_again_after_the_controller_replayed_its_log(controller: Node, follower: Node) -> None:
    controller.create("one")
    follower.follow(controller)
    controller.topics.create("never stored", 1, {}, 0)  # memory is ahead of the log
    controller.registry.journal.failed(AppendFailed("the disk is full"))
    follower.topics.by_name.pop("one")
    follower.follow(controller)
    assert list(follower.topics.by_name) == ["one"]


def test_a_follower_that_missed_a_deletion_reads_everything_when_the_log_was_shortened(controller: Node, follower: Node, log: Log) -> None:
    controller.create("one")
    controller.create("two")
    follower.follow(controller)
    controller.delete("one")
    live = [(key, value) for _, _, batch in log.batches for key, value in facts_of(batch) if b"two" in key]
    log.append(bytearray(build_facts(live, 1)), len(live), lambda offset: None)
    log.batches = log.batches[-1:]  # compacted: neither the topic nor its deletion has a record left
    log.start_offset = log.batches[0][0]
    follower.follow(controller)
    assert set(follower.topics.by_name) == {"two"}


def test_the_next_controller_has_the_records_of_the_previous_one(controller: Node, follower: Node, log: Log) -> None:
    controller.create("one")
    follower.follow(controller)
    controller.create("two")
    controller.registry.follow()
    assert controller.registry.answer(follower.registry.request(1, NodeRequestKind.FOLLOW)).error_code
    follower.lead()
    assert set(follower.topics.by_name) == {"one", "two"}
    assert [topic.name for topic in follower.changes[-1].changed] == ["two"]
    follower.create("three")
    assert not controller.registry.is_current
    controller.follow(follower)
    assert set(controller.topics.by_name) == {"one", "two", "three"}


def test_a_follower_writes_nothing(controller: Node, follower: Node) -> None:
    controller.create("one")
    follower.follow(controller)
    assert not follower.registry.journal.writable
    follower.topics.create("two", 1, {}, 0)
    follower.registry.journal.end_turn()
    assert len(controller.log.batches) == 1


def test_a_refused_request_changes_nothing(controller: Node, follower: Node) -> None:
    controller.create("one")
    follower.follow(controller)
    changes = len(follower.changes)
    request = follower.registry.request(1, NodeRequestKind.FOLLOW)
    reply = controller.registry.answer(request)
    reply.error_code = 41
    reply.epoch += 1  # a reply that would make the follower read everything again
    assert not follower.registry.apply_records(request, reply)
    assert follower.registry.is_current
    assert (list(follower.topics.by_name), len(follower.changes)) == (["one"], changes)
    assert not follower.ask(controller)


def test_each_controller_and_each_replay_has_a_snapshot_id_of_its_own(controller: Node, follower: Node) -> None:
    first = controller.registry.snapshot_id
    assert controller.registry.snapshot_id == first
    seen = [first]
    for _ in range(2):
        controller.topics.replay([])
        controller.topics.clear()
        controller.registry.journal.failed(AppendFailed("the disk is full"))
        seen.append(controller.registry.snapshot_id)
    follower.lead()
    seen.append(follower.registry.snapshot_id)
    assert len(set(seen)) == 4
    assert [id >> 24 for id in seen] == [1, 1, 1, 2]


def test_a_node_that_does_not_lead_refuses_followers(controller: Node, follower: Node) -> None:
    assert follower.registry.answer(follower.registry.request(1, NodeRequestKind.FOLLOW)).error_code == 41
    controller.registry.journal.readable = False
    assert controller.registry.answer(follower.registry.request(1, NodeRequestKind.FOLLOW)).error_code == 41


@pytest.mark.parametrize("reread", [False, True])
def test_records_that_cannot_be_read_leave_the_topics_as_they_are(controller: Node, follower: Node, reread: bool) -> None:
    """Also what precedes the unreadable record is not applied: nobody would be told of these changes."""
    controller.create("a")
    follower.follow(controller)
    known = dict(follower.topics.by_name)
    if reread:
        follower.registry.follow()
    controller.topics.create("b", 1, {}, 0)
    controller.topics.hold.emit([(registry._key("later"), b"\x7f\xff of a newer version")])
    controller.registry.journal.end_turn()
    follower.changes.clear()
    with pytest.raises(ProtocolError, match="TopicValue has no version"):
        follower.follow(controller)
    assert (dict(follower.topics.by_name), follower.changes) == (known, [])


def test_a_registry_that_cannot_be_read_is_not_led(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr("broker.cluster.registry.log.error", lambda event, reason: lines.append(reason))
    node = Node(log)

    def fail() -> Iterator[list[Any]]:
        raise OSError(5, "Input/output error")

    log.replay = fail  # type: ignore[method-assign]
    assert node.registry.lead(log, log) is False  # type: ignore[arg-type]
    assert (node.registry.is_controller, node.registry.is_current, node.registry.end, node.changes) == (False, False, 0, [])
    assert lines == ["[Errno 5] Input/output error"]
    assert node.registry.answer(node.registry.request(1, NodeRequestKind.FOLLOW)).error_code == ErrorCode.NOT_CONTROLLER


def test_the_controller_reports_the_topics_of_its_log_as_read_anew(controller: Node, follower: Node) -> None:
    assert controller.changes == [Changes([], [], [], [], True)]
    assert (controller.registry.is_controller, controller.registry.is_current, controller.registry.end) == (True, True, 0)
    controller.create("one")
    assert controller.registry.end == 1
    follower.lead()
    (change,) = follower.changes
    assert ([topic.name for topic in change.changed], change.reread) == (["one"], True)


def test_a_node_that_does_not_lead_any_more_writes_and_answers_nothing(controller: Node) -> None:
    controller.create("one")
    controller.registry.follow()
    assert (controller.registry.is_controller, controller.registry.is_current, controller.registry.end) == (False, False, 0)
    assert not controller.registry.journal.writable
    followed: list[bool] = []
    controller.registry.journal.follow = lambda: followed.append(True)  # type: ignore[method-assign]
    controller.registry.follow()
    assert followed == []


def test_a_request_names_the_records_that_the_follower_has(controller: Node, follower: Node) -> None:
    request = follower.registry.request(7, NodeRequestKind.FOLLOW)
    assert (request.kind, request.node, request.offset, request.epoch) == (NodeRequestKind.FOLLOW, 7, 0, -1)
    controller.create("one")
    follower.follow(controller)
    request = follower.registry.request(7, NodeRequestKind.FOLLOW)
    assert (request.offset, request.epoch) == (1, controller.registry.snapshot_id)


def test_a_reply_says_where_it_ends_and_where_the_log_ends(controller: Node, follower: Node) -> None:
    for name in ("one", "two", "three", "four", "five"):
        controller.create(name)
    request = follower.registry.request(1, NodeRequestKind.FOLLOW)
    reply = controller.registry.answer(request)
    assert (reply.error_code, reply.end, reply.epoch) == (ErrorCode.NONE, 5, controller.registry.snapshot_id)
    assert 0 < reply.offset < 5
    assert follower.registry.apply_records(request, reply) is True
    assert (follower.registry.is_current, follower.changes) == (False, [])
    follower.follow(controller)
    assert follower.registry.is_current
    reply = controller.registry.answer(follower.registry.request(1, NodeRequestKind.FOLLOW))
    assert (reply.offset, reply.end, reply.body) == (5, 5, b"")
    assert follower.ask(controller) is False


def test_a_registry_with_an_unreadable_log_is_answered_with_an_error(controller: Node, follower: Node, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr("broker.cluster.registry.log.error", lambda event, reason: lines.append(reason))
    controller.create("one")

    def fail(offset: int, bytes_max: int, end: int = -1) -> bytes:
        raise OSError(5, "Input/output error")

    log.read = fail  # type: ignore[method-assign]
    assert controller.registry.answer(follower.registry.request(1, NodeRequestKind.FOLLOW)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert lines == ["[Errno 5] Input/output error"]


def test_a_follower_of_another_snapshot_reads_from_the_first_record(controller: Node, follower: Node, log: Log) -> None:
    for name in ("one", "two", "three"):
        controller.create(name)
    log.batches = log.batches[1:]
    log.start_offset = 1
    reads: list[tuple[int, int, int]] = []
    read = log.read
    log.read = lambda offset, bytes_max, end=-1: [reads.append((offset, bytes_max, end)), read(offset, bytes_max, end)][1]  # type: ignore
    request = follower.registry.request(1, NodeRequestKind.FOLLOW)
    for offset, epoch, begin in ((2, 77, 1), (0, controller.registry.snapshot_id, 1), (2, controller.registry.snapshot_id, 2)):
        request.offset, request.epoch = offset, epoch
        controller.registry.answer(request)
        assert reads.pop() == (begin, 1 << 20, 3)


def test_changes_are_reported_by_what_was_done_to_the_topics(controller: Node, follower: Node) -> None:
    for name in ("kept", "changed", "deleted"):
        controller.create(name)
    follower.follow(controller)
    assert follower.changes.pop().reread
    controller.topics.add_partitions("changed", 3)
    controller.registry.journal.end_turn()
    deleted = controller.topics.by_name["deleted"]
    controller.delete("deleted")
    follower.follow(controller)
    removed, changed = ([topic.name for change in follower.changes for topic in getattr(change, field)] for field in ("removed", "changed"))
    assert (removed, changed) == (["deleted"], ["changed"])
    assert [topic.id for change in follower.changes for topic in change.deleted] == [deleted.id]
    assert not any(change.completed or change.reread for change in follower.changes)
    follower.changes.clear()
    controller.topics.folders_gone(deleted.id)
    controller.topics.offsets_gone(deleted.id)
    controller.registry.journal.end_turn()
    follower.follow(controller)
    assert [id for change in follower.changes for id in change.completed] == [deleted.id]
    assert not any(change.removed or change.changed or change.deleted or change.reread for change in follower.changes)


def test_the_controller_applies_no_records_of_another_one(controller: Node, follower: Node) -> None:
    controller.create("one")
    request = follower.registry.request(1, NodeRequestKind.FOLLOW)
    reply = controller.registry.answer(request)
    follower.registry.is_controller = True
    assert follower.registry.apply_records(request, reply) is False
    assert follower.changes == []


def test_a_reply_to_an_earlier_request_is_not_applied(controller: Node, follower: Node) -> None:
    controller.create("one")
    earlier = follower.registry.request(1, NodeRequestKind.FOLLOW)
    reply = controller.registry.answer(earlier)
    follower.registry.follow()
    assert follower.registry.apply_records(earlier, reply) is True
    assert (follower.changes, follower.registry.is_current) == ([], False)
