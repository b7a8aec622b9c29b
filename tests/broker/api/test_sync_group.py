"""SyncGroup over a connection, in every version."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from protocol.messages.sync_group import SyncGroupRequest
from tests.coordinator.scenarios import scenario
from tests.support.group_harness import GroupClient, GroupHarness
from tests.support.group_requests import CONSUMER, join_stable_group, joined, joining, syncing


@scenario("VS-08")
@pytest.mark.parametrize("version", range(6))
def test_a_member_gets_its_assignment_in_every_version(harness: GroupHarness, peer: GroupClient, version: int) -> None:
    id = joined(harness, peer, joining()).member_id
    request = syncing(id, assigned={id: b"mine", "nobody": b"lost"})
    if version < 5:
        request.protocol_type = request.protocol_name = None
    reply = peer.ask(request, version)
    assert (reply.error_code, reply.assignment) == (0, b"mine")
    assert (reply.protocol_type, reply.protocol_name) == ((CONSUMER, "range") if version >= 5 else (None, None))


@scenario("VS-08")
@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_sync_is_fenced_by_its_instance_id(harness: GroupHarness, peer: GroupClient, version: int) -> None:
    join_stable_group(harness, peer, "i")
    request = syncing("other", instance="i")
    if version < 5:
        request.protocol_type = request.protocol_name = None
    assert peer.ask(request, version).error_code == ErrorCode.FENCED_INSTANCE_ID


@scenario("SY-26")
@pytest.mark.parametrize(("kind", "protocol"), [(None, "range"), (CONSUMER, None), (None, None)])
def test_sync_from_version_5_needs_type_and_protocol_even_for_the_empty_group_id(peer: GroupClient, kind: str | None, protocol: str | None) -> None:
    reply = peer.ask(SyncGroupRequest("", 1, "me", None, kind, protocol, []), 5)
    assert reply.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert peer.ask(SyncGroupRequest("", 1, "me"), 4).error_code == ErrorCode.INVALID_GROUP_ID


def test_a_refused_sync_has_no_assignment_and_no_protocol(harness: GroupHarness, peer: GroupClient) -> None:
    id = join_stable_group(harness, peer)
    reply = peer.ask(syncing(id, 2), 5)
    assert (reply.error_code, reply.assignment, reply.protocol_type, reply.protocol_name) == (ErrorCode.ILLEGAL_GENERATION, b"", None, None)


def test_both_syncs_of_a_member_are_answered(harness: GroupHarness, peer: GroupClient) -> None:
    id = join_stable_group(harness, peer)
    restarted, first, second = GroupClient(harness), GroupClient(harness), GroupClient(harness)
    restarted.send(joining(instance="other"), 9)  # now the group waits for its first member
    first.send(joining(id=id, protocols=(("range", b"changed"),)), 9)
    assert (first.reply().generation_id, restarted.reply().generation_id) == (2, 2)
    for connection in (first, second):
        connection.send(syncing("other-id-2", 2, instance="other"), 5)
    assert first.reply().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert second.reply() is None
    restarted.send(joining(instance="third"), 9)  # causes a rebalance
    assert second.reply().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    for connection in (first, second):
        connection.send(joining(id=id), 9)
    reply = first.reply()
    assert (reply.error_code, reply.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert second.reply() is None
