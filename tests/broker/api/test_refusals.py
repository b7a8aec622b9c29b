"""Replies of each API while its partition is loading, suspended or owned by another node, after a failed append, and after a defect of ours."""

from __future__ import annotations

from typing import Any

import pytest

from broker.api.sync_group import ParkedSync
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest
from protocol.messages.sync_group import SyncGroupRequest
from tests.coordinator.scenarios import scenario
from tests.support.group_harness import Defective, GroupClient, GroupHarness
from tests.support.group_requests import (
    codes_of_commit,
    committing,
    fetching,
    join_stable_group,
    joined,
    joining,
    refuse_everything,
    syncing,
)

LOADING, SUSPENDED, NOT_OURS = 14, 15, 16


# Loading, suspended, owned by another node


@scenario("FO-25", "FO-29", "HB-08", "LV-15", "LV-16", "OC-24")
@pytest.mark.parametrize("refusal", [LOADING, SUSPENDED, NOT_OURS])
def test_each_api_reports_a_loading_partition(harness: GroupHarness, peer: GroupClient, refusal: int) -> None:
    """Unlike in Kafka, a SyncGroup gets 27 and not 14 while the partition loads: 14 is fatal to Java's consumer."""
    refuse_everything(harness, refusal)
    for version in range(10):
        join = peer.ask(joining(id="me", rebalance=1 if version else -1), version)
        assert (join.error_code, join.member_id, join.generation_id, join.members) == (refusal, "", -1, [])
        assert (join.protocol_type, join.protocol_name) == (None, None if version >= 7 else "")
    for version in range(6):
        sync = peer.ask(SyncGroupRequest("g", 1, "me", None, *(("t", "n") if version >= 5 else (None, None))), version)
        assert (sync.error_code, sync.assignment) == (27 if refusal == LOADING else refusal, b"")
        leave = peer.ask(LeaveGroupRequest("g", [MemberIdentity("me")] if version >= 3 else None, "" if version >= 3 else "me"), version)
        assert (leave.error_code, leave.members) == (refusal, [])
    for version in range(5):
        assert peer.ask(HeartbeatRequest("g", 1, "me"), version).error_code == (0 if refusal == LOADING else refusal)
    for version in range(2, 11):
        assert codes_of_commit(peer.ask(committing(partitions=(0, 2)), version)) == {("t", 0): refusal, ("t", 2): refusal}
    assert peer.ask(OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])]), 0).error_code == refusal
    for version in range(7):
        (group,) = peer.ask(DescribeGroupsRequest(["g"], version >= 3), version).groups
        assert (group.error_code, group.group_id, group.group_state, group.members, group.authorized_operations) == (refusal, "g", "", [], -(1 << 31))
    for version in range(4):
        results = peer.ask(DeleteGroupsRequest(["g", "h", "g"]), version).results
        assert [(result.group_id, result.error_code) for result in results] == [("g", refusal), ("h", refusal)]


@scenario("FO-25", "FO-29")
@pytest.mark.parametrize("refusal", [LOADING, SUSPENDED, NOT_OURS])
def test_an_offset_fetch_is_never_answered_coordinator_not_available(harness: GroupHarness, peer: GroupClient, refusal: int) -> None:
    """Java's consumers before 3.9 fail on 15."""
    refuse_everything(harness, refusal)
    expected = LOADING if refusal == LOADING else NOT_OURS
    (topic,) = peer.ask(fetching("g", 1), 1).topics  # version 1 has an error only on each partition
    partitions = [(partition.partition_index, partition.committed_offset, partition.metadata, partition.error_code) for partition in topic.partitions]
    assert partitions == [(0, -1, "", expected), (1, -1, "", expected)]
    for version in range(2, 8):
        reply = peer.ask(fetching("g", version), version)
        assert (reply.error_code, reply.topics) == (expected, [])
    for version in (8, 9, 10):
        (group,) = peer.ask(fetching("g", version), version).groups
        assert (group.group_id, group.error_code, group.topics) == ("g", expected, [])


@pytest.mark.parametrize("refusal", [LOADING, SUSPENDED, NOT_OURS])
def test_errors_independent_of_the_group_precede_loading(harness: GroupHarness, peer: GroupClient, refusal: int) -> None:
    refuse_everything(harness, refusal)
    join = peer.ask(joining(group="", id="me", session=1), 9)
    assert (join.error_code, join.member_id) == (ErrorCode.INVALID_GROUP_ID, "me")
    for session in (5_999, 1_800_001):
        join = peer.ask(joining(id="me", session=session), 9)
        assert (join.error_code, join.member_id) == (ErrorCode.INVALID_SESSION_TIMEOUT, "me")
    assert peer.ask(joining(id="me", session=6_000), 9).error_code == refusal
    assert peer.ask(SyncGroupRequest("", 1, "me"), 4).error_code == ErrorCode.INVALID_GROUP_ID
    assert peer.ask(SyncGroupRequest("g", 1, "me"), 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert peer.ask(HeartbeatRequest("", 1, "me"), 4).error_code == ErrorCode.INVALID_GROUP_ID
    assert peer.ask(LeaveGroupRequest("", [MemberIdentity("me")]), 5).error_code == ErrorCode.INVALID_GROUP_ID
    assert peer.ask(OffsetDeleteRequest("", []), 0).error_code == ErrorCode.INVALID_GROUP_ID
    # OffsetCommit and OffsetFetch accept an empty group id. A commit to unknown partitions is answered without the group.
    assert codes_of_commit(peer.ask(committing(group=""), 9)) == {("t", 0): refusal}
    assert codes_of_commit(peer.ask(committing(topic="nowhere"), 9)) == {("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert codes_of_commit(peer.ask(committing(partitions=(0, 3)), 9)) == {("t", 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ("t", 0): refusal}


@scenario("FO-25", "FO-29")
def test_list_groups_is_complete_or_an_error(harness: GroupHarness, peer: GroupClient) -> None:
    join_stable_group(harness, peer)
    other_journal = harness.shards.journals[(harness.shards.journal_of("g").partition + 1) % len(harness.shards.journals)]
    for version in range(6):
        for refusal in (LOADING, SUSPENDED):
            other_journal.refusal = refusal
            reply = peer.ask(ListGroupsRequest(), version)
            assert (reply.error_code, reply.groups) == (refusal, [])
        other_journal.refusal = NOT_OURS  # the node that owns the other partition lists the groups of that partition
        reply = peer.ask(ListGroupsRequest(), version)
        assert (reply.error_code, [group.group_id for group in reply.groups]) == (0, ["g"])


def test_a_coordinator_is_found_while_it_loads(harness: GroupHarness, peer: GroupClient) -> None:
    refuse_everything(harness, LOADING)
    (coordinator,) = peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators
    assert (coordinator.error_code, coordinator.node_id) == (0, 1)


# Appends in flight


# A request of each API that depends on group "g".
REQUESTS: dict[str, tuple[Any, int]] = {
    "join": (joining(), 9),
    "refused join": (joining(session=1), 9),
    "commit": (committing(), 9),
    "commit of some": (committing(partitions=(0, 9)), 9),
    "heartbeat": (HeartbeatRequest("g", 1, "nobody"), 4),
    "sync": (SyncGroupRequest("g", 1, "nobody", None, "t", "n"), 5),
    "leave": (LeaveGroupRequest("g", [MemberIdentity("nobody")]), 5),
    "leave alone": (LeaveGroupRequest("g", None, "nobody"), 2),
    "old fetch": (fetching("g", 1), 1),
    "fetch": (fetching("g", 7), 7),
    "stable fetch": (OffsetFetchRequest(None, "g", fetching("g", 7).topics, True), 7),
    "fetches": (OffsetFetchRequest([*fetching("elsewhere", 8).groups, *fetching("g", 8).groups]), 8),
    "describe": (DescribeGroupsRequest(["g", "elsewhere"]), 6),
    "list": (ListGroupsRequest(), 5),
    "offset delete": (OffsetDeleteRequest("g", []), 0),
    "delete": (DeleteGroupsRequest(["elsewhere", "g"]), 2),
}


@scenario("AD-16", "HB-13", "LV-03", "OF-09")
def test_each_reply_waits_for_the_commit_before_it(harness: GroupHarness, peer: GroupClient) -> None:
    log = harness.hold_appends()
    peers = {name: GroupClient(harness) for name in REQUESTS}
    for name, (request, version) in REQUESTS.items():
        peers[name].send(request, version)
        assert peers[name].reply() is None, name
    while log.pending:
        harness.complete_append()
    replies = {name: client.reply() for name, client in peers.items()}
    assert all(replies.values())
    assert replies["join"].error_code == ErrorCode.MEMBER_ID_REQUIRED
    for topics in (replies["fetch"].topics, replies["stable fetch"].topics, replies["fetches"].groups[1].topics):
        assert topics[0].partitions[0].committed_offset == 5
    assert [(group.group_id, group.group_state) for group in replies["describe"].groups] == [("g", "Empty"), ("elsewhere", "Dead")]
    assert [(result.group_id, result.error_code) for result in replies["delete"].results] == [("elsewhere", 69), ("g", 0)]


@scenario("FE-22")
def test_a_commit_to_only_unknown_topics_does_not_wait_for_the_log(harness: GroupHarness, peer: GroupClient) -> None:
    harness.log_of("g").immediate = False
    GroupClient(harness).send(committing(), 9)
    assert codes_of_commit(peer.ask(committing(topic="nowhere", partitions=(0, 1)), 9)) == {("nowhere", 0): 3, ("nowhere", 1): 3}
    assert peer.ask(OffsetCommitRequest("g", -1, "", None, -1, []), 9).topics == []


@scenario("AD-10", "AF-12", "OF-07")
def test_a_failed_append_fails_held_replies_and_later_requests(harness: GroupHarness, peer: GroupClient) -> None:
    log = harness.hold_appends()
    assert harness.shards.journal_of("g") is not harness.shards.journal_of("elsewhere")
    peers = {name: GroupClient(harness) for name in REQUESTS}
    for name, (request, version) in REQUESTS.items():
        peers[name].send(request, version)
    log.refuse()
    harness.loop.run()
    replies = {name: client.reply() for name, client in peers.items()}
    assert (replies["join"].error_code, replies["join"].member_id, replies["join"].generation_id) == (NOT_OURS, "", -1)
    assert codes_of_commit(replies["commit"]) == {("t", 0): NOT_OURS}
    assert codes_of_commit(replies["commit of some"]) == {("t", 9): 3, ("t", 0): NOT_OURS}
    for name in ("heartbeat", "sync", "leave", "leave alone", "fetch", "stable fetch", "offset delete"):
        assert replies[name].error_code == NOT_OURS, name
    assert replies["leave"].members == []
    assert [partition.error_code for partition in replies["old fetch"].topics[0].partitions] == [NOT_OURS, NOT_OURS]
    assert [(group.group_id, group.error_code, len(group.topics)) for group in replies["fetches"].groups] == [("elsewhere", 0, 1), ("g", NOT_OURS, 0)]
    assert [(group.group_id, group.error_code) for group in replies["describe"].groups] == [("g", NOT_OURS), ("elsewhere", 69)]
    assert (replies["list"].error_code, replies["list"].groups) == (SUSPENDED, [])
    assert [(result.group_id, result.error_code) for result in replies["delete"].results] == [("elsewhere", 69), ("g", NOT_OURS)]
    assert peer.ask(HeartbeatRequest("g", 1, "nobody"), 4).error_code == SUSPENDED
    assert peer.ask(HeartbeatRequest("elsewhere", 1, "nobody"), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@scenario("AF-09", "AF-12")
def test_requests_held_by_a_late_append_are_answered(harness: GroupHarness, peer: GroupClient) -> None:
    """When an append is late, commits get 15, and an OffsetFetch that waits for the append gets 16. The append is not undone."""
    harness.hold_appends()
    writer, reader = GroupClient(harness), GroupClient(harness)
    writer.send(committing(), 9)
    reader.send(fetching("g", 7), 7)
    harness.pass_ms(4_999)
    assert writer.reply() is None
    harness.pass_ms(1)
    assert codes_of_commit(writer.reply()) == {("t", 0): SUSPENDED}
    late_reply = reader.reply()
    assert (late_reply.error_code, late_reply.topics) == (NOT_OURS, [])
    harness.complete_append()
    assert peer.ask(fetching("g", 7), 7).topics[0].partitions[0].committed_offset == 5


@scenario("FO-26", "FO-27")
def test_members_parked_when_a_partition_is_unloaded_get_not_coordinator(harness: GroupHarness, peer: GroupClient) -> None:
    join_stable_group(harness, peer)
    parked = GroupClient(harness)
    parked.send(joining(instance="new"), 9)
    assert parked.reply() is None
    unloads: list[bool] = []
    harness.shards.journal_of("g").unload(lambda: unloads.append(True))
    harness.loop.run()
    assert unloads == [True]
    reply = parked.reply()
    assert (reply.error_code, reply.member_id) == (NOT_OURS, "new-id-2")
    assert peer.ask(HeartbeatRequest("g", 1, "me"), 4).error_code == NOT_OURS


# Defects


@pytest.mark.plain
@pytest.mark.parametrize(
    ("call", "message", "version"),
    [
        ("join", joining(), 9),
        ("sync", syncing("nobody"), 5),
        ("heartbeat", HeartbeatRequest("g", 1, "nobody"), 4),
        ("leave", LeaveGroupRequest("g", [MemberIdentity("nobody")]), 5),
        ("commit", committing(), 9),
        ("delete_offsets", OffsetDeleteRequest("g", []), 0),
        ("delete", DeleteGroupsRequest(["g"]), 2),
    ],
    ids=str,
)
def test_a_defect_is_answered_once_and_its_partition_is_reloaded(
    harness: GroupHarness, peer: GroupClient, monkeypatch: pytest.MonkeyPatch, call: str, message: Any, version: int
) -> None:
    join_stable_group(harness, peer)
    parked = GroupClient(harness)
    parked.send(joining(instance="new"), 9)
    journal = harness.shards.journal_of("g")

    monkeypatch.setattr(journal, "shard", Defective(journal.shard, call))
    reply = peer.ask(message, version)
    monkeypatch.undo()
    if call == "commit":
        assert codes_of_commit(reply) == {("t", 0): -1}
    elif call == "delete":
        assert [result.error_code for result in reply.results] == [-1]
    else:
        assert reply.error_code == -1
    assert peer.reply() is None
    assert (parked.reply().error_code, parked.reply()) == (NOT_OURS, None)
    # The partition has been loaded again, from a log without records.
    assert peer.ask(joining(), 9).error_code == ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.plain
@pytest.mark.parametrize("when", ["before it is parked", "after it was parked", "after it was answered"])
def test_a_join_that_ends_in_a_defect_is_answered_once(harness: GroupHarness, peer: GroupClient, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    journal = harness.shards.journal_of("g")
    monkeypatch.setattr(journal, "shard", Defective(journal.shard, "join", when != "before it is parked"))
    # A JoinGroup with an unknown member id is answered at once, before the planted exception.
    answered = when == "after it was answered"
    peer.send(joining(id="stranger" if answered else "", instance="i"), 9)
    assert peer.reply().error_code == (ErrorCode.UNKNOWN_MEMBER_ID if answered else -1)
    assert peer.reply() is None
    monkeypatch.undo()
    assert joined(harness, peer, joining(instance="i")).error_code == 0


@pytest.mark.plain
def test_requests_of_a_failed_step_are_answered(harness: GroupHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    leader, *followers = members = [GroupClient(harness) for _ in range(3)]
    for number, member in enumerate(members, 1):
        member.send(joining(instance=f"m{number}"), 9)
    harness.pass_ms(0)
    assert [member.reply().generation_id for member in members] == [1, 1, 1]
    for number, member in enumerate(followers, 2):
        member.send(syncing(f"m{number}-id-{number}", instance=f"m{number}"), 5)
    slot = vars(ParkedSync)["reply"]
    defects = iter([None, None, None, RuntimeError("a defect")])  # the reply to the leader is built, two members are answered, then this

    def set_reply(waiter: ParkedSync, reply: Any) -> None:
        for defect in defects:
            if defect is not None:
                raise defect
            break
        slot.__set__(waiter, reply)

    with monkeypatch.context() as patched:
        patched.setattr(ParkedSync, "reply", property(slot.__get__, set_reply))
        leader.send(syncing("m1-id-1", assigned={"m1-id-1": b""}, instance="m1"), 5)
    # The failed SyncGroup had built replies for the first two members only. Its records are void, so no member gets an assignment.
    assert [member.reply().error_code for member in members] == [-1, NOT_OURS, NOT_OURS]
    assert [member.reply() for member in members] == [None, None, None]
