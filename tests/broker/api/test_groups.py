"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup over a connection: what is checked first, and what replies look like."""

from __future__ import annotations

from typing import Any

import pytest

from broker.api.join_group import java_address
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.group_desk import Desk, Peer

CONSUMER = "consumer"


def joining(
    group: str = "g",
    id: str = "",
    instance: str | None = None,
    protocols: tuple[tuple[str, bytes], ...] = (("range", b"topics"),),
    session: int = 10_000,
    rebalance: int = 20_000,
) -> JoinGroupRequest:
    offers = [JoinGroupRequestProtocol(name, metadata) for name, metadata in protocols]
    return JoinGroupRequest(group, session, rebalance, id, instance, CONSUMER, offers)


def syncing(id: str, generation: int = 1, assigned: dict[str, bytes] | None = None, instance: str | None = None) -> SyncGroupRequest:
    given = [SyncGroupRequestAssignment(member, data) for member, data in (assigned or {}).items()]
    return SyncGroupRequest("g", generation, id, instance, CONSUMER, "range", given)


def joined(desk: Desk, peer: Peer, request: JoinGroupRequest, version: int = 9) -> Any:
    """The reply to a JoinGroup whose join phase is over at once."""
    peer.send(request, version)
    desk.pass_ms(0)
    reply = peer.reply()
    if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        request.member_id = reply.member_id
        return joined(desk, peer, request, version)
    return reply


def stable(desk: Desk, peer: Peer, instance: str | None = None) -> str:
    """The id of the one member of the stable group "g"."""
    reply = joined(desk, peer, joining(instance=instance), 5)
    peer.ask(syncing(reply.member_id, assigned={reply.member_id: b"mine"}, instance=instance), 5)
    return str(reply.member_id)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def peer(desk: Desk) -> Peer:
    return Peer(desk)


# JoinGroup


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins_in_every_version(desk: Desk, peer: Peer, version: int) -> None:
    request = joining(rebalance=20_000 if version >= 1 else -1)
    peer.send(request, version)
    desk.pass_ms(0)
    reply = peer.reply()
    if version >= 4:
        assert (reply.error_code, reply.generation_id, reply.protocol_type, reply.leader, reply.members) == (79, -1, None, "", [])
        assert reply.protocol_name == (None if version >= 7 else "")
        request.member_id = reply.member_id
        peer.send(request, version)
        desk.pass_ms(0)
        reply = peer.reply()
    assert reply.member_id == reply.leader == "client-id-1"
    assert (reply.error_code, reply.generation_id, reply.protocol_name, reply.skip_assignment) == (0, 1, "range", False)
    assert reply.protocol_type == (CONSUMER if version >= 7 else None)
    assert [(one.member_id, one.group_instance_id, one.metadata) for one in reply.members] == [("client-id-1", None, b"topics")]


def test_version_0_has_one_timeout_for_both(desk: Desk, peer: Peer) -> None:
    joined(desk, peer, joining(rebalance=-1), 0)
    (member,) = desk.shards.of("g").shard.groups["g"].members.values()
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (10_000, 10_000)


@pytest.mark.parametrize("version", [4, 6, 7, 9])
@pytest.mark.parametrize(
    ("request_", "error", "id"),
    [
        (joining(group="", id="me", session=0), ErrorCode.INVALID_GROUP_ID, "me"),
        (joining(id="me", session=5_999), ErrorCode.INVALID_SESSION_TIMEOUT, "me"),
        (joining(id="me", session=1_800_001), ErrorCode.INVALID_SESSION_TIMEOUT, "me"),
        (joining(id="me"), ErrorCode.UNKNOWN_MEMBER_ID, "me"),
        (joining(protocols=()), ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ""),
    ],
    ids=["no group", "short session", "long session", "no such member", "no protocols"],
)
def test_a_refused_join_has_no_generation_and_the_id_that_was_sent(
    peer: Peer, request_: JoinGroupRequest, error: ErrorCode, id: str, version: int
) -> None:
    reply = peer.ask(request_, version)
    assert (reply.error_code, reply.member_id, reply.generation_id, reply.leader, reply.members) == (error, id, -1, "", [])
    assert (reply.protocol_type, reply.protocol_name) == (None, None if version >= 7 else "")


def test_a_protocol_of_no_name_is_told_as_null_from_version_7(desk: Desk, peer: Peer) -> None:
    reply = joined(desk, peer, joining(protocols=(("", b"x"),)), 9)
    assert (reply.error_code, reply.protocol_name) == (0, None)
    again = joined(desk, peer, joining(id=reply.member_id, protocols=(("", b"x"),)), 6)
    assert (again.error_code, again.protocol_name) == (0, "")


def test_instance_ids_of_others_are_told_to_those_who_know_them(desk: Desk) -> None:
    leader, other = Peer(desk), Peer(desk)
    leader.send(joining(instance="a"), 5)
    other.send(joining(instance="b"), 5)
    desk.pass_ms(0)
    assert sorted(one.group_instance_id for one in leader.reply().members) == ["a", "b"]
    other.reply()
    leader.send(joining(id="a-id-1"), 4)
    other.send(joining(id="b-id-2"), 4)
    assert [one.group_instance_id for one in leader.reply().members] == [None, None]


def test_a_leader_that_restarted_is_told_so_only_where_it_understands(desk: Desk, peer: Peer) -> None:
    old = stable(desk, peer, "i")
    told = peer.ask(joining(instance="i"), 8)
    assert (told.error_code, told.leader, told.members, told.skip_assignment) == (0, old, [], False)
    told = peer.ask(joining(instance="i"), 9)
    assert (told.error_code, told.leader, told.skip_assignment) == (0, told.member_id, True)
    assert [one.member_id for one in told.members] == [told.member_id]


def test_a_protocol_twice_is_inconsistent(peer: Peer) -> None:
    assert peer.ask(joining(protocols=(("range", b"x"), ("range", b"x"))), 9).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("metadata", ["000000000001", "00000000000100036162", "0000ffffffff", "000000000001000361626300000009", ""])
def test_a_subscription_that_cannot_be_read_stops_nobody(desk: Desk, peer: Peer, metadata: str) -> None:
    assert joined(desk, peer, joining(protocols=(("range", bytes.fromhex(metadata)),))).error_code == 0


def test_a_client_without_an_id_gets_a_member_id_that_begins_with_a_dash(desk: Desk) -> None:
    assert Peer(desk, client_id=None).ask(joining(), 9).member_id == "-id-1"


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("127.0.0.1", "/127.0.0.1"),
        ("::1", "/0:0:0:0:0:0:0:1"),
        ("2001:db8::a:0:1f", "/2001:db8:0:0:0:a:0:1f"),
        ("fe80::1%eth0", "/fe80:0:0:0:0:0:0:1%eth0"),
    ],
)
def test_clients_hosts_are_written_as_java_writes_them(desk: Desk, address: str, host: str) -> None:
    joined(desk, Peer(desk, address), joining())
    (group,) = Peer(desk).ask(DescribeGroupsRequest(["g"]), 5).groups
    assert [one.client_host for one in group.members] == [java_address(address)] == [host]


def test_an_id_too_long_for_a_reply_closes_the_connection_and_nothing_else(desk: Desk, peer: Peer) -> None:
    # Bytes that are no UTF-8 are read as characters of three bytes each.
    request = joining(id="x" * 20_000)
    peer.send(request, 9, request.encode(9).replace(b"x" * 20_000, b"\xff" * 20_000))
    assert not peer.open
    assert Peer(desk).ask(joining(), 9).error_code == ErrorCode.MEMBER_ID_REQUIRED


# SyncGroup


@pytest.mark.parametrize("version", range(6))
def test_a_member_is_told_its_assignment_in_every_version(desk: Desk, peer: Peer, version: int) -> None:
    id = joined(desk, peer, joining()).member_id
    request = syncing(id, assigned={id: b"mine", "nobody": b"lost"})
    if version < 5:
        request.protocol_type = request.protocol_name = None
    reply = peer.ask(request, version)
    assert (reply.error_code, reply.assignment) == (0, b"mine")
    assert (reply.protocol_type, reply.protocol_name) == ((CONSUMER, "range") if version >= 5 else (None, None))


@pytest.mark.parametrize(("kind", "protocol"), [(None, "range"), (CONSUMER, None), (None, None)])
def test_from_version_5_a_sync_names_type_and_protocol_even_to_a_group_of_no_name(peer: Peer, kind: str | None, protocol: str | None) -> None:
    reply = peer.ask(SyncGroupRequest("", 1, "me", None, kind, protocol, []), 5)
    assert reply.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert peer.ask(SyncGroupRequest("", 1, "me"), 4).error_code == ErrorCode.INVALID_GROUP_ID


def test_a_refused_sync_has_neither_assignment_nor_protocol(desk: Desk, peer: Peer) -> None:
    id = stable(desk, peer)
    reply = peer.ask(syncing(id, 2), 5)
    assert (reply.error_code, reply.assignment, reply.protocol_type, reply.protocol_name) == (ErrorCode.ILLEGAL_GENERATION, b"", None, None)


def test_a_member_is_asked_twice_and_both_are_answered(desk: Desk, peer: Peer) -> None:
    id = stable(desk, peer)
    other, first, second = Peer(desk), Peer(desk), Peer(desk)
    other.send(joining(instance="other"), 9)  # now the group waits for its first member
    first.send(joining(id=id, protocols=(("range", b"changed"),)), 9)
    assert (first.reply().generation_id, other.reply().generation_id) == (2, 2)
    for again in (first, second):
        again.send(syncing("other-id-2", 2, instance="other"), 5)
    assert first.reply().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert second.reply() is None
    other.send(joining(instance="third"), 9)  # calls everybody back
    assert second.reply().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    for again in (first, second):
        again.send(joining(id=id), 9)
    answered = first.reply()
    assert (answered.error_code, answered.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert second.reply() is None


# Heartbeat and LeaveGroup


@pytest.mark.parametrize("version", range(5))
def test_heartbeats_in_every_version(desk: Desk, peer: Peer, version: int) -> None:
    id = stable(desk, peer)
    for generation, member, error in ((1, id, 0), (2, id, 22), (1, "stranger", 25), (-1, id, 22)):
        reply = peer.ask(HeartbeatRequest("g", generation, member), version)
        assert (reply.error_code, reply.throttle_time_ms) == (error, 0)
    assert peer.ask(HeartbeatRequest("", 1, id), version).error_code == ErrorCode.INVALID_GROUP_ID
    assert peer.ask(HeartbeatRequest("nowhere", 1, id), version).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_keeps_a_member_alive(desk: Desk, peer: Peer) -> None:
    id = stable(desk, peer)
    for _ in range(5):
        desk.pass_ms(9_000)
        assert peer.ask(HeartbeatRequest("g", 1, id), 4).error_code == 0
    desk.pass_ms(10_000)
    assert peer.ask(HeartbeatRequest("g", 1, id), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
def test_leaving_in_every_version(desk: Desk, peer: Peer, version: int) -> None:
    id = stable(desk, peer)
    if version < 3:
        assert peer.ask(LeaveGroupRequest("g", None, "stranger"), version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert peer.ask(LeaveGroupRequest("g", None, id), version).error_code == 0
    else:
        reply = peer.ask(LeaveGroupRequest("g", [MemberIdentity("stranger", "i"), MemberIdentity(id), MemberIdentity(id)]), version)
        assert reply.error_code == 0
        told = [(one.member_id, one.group_instance_id, one.error_code) for one in reply.members]
        assert told == [("stranger", "i", 25), (id, None, 0), (id, None, 25)]
    assert peer.ask(HeartbeatRequest("g", 1, id), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
def test_leaving_a_group_that_is_not_there_is_an_error_of_each_who_leaves(peer: Peer, version: int) -> None:
    if version < 3:
        assert peer.ask(LeaveGroupRequest("nowhere", None, "me"), version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        return
    reply = peer.ask(LeaveGroupRequest("nowhere", [MemberIdentity("me"), MemberIdentity("", "i")]), version)
    assert (reply.error_code, [(one.member_id, one.error_code) for one in reply.members]) == (0, [("me", 25), ("", 25)])
    assert peer.ask(LeaveGroupRequest("", [MemberIdentity("me")]), version).error_code == ErrorCode.INVALID_GROUP_ID
    assert peer.ask(LeaveGroupRequest("nowhere", []), version).members == []


def test_an_administrator_removes_a_static_member_by_its_instance_and_is_told_what_it_said(desk: Desk, peer: Peer) -> None:
    stable(desk, peer, "i")
    reply = peer.ask(LeaveGroupRequest("g", [MemberIdentity("", "i", "scaled down")]), 5)
    assert [(one.member_id, one.group_instance_id, one.error_code) for one in reply.members] == [("", "i", 0)]
