"""A partition that is loading, suspended, unreadable or owned elsewhere, and a failing or late log: rows of the
conformance catalogue on the replies of each API in these states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coordinator import Fact
from coordinator.facts import group_key
from protocol.messages.consumer_offsets import GroupMetadataValue, MemberMetadata
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from protocol.messages.sync_group import SyncGroupRequest
from protocol.records import with_version
from tests.coordinator.scenarios import row, scenario
from tests.support.group_desk import Desk, Peer
from tests.support.group_requests import codes_of_commit, committing, fetching, joining, refuse_everything, stable
from tests.support.journals import ScriptedLog

LOADING, SUSPENDED, NOT_OURS = 14, 15, 16
Reads = Callable[[Any], Any]


def code(reply: Any) -> Any:
    return reply.error_code


def code_and_rest(reply: Any) -> Any:
    return reply.error_code, getattr(reply, "members", None) or getattr(reply, "groups", [])


def join_reply(reply: Any) -> Any:
    return reply.error_code, reply.member_id, reply.generation_id


def group_code(reply: Any) -> Any:
    (group,) = reply.groups
    return group.error_code


JOIN = joining(id="me")
SYNC = SyncGroupRequest("g", 1, "me", None, "consumer", "range")
BEAT = HeartbeatRequest("g", 1, "me")
LEAVE = LeaveGroupRequest("g", [MemberIdentity("me")])
COMMIT = committing(generation=1, id="me", partitions=(0, 1))
DELETE_OFFSETS = OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])])
DESCRIBE, DELETE = DescribeGroupsRequest(["g"]), DeleteGroupsRequest(["g"])


@pytest.mark.parametrize(
    ("request_", "version", "read", "expected"),
    [
        row("FO-25", JOIN, 9, join_reply, (LOADING, "", -1)),
        row("FO-25", SYNC, 5, code, 27),  # Z6: 14 is fatal to Java's consumer
        row("JR-12", SYNC, 5, code, 27),
        row("FO-25", BEAT, 4, code, 0),
        row("LV-15", LEAVE, 5, code_and_rest, (LOADING, [])),
        row("FO-25", LEAVE, 3, code_and_rest, (LOADING, [])),
        row("FO-25", LeaveGroupRequest("g", None, "me"), 2, code, LOADING),
        row("FO-25", COMMIT, 9, codes_of_commit, {("t", 0): LOADING, ("t", 1): LOADING}),
        row("FO-25", fetching("g", 7), 7, code, LOADING),
        row("FO-25", fetching("g", 9), 9, group_code, LOADING),
        row("FO-25", DELETE_OFFSETS, 0, code, LOADING),
        row("FO-25", DESCRIBE, 5, group_code, LOADING),
        row("FO-25", DELETE, 2, lambda reply: reply.results[0].error_code, LOADING),
        row("FO-25", ListGroupsRequest(), 5, code_and_rest, (LOADING, [])),
    ],
)
def test_each_api_answers_with_its_code_while_a_partition_loads(desk: Desk, peer: Peer, request_: Any, version: int, read: Reads, expected: Any) -> None:
    stable(desk, peer)  # groups loaded elsewhere are not listed either
    refuse_everything(desk, LOADING)
    assert read(peer.ask(request_, version)) == expected


@pytest.mark.parametrize(
    ("request_", "version", "read", "expected"),
    [
        # Z17: Dead is a reply, not a state: a suspended partition answers it.
        row("FO-29", BEAT, 4, code, SUSPENDED),
        row("FO-29", JOIN, 9, join_reply, (SUSPENDED, "", -1)),
        row("FO-29", joining(), 9, join_reply, (SUSPENDED, "", -1)),
        row("FO-29", SYNC, 5, code, SUSPENDED),
        row("LV-16", LEAVE, 5, code_and_rest, (SUSPENDED, [])),
        row("OC-24", COMMIT, 9, codes_of_commit, {("t", 0): SUSPENDED, ("t", 1): SUSPENDED}),
        # Z19: a fetch answers 16, as Java's consumers before 3.9 fail on 15.
        row("FO-29", fetching("g", 7), 7, code, NOT_OURS),
        row("FO-29", DESCRIBE, 5, group_code, SUSPENDED),
        row("FO-29", ListGroupsRequest(), 5, code_and_rest, (SUSPENDED, [])),
    ],
)
def test_each_api_answers_with_its_code_while_a_partition_is_suspended(desk: Desk, peer: Peer, request_: Any, version: int, read: Reads, expected: Any) -> None:
    log = desk.hold_appends()
    writer = Peer(desk)
    writer.send(committing(), 9)
    log.refuse()
    desk.loop.run()
    assert codes_of_commit(writer.reply()) == {("t", 0): NOT_OURS}
    assert read(peer.ask(request_, version)) == expected


def twice(id: str) -> MemberMetadata:
    return MemberMetadata(id, "instance", "c", "/127.0.0.1", 5_000, 10_000, b"", b"")


TWO_OF_ONE_INSTANCE = with_version(GroupMetadataValue("consumer", 7, "range", "a", -1, [twice("a"), twice("b")]), 3)


@pytest.mark.parametrize(
    "fact", [row("FO-18", (group_key("g"), TWO_OF_ONE_INSTANCE)), row("FO-23", (group_key("g"), b"\0\3\0")), row("FO-23", (b"\0", b""))]
)
def test_an_unreadable_offsets_partition_has_no_coordinator(monkeypatch: pytest.MonkeyPatch, fact: Fact) -> None:
    monkeypatch.setattr(ScriptedLog, "replay", lambda log: iter([[fact]]))
    peer = Peer(Desk())
    assert peer.ask(BEAT, 4).error_code == NOT_OURS
    assert join_reply(peer.ask(joining(), 9)) == (NOT_OURS, "", -1)
    assert peer.ask(SYNC, 5).error_code == NOT_OURS
    assert codes_of_commit(peer.ask(committing(), 9)) == {("t", 0): NOT_OURS}
    assert code_and_rest(peer.ask(ListGroupsRequest(), 5)) == (0, [])


def another_partition(desk: Desk, group: str) -> str:
    """A group of a partition owned elsewhere."""
    return next(name for name in (f"{group}{number}" for number in range(1_000)) if desk.shards.journal_of(name) is not desk.shards.journal_of(group))


@scenario("OF-07")
def test_an_offset_fetch_to_the_wrong_coordinator_is_refused(desk: Desk, peer: Peer) -> None:
    peer.ask(committing("x"), 9)
    y = another_partition(desk, "x")
    desk.shards.journal_of(y).unload(lambda: None)
    request = OffsetFetchRequest(fetching("x", 8).groups + fetching(y, 8).groups)
    readable, theirs = peer.ask(request, 8).groups
    assert (readable.group_id, readable.error_code, readable.topics[0].partitions[0].committed_offset) == ("x", 0, 5)
    assert (theirs.group_id, theirs.error_code, theirs.topics) == (y, NOT_OURS, [])


@scenario("AD-10")
def test_deleting_groups_at_the_wrong_coordinator_is_refused(desk: Desk, peer: Peer) -> None:
    y = another_partition(desk, "x")
    for group in ("x", y):
        peer.ask(committing(group), 9)
    desk.shards.journal_of(y).unload(lambda: None)
    results = peer.ask(DeleteGroupsRequest([y, "x"]), 2).results
    assert {result.group_id: result.error_code for result in results} == {"x": 0, y: NOT_OURS}


@scenario("AF-12")
@pytest.mark.parametrize(("version", "stable_only"), [(5, False), (7, False), (7, True)])
def test_an_offset_fetch_held_by_a_failing_append_gets_not_coordinator(desk: Desk, version: int, stable_only: bool) -> None:
    log = desk.hold_appends()
    writer, reader = Peer(desk), Peer(desk)
    writer.send(committing(), 9)
    reader.send(OffsetFetchRequest(None, "g", [OffsetFetchRequestTopic("t", [0])], stable_only), version)
    assert reader.reply() is None
    log.refuse()
    desk.loop.run()
    assert code_and_topics(reader.reply()) == (NOT_OURS, [])


def code_and_topics(reply: Any) -> Any:
    return reply.error_code, reply.topics


@scenario("AF-12", "AF-09")
def test_requests_held_by_a_late_append_are_answered(desk: Desk, peer: Peer) -> None:
    """Z17: a late append is answered with 15 and not undone. Z19: a fetch gets 16."""
    desk.hold_appends()
    writer, reader = Peer(desk), Peer(desk)
    writer.send(committing(), 9)
    reader.send(fetching("g", 7), 7)
    desk.pass_ms(4_999)
    assert writer.reply() is None
    desk.pass_ms(1)
    assert codes_of_commit(writer.reply()) == {("t", 0): SUSPENDED}
    assert code_and_topics(reader.reply()) == (NOT_OURS, [])
    desk.append_succeeds()
    assert peer.ask(fetching("g", 7), 7).topics[0].partitions[0].committed_offset == 5


@scenario("HB-13", "LV-03")
@pytest.mark.parametrize("asks", [BEAT, LEAVE, DESCRIBE, ListGroupsRequest(), joining(session=1)], ids=lambda request: type(request).__name__)
def test_every_reply_waits_for_the_appends_of_its_partition(desk: Desk, asks: Any) -> None:
    desk.hold_appends()
    Peer(desk).send(committing(), 9)
    waiting = Peer(desk)
    waiting.send(asks, 4)
    assert waiting.reply() is None
    desk.append_succeeds()
    assert waiting.reply() is not None


@scenario("FO-26", "FO-27")
def test_members_parked_when_a_partition_is_unloaded_get_not_coordinator(desk: Desk, peer: Peer) -> None:
    stable(desk, peer)
    parked = Peer(desk)
    parked.send(joining(instance="new"), 9)
    assert parked.reply() is None
    unloads: list[bool] = []
    desk.shards.journal_of("g").unload(lambda: unloads.append(True))
    desk.loop.run()
    assert unloads == [True]
    reply = parked.reply()
    assert (reply.error_code, reply.member_id) == (NOT_OURS, "new-id-2")
    assert peer.ask(BEAT, 4).error_code == NOT_OURS
