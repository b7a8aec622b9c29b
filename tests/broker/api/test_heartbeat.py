"""Heartbeat over a connection, in every version."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from tests.support.group_harness import GroupClient, GroupHarness
from tests.support.group_requests import join_stable_group


@pytest.mark.parametrize("version", range(5))
def test_heartbeats_in_every_version(harness: GroupHarness, peer: GroupClient, version: int) -> None:
    id = join_stable_group(harness, peer)
    for generation, member, error in ((1, id, 0), (2, id, 22), (1, "stranger", 25), (-1, id, 22)):
        reply = peer.ask(HeartbeatRequest("g", generation, member), version)
        assert (reply.error_code, reply.throttle_time_ms) == (error, 0)
    assert peer.ask(HeartbeatRequest("", 1, id), version).error_code == ErrorCode.INVALID_GROUP_ID
    assert peer.ask(HeartbeatRequest("nowhere", 1, id), version).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_keeps_a_member_alive(harness: GroupHarness, peer: GroupClient) -> None:
    id = join_stable_group(harness, peer)
    for _ in range(5):
        harness.pass_ms(9_000)
        assert peer.ask(HeartbeatRequest("g", 1, id), 4).error_code == 0
    harness.pass_ms(10_000)
    assert peer.ask(HeartbeatRequest("g", 1, id), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
