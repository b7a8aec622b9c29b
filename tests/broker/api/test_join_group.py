"""JoinGroup over a connection: order of checks, and reply fields."""

from __future__ import annotations

import pytest

from broker.api.join_group import java_address
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.join_group import JoinGroupRequest
from tests.coordinator.scenarios import scenario
from tests.support.group_harness import GroupClient, GroupHarness
from tests.support.group_requests import CONSUMER, join_stable_group, joined, joining
from tests.support.headers import encode_request


@scenario("VS-03", "VS-04")
@pytest.mark.parametrize("version", range(10))
def test_a_member_joins_in_every_version(harness: GroupHarness, peer: GroupClient, version: int) -> None:
    request = joining(rebalance=20_000 if version >= 1 else -1)
    peer.send(request, version)
    harness.pass_ms(0)
    reply = peer.reply()
    if version >= 4:
        assert (reply.error_code, reply.generation_id, reply.protocol_type, reply.leader, reply.members) == (79, -1, None, "", [])
        assert reply.protocol_name == (None if version >= 7 else "")
        request.member_id = reply.member_id
        peer.send(request, version)
        harness.pass_ms(0)
        reply = peer.reply()
    assert reply.member_id == reply.leader == "client-id-1"
    assert (reply.error_code, reply.generation_id, reply.protocol_name, reply.skip_assignment) == (0, 1, "range", False)
    assert reply.protocol_type == (CONSUMER if version >= 7 else None)
    assert [(member.member_id, member.group_instance_id, member.metadata) for member in reply.members] == [("client-id-1", None, b"topics")]


@scenario("DJ-41")
def test_join_version_0_has_one_timeout_for_session_and_rebalance(harness: GroupHarness, peer: GroupClient) -> None:
    joined(harness, peer, joining(rebalance=-1), 0)
    (member,) = harness.shards.journal_of("g").shard.groups["g"].members.values()
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (10_000, 10_000)


@scenario("VS-01", "VS-02", "VS-05")
@pytest.mark.parametrize("version", [1, 3, 4, 6, 7, 9])
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
def test_a_refused_join_returns_the_sent_member_id_and_no_generation(
    peer: GroupClient, request_: JoinGroupRequest, error: ErrorCode, id: str, version: int
) -> None:
    reply = peer.ask(request_, version)
    assert (reply.error_code, reply.member_id, reply.generation_id, reply.leader, reply.members) == (error, id, -1, "", [])
    assert (reply.protocol_type, reply.protocol_name) == (None, None if version >= 7 else "")


def test_a_missing_protocol_name_is_null_from_version_7(harness: GroupHarness, peer: GroupClient) -> None:
    reply = joined(harness, peer, joining(protocols=(("", b"x"),)), 9)
    assert (reply.error_code, reply.protocol_name) == (0, None)
    rejoined = joined(harness, peer, joining(id=reply.member_id, protocols=(("", b"x"),)), 6)
    assert (rejoined.error_code, rejoined.protocol_name) == (0, "")


@scenario("VS-06")
def test_instance_ids_of_other_members_are_sent_to_versions_that_have_them(harness: GroupHarness) -> None:
    leader, follower = GroupClient(harness), GroupClient(harness)
    leader.send(joining(instance="a"), 5)
    follower.send(joining(instance="b"), 5)
    harness.pass_ms(0)
    assert sorted(member.group_instance_id for member in leader.reply().members) == ["a", "b"]
    follower.reply()
    leader.send(joining(id="a-id-1"), 4)
    follower.send(joining(id="b-id-2"), 4)
    assert [member.group_instance_id for member in leader.reply().members] == [None, None]


@scenario("VS-07")
def test_skip_assignment_is_sent_to_versions_that_have_it(harness: GroupHarness, peer: GroupClient) -> None:
    old = join_stable_group(harness, peer, "i")
    reply = peer.ask(joining(instance="i"), 8)
    assert (reply.error_code, reply.leader, reply.members, reply.skip_assignment) == (0, old, [], False)
    reply = peer.ask(joining(instance="i"), 9)
    assert (reply.error_code, reply.leader, reply.skip_assignment) == (0, reply.member_id, True)
    assert [member.member_id for member in reply.members] == [reply.member_id]


@scenario("VS-14")
def test_members_of_different_versions_share_a_group(harness: GroupHarness) -> None:
    peers = [GroupClient(harness) for _ in range(3)]
    for peer, version, instance in zip(peers, (3, 5, 9), (None, "a", "b"), strict=True):
        peer.send(joining(instance=instance), version)
    harness.pass_ms(0)
    replies = [peer.reply() for peer in peers]
    assert {(reply.error_code, reply.generation_id, reply.leader) for reply in replies} == {(0, 1, "client-id-1")}
    assert [[member.member_id for member in reply.members] for reply in replies] == [["a-id-2", "b-id-3", "client-id-1"], [], []]  # static members first


@scenario("VS-16")
@pytest.mark.parametrize("version", [10, -1])
def test_unknown_versions_close_the_connection(harness: GroupHarness, peer: GroupClient, version: int) -> None:
    peer.connection.data_received(encode_request(JoinGroupRequest.API_KEY, version, 7, "client", joining().encode(9)))
    harness.loop.run()
    assert (peer.open, peer.reply()) == (False, None)
    assert GroupClient(harness).ask(joining(), 9).error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_a_join_with_a_duplicate_protocol_is_inconsistent(peer: GroupClient) -> None:
    assert peer.ask(joining(protocols=(("range", b"x"), ("range", b"x"))), 9).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("metadata", ["000000000001", "00000000000100036162", "0000ffffffff", "000000000001000361626300000009", ""])
def test_an_unreadable_subscription_does_not_stop_the_group(harness: GroupHarness, peer: GroupClient, metadata: str) -> None:
    assert joined(harness, peer, joining(protocols=(("range", bytes.fromhex(metadata)),))).error_code == 0


def test_a_client_without_an_id_gets_a_member_id_that_begins_with_a_dash(harness: GroupHarness) -> None:
    assert GroupClient(harness, client_id=None).ask(joining(), 9).member_id == "-id-1"


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("127.0.0.1", "/127.0.0.1"),
        ("::1", "/0:0:0:0:0:0:0:1"),
        ("2001:db8::a:0:1f", "/2001:db8:0:0:0:a:0:1f"),
        ("fe80::1%eth0", "/fe80:0:0:0:0:0:0:1%eth0"),
    ],
)
def test_client_hosts_are_formatted_as_by_java(harness: GroupHarness, address: str, host: str) -> None:
    joined(harness, GroupClient(harness, address), joining())
    (group,) = GroupClient(harness).ask(DescribeGroupsRequest(["g"]), 5).groups
    assert [member.client_host for member in group.members] == [java_address(address)] == [host]


def test_a_member_id_too_long_for_a_reply_closes_only_its_connection(harness: GroupHarness, peer: GroupClient) -> None:
    # Each byte that is not UTF-8 is read as U+FFFD, which takes three bytes in the reply.
    request = joining(id="x" * 20_000)
    peer.send(request, 9, request.encode(9).replace(b"x" * 20_000, b"\xff" * 20_000))
    assert not peer.open
    assert GroupClient(harness).ask(joining(), 9).error_code == ErrorCode.MEMBER_ID_REQUIRED
