"""LeaveGroup over a connection, in every version."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.coordinator.scenarios import scenario
from tests.support.group_harness import GroupClient, GroupHarness
from tests.support.group_requests import join_stable_group, joining, syncing


@scenario("FE-13", "LV-14", "VS-09", "VS-10")
@pytest.mark.parametrize("version", range(6))
def test_leaving_in_every_version(harness: GroupHarness, peer: GroupClient, version: int) -> None:
    id = join_stable_group(harness, peer)
    if version < 3:
        assert peer.ask(LeaveGroupRequest("g", None, "stranger"), version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert peer.ask(LeaveGroupRequest("g", None, id), version).error_code == 0
    else:
        reply = peer.ask(LeaveGroupRequest("g", [MemberIdentity("stranger", "i"), MemberIdentity(id), MemberIdentity(id)]), version)
        assert reply.error_code == 0
        members = [(member.member_id, member.group_instance_id, member.error_code) for member in reply.members]
        assert members == [("stranger", "i", 25), (id, None, 0), (id, None, 25)]
    assert peer.ask(HeartbeatRequest("g", 1, id), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
def test_leaving_an_unknown_group_is_an_error_for_each_member(peer: GroupClient, version: int) -> None:
    if version < 3:
        assert peer.ask(LeaveGroupRequest("nowhere", None, "me"), version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        return
    reply = peer.ask(LeaveGroupRequest("nowhere", [MemberIdentity("me"), MemberIdentity("", "i")]), version)
    assert (reply.error_code, [(member.member_id, member.error_code) for member in reply.members]) == (0, [("me", 25), ("", 25)])
    assert peer.ask(LeaveGroupRequest("", [MemberIdentity("me")]), version).error_code == ErrorCode.INVALID_GROUP_ID
    assert peer.ask(LeaveGroupRequest("nowhere", []), version).members == []


def test_an_administrator_removes_a_static_member_by_its_instance_id(harness: GroupHarness, peer: GroupClient) -> None:
    join_stable_group(harness, peer, "i")
    reply = peer.ask(LeaveGroupRequest("g", [MemberIdentity("", "i", "scaled down")]), 5)
    assert [(member.member_id, member.group_instance_id, member.error_code) for member in reply.members] == [("", "i", 0)]


def test_the_rebalance_after_a_leave_ends_in_time(harness: GroupHarness) -> None:
    """The deadline of this rebalance is earlier than the deadlines for which the turn's timer was set."""
    members = [GroupClient(harness) for _ in range(2)]
    for number, member in enumerate(members, 1):
        member.send(joining(instance=f"m{number}", session=30_000, rebalance=5_000), 9)
    harness.pass_ms(0)
    for number, member in enumerate(members, 1):
        member.ask(syncing(member.reply().member_id, instance=f"m{number}"), 5)
    harness.pass_ms(6_000)
    harness.turn._rearm()
    assert harness.turn.armed_at - harness.clock.now > 5_000
    members[1].ask(LeaveGroupRequest("g", [MemberIdentity("", "m2")]), 5)
    assert harness.turn.armed_at - harness.clock.now <= 5_000
