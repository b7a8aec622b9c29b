"""Replies of groups leave at once, or after the append they wait for; a failing reply ends only its connection."""

from __future__ import annotations

import pytest

from broker.groups.held_replies import answer_when_all_durable, answer_when_durable
from broker.net.dispatch import Call
from broker.runtime.contain import DEFECTS
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.support.group_harness import GroupClient, GroupHarness
from tests.support.group_requests import committing


@pytest.fixture
def harness() -> GroupHarness:
    return GroupHarness()


def call_of(harness: GroupHarness, peer: GroupClient) -> Call:
    """A call as a handler receives it."""
    route = harness.dispatch.routes[HeartbeatRequest.API_KEY]
    return Call(peer.connection, route, 4, 7, HeartbeatRequest("g", 1, "member"), bytes(16))


def test_a_reply_is_held_only_while_an_append_is_in_flight(harness: GroupHarness) -> None:
    peer = GroupClient(harness)
    journal = harness.shards.journal_of("g")
    reply = HeartbeatResponse(0, 0)
    assert answer_when_durable(journal, call_of(harness, peer), reply) is reply
    log = harness.hold_appends()
    GroupClient(harness).send(committing(), 9)
    assert answer_when_durable(journal, call_of(harness, peer), reply) is None
    assert peer._received == b""
    log.succeed()
    assert peer._received[4:8] == bytes([0, 0, 0, 7])


@pytest.mark.parametrize("journals", [1, 3])
def test_an_unencodable_reply_of_several_partitions_closes_only_its_connection(harness: GroupHarness, journals: int) -> None:
    peer, second_peer = GroupClient(harness), GroupClient(harness)
    harness.hold_appends()
    second_peer.send(committing(), 9)
    parts = [harness.shards.journal_of("g"), *[journal for journal in harness.shards.journals if journal is not harness.shards.journal_of("g")]][:journals]
    answer_when_all_durable(call_of(harness, peer), None, parts, lambda part, error: None)  # type: ignore[arg-type]
    defects = DEFECTS.count
    harness.complete_append()
    assert (DEFECTS.count, peer.open, second_peer.open) == (defects + 1, False, True)
    assert second_peer.reply() is not None


def test_a_refused_part_of_a_reply_is_replaced_by_its_error(harness: GroupHarness) -> None:
    peer, second_peer = GroupClient(harness), GroupClient(harness)
    log = harness.hold_appends()
    second_peer.send(committing(), 9)
    journal = harness.shards.journal_of("g")
    served = next(other_journal for other_journal in harness.shards.journals if other_journal is not journal)
    refused: list[tuple[int, int]] = []
    answer_when_all_durable(call_of(harness, peer), HeartbeatResponse(0, 0), [served, journal], lambda part, error: refused.append((part, error)))
    assert (refused, peer._received) == ([], b"")
    log.refuse()
    assert refused == [(1, ErrorCode.NOT_COORDINATOR)]
    assert peer._received[4:8] == bytes([0, 0, 0, 7])
