"""Heartbeat over a connection, in every version."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from tests.support.group_desk import Desk, Peer
from tests.support.group_requests import stable


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
