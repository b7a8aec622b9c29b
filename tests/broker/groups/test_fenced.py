"""Fenced processes, and LeaveGroups that name nobody, leave log lines, and a storm of them leaves few."""

from __future__ import annotations

from typing import Any

import pytest

from broker.groups import fenced, line_counts
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.group_harness import GroupClient, GroupHarness

pytestmark = pytest.mark.plain  # replaces the log

FENCED = ErrorCode.FENCED_INSTANCE_ID
Line = dict[str, Any]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[Line]:
    written: list[Line] = []

    class Log:
        def warning(self, event: str, **fields: object) -> None:
            written.append({"event": event, **fields})

    monkeypatch.setattr(fenced, "log", Log())
    return written


class Group:
    """A group with the static member "a", whose process was replaced by one on another host."""

    def __init__(self) -> None:
        self.harness = GroupHarness()
        self.old = GroupClient(self.harness, "10.0.0.1")
        self.new = GroupClient(self.harness, "10.0.0.2")
        self.old_id = self.join(self.old)
        self.generation = 1
        self.sync(self.old, self.old_id)
        self.new_id = self.join(self.new)
        assert self.new_id != self.old_id

    def request(self, member: str = "") -> JoinGroupRequest:
        return JoinGroupRequest("g", 10_000, 10_000, member, "a", "consumer", [JoinGroupRequestProtocol("range", b"")])

    def join(self, client: GroupClient, member: str = "") -> str:
        client.send(self.request(member), 7)
        self.harness.pass_ms(4_000)
        reply = client.reply()
        assert reply is not None
        assert reply.error_code == 0
        return str(reply.member_id)

    def sync(self, client: GroupClient, member: str) -> int:
        request = SyncGroupRequest("g", self.generation, member, "a", "consumer", "range", [SyncGroupRequestAssignment(member, b"x")])
        return int(client.ask(request, 5).error_code)

    def heartbeat(self) -> int:
        return int(self.old.ask(HeartbeatRequest("g", self.generation, self.old_id, "a"), 4).error_code)


def test_every_fenced_request_leaves_a_line_with_both_processes(lines: list[Line]) -> None:
    group = Group()
    assert lines == []
    old, id = group.old, group.old_id
    assert group.heartbeat() == FENCED
    assert group.sync(old, id) == FENCED
    topics = [OffsetCommitRequestTopic("t", [OffsetCommitRequestPartition(0, 5)])]
    assert old.ask(OffsetCommitRequest("g", group.generation, id, "a", -1, topics), 8).topics[0].partitions[0].error_code == FENCED
    assert old.ask(LeaveGroupRequest("g", [MemberIdentity(id, "a")]), 4).members[0].error_code == FENCED
    assert old.ask(group.request(id), 7).error_code == FENCED
    assert [line.pop("request") for line in lines] == ["Heartbeat", "SyncGroup", "OffsetCommit", "LeaveGroup", "JoinGroup"]
    expected = {
        "event": "process is fenced: another one has its instance id",
        "group": "g",
        "instance": "a",
        "member": id,
        "host": "10.0.0.1",
        "holder": group.new_id,
        "holder_host": "10.0.0.2",
        "requests": 1,
    }
    assert lines == [expected] * 5


def test_a_storm_of_one_process_leaves_a_line_a_minute(lines: list[Line]) -> None:
    group = Group()
    for _ in range(100):
        assert group.heartbeat() == FENCED
    assert [line["requests"] for line in lines] == [1]
    until = group.harness.clock.tick() + line_counts.LINE_MS
    while group.harness.clock.tick() < until:
        group.harness.pass_ms(3_000)
        assert group.new.ask(HeartbeatRequest("g", group.generation, group.new_id, "a"), 4).error_code in (0, ErrorCode.REBALANCE_IN_PROGRESS)
    assert group.heartbeat() == FENCED
    assert [line["requests"] for line in lines] == [1, 100]


def test_a_repeated_heartbeat_that_becomes_fenced_leaves_a_line(lines: list[Line]) -> None:
    """The process learns of its replacement by a heartbeat that has a fast path."""
    group = Group.__new__(Group)
    group.harness = GroupHarness()
    group.old, group.new = GroupClient(group.harness, "10.0.0.1"), GroupClient(group.harness, "10.0.0.2")
    group.generation = 1
    group.old_id = group.join(group.old)
    group.sync(group.old, group.old_id)
    for _ in range(3):
        assert group.heartbeat() == 0
    group.new_id = group.join(group.new)
    assert group.heartbeat() == FENCED
    assert [(line["request"], line["member"]) for line in lines] == [("Heartbeat", group.old_id)]


def test_a_leave_group_without_any_id_leaves_a_line(lines: list[Line]) -> None:
    group = Group()
    for instance in (None, ""):
        reply = group.old.ask(LeaveGroupRequest("g", [MemberIdentity("", instance)]), 4)
        assert reply.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert lines == [{"event": "LeaveGroup names no member: member id and instance id are empty", "group": "g", "host": "10.0.0.1", "requests": 1}]


def test_counted_processes_are_bounded(lines: list[Line]) -> None:
    group = Group()
    journal = group.harness.shards.journal_of("g")
    for number in range(2 * line_counts.KNOWN_MAX + 10):
        journal.fenced_lines.add(journal, "Heartbeat", "g", f"member-{number}", "a", "10.0.0.1")
    assert len(journal.fenced_lines._counts) <= line_counts.KNOWN_MAX
