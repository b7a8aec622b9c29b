"""Rows of sections 1 to 8 that end before the core: versions, authorization and a loading shard, in the request handlers."""

from __future__ import annotations

from typing import Any

import pytest

from broker.security.authorizer import Operation, Resource
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.sync_group import SyncGroupRequest
from tests.coordinator.playbook import T0, row, scenario
from tests.support.group_desk import Desk, Peer, Refusing

LOADING = 14


def join(peer: Peer, desk: Desk, instance: str | None, version: int, session: int = 10_000, rebalance: int = 20_000) -> Any:
    peer.send(JoinGroupRequest("g", session, rebalance, "", instance, "consumer", [JoinGroupRequestProtocol("range", T0)]), version)
    desk.pass_ms(0)
    return peer.reply()


@scenario("DJ-41")
def test_version_0_has_one_timeout_for_session_and_rebalance(desk: Desk, peer: Peer) -> None:
    assert join(peer, desk, None, 0, session=8_000, rebalance=-1).error_code == ErrorCode.NONE
    (member,) = desk.shards.journal_of("g").shard.groups["g"].members.values()
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (8_000, 8_000)


def restarted(desk: Desk, peer: Peer) -> tuple[str, str]:
    """A static member and its replacement, in a stable group."""
    old = join(peer, desk, "ib", 5).member_id
    assert peer.ask(SyncGroupRequest("g", 1, old, "ib", "consumer", "range"), 5).error_code == ErrorCode.NONE
    new = join(peer, desk, "ib", 5).member_id
    assert new != old
    return old, new


@scenario("FE-13")
def test_leave_group_before_version_3_has_one_error_code(desk: Desk, peer: Peer) -> None:
    old, new = restarted(desk, peer)
    assert peer.ask(LeaveGroupRequest("g", None, old), 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert peer.ask(LeaveGroupRequest("g", None, new), 2).error_code == ErrorCode.NONE


@pytest.mark.parametrize(("topic", "error"), [row("FE-22", "nowhere", 3), row("FE-14", "t", ErrorCode.FENCED_INSTANCE_ID)])
def test_a_commit_to_unknown_topics_alone_is_not_fenced(desk: Desk, peer: Peer, topic: str, error: int) -> None:
    old, _ = restarted(desk, peer)
    offsets = [OffsetCommitRequestTopic(topic, [OffsetCommitRequestPartition(0, 5), OffsetCommitRequestPartition(1, 5)])]
    (answer,) = peer.ask(OffsetCommitRequest("g", 1, old, "ib", -1, offsets), 9).topics
    assert [partition.error_code for partition in answer.partitions] == [error, error]


@pytest.mark.parametrize(("type", "protocol"), [row("SY-26", None, "range"), row("SY-26", "consumer", None), row("SY-26", None, None)])
def test_a_sync_without_a_protocol_is_refused_before_authorization(type: str | None, protocol: str | None) -> None:
    authorizer = Refusing((Operation.READ, Resource.GROUP, None))
    peer = Peer(Desk(authorizer))
    assert peer.ask(SyncGroupRequest("g", 1, "me", None, type, protocol), 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not authorizer.checks
    assert peer.ask(SyncGroupRequest("g", 1, "me", None, "consumer", "range"), 5).error_code == 30


@scenario("HB-08")
def test_heartbeats_are_accepted_while_the_partition_loads(desk: Desk, peer: Peer) -> None:
    desk.shards.journal_of("g").refusal = LOADING
    for version in range(5):
        assert peer.ask(HeartbeatRequest("g", 7, "me", "im" if version >= 3 else None), version).error_code == ErrorCode.NONE
