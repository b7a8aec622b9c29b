"""Authorization of group requests: each API checks Kafka's rights in Kafka's order, and refuses in its reply format."""

from __future__ import annotations

from typing import Any

import pytest

from broker.security.authorizer import Operation, ResourceType
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics
from protocol.messages.sync_group import SyncGroupRequest
from tests.coordinator.scenarios import scenario
from tests.support.group_harness import GroupClient, GroupHarness, refusing
from tests.support.group_requests import codes_of_commit, committing, fetching, joining

GROUP, TOPIC, CLUSTER = ResourceType.GROUP, ResourceType.TOPIC, ResourceType.CLUSTER
READ, DESCRIBE, DELETE = Operation.READ, Operation.DESCRIBE, Operation.DELETE
GROUP_REFUSED, TOPIC_REFUSED = 30, 29


def peer_refused(*refused: tuple[int, int, str | None]) -> tuple[list[tuple[int, int, str]], GroupClient]:
    """A list that collects the authorization checks from now on, and a peer to which the operations in `refused` are denied."""
    checks: list[tuple[int, int, str]] = []
    return checks, GroupClient(GroupHarness(refusing(*refused, checks=checks)))


def test_members_may_read_their_group_or_are_refused() -> None:
    checks, peer = peer_refused((READ, GROUP, "g"), (READ, GROUP, ""))
    for version in range(10):
        join = peer.ask(joining(id="me", session=1, rebalance=1 if version else -1), version)
        assert (join.error_code, join.member_id, join.generation_id) == (GROUP_REFUSED, "", -1)
        assert join.protocol_name == (None if version >= 7 else "")
    assert peer.ask(SyncGroupRequest("g", 1, "me", None, "t", "n"), 5).error_code == GROUP_REFUSED
    assert peer.ask(HeartbeatRequest("g", 1, "me"), 4).error_code == GROUP_REFUSED
    for version in (2, 5):
        leave = peer.ask(LeaveGroupRequest("g", [MemberIdentity("me")] if version > 2 else None, "me" if version <= 2 else ""), version)
        assert (leave.error_code, leave.members) == (GROUP_REFUSED, [])
    assert set(checks) == {(READ, GROUP, "g")}
    assert peer.ask(joining(group="elsewhere"), 9).error_code == 79


@scenario("SY-26")
def test_authorization_precedes_all_checks_but_the_protocol_fields_of_sync() -> None:
    checks, peer = peer_refused((READ, GROUP, ""))
    assert peer.ask(SyncGroupRequest("", 1, "me"), 5).error_code == 23
    assert checks == []
    assert peer.ask(SyncGroupRequest("", 1, "me"), 4).error_code == GROUP_REFUSED
    assert peer.ask(HeartbeatRequest("", 1, "me"), 4).error_code == GROUP_REFUSED
    assert peer.ask(LeaveGroupRequest("", [MemberIdentity("me")]), 5).error_code == GROUP_REFUSED
    assert peer.ask(joining(group="", session=1), 9).error_code == GROUP_REFUSED


@scenario("OC-19")
def test_a_commit_is_refused_for_its_group_or_for_some_of_its_topics() -> None:
    _, peer = peer_refused((READ, GROUP, "g"))
    assert codes_of_commit(peer.ask(committing(partitions=(0, 9)), 9)) == {("t", 0): GROUP_REFUSED, ("t", 9): GROUP_REFUSED}
    checks, peer = peer_refused((READ, TOPIC, "t"))
    partitions = [OffsetCommitRequestPartition(0, 5), OffsetCommitRequestPartition(9, 5)]
    request = OffsetCommitRequest("g", -1, topics=[OffsetCommitRequestTopic(name, list(partitions)) for name in ("u", "t", "nowhere")])
    codes = codes_of_commit(peer.ask(request, 9))
    assert codes == {("u", 0): 0, ("u", 9): 3, ("t", 0): TOPIC_REFUSED, ("t", 9): TOPIC_REFUSED, ("nowhere", 0): 3, ("nowhere", 9): 3}
    assert checks == [(READ, GROUP, "g"), (READ, TOPIC, "u"), (READ, TOPIC, "t"), (READ, TOPIC, "nowhere")]
    checks.clear()
    codes = codes_of_commit(peer.ask(request, 10))  # the right to a topic that does not exist is not asked for: only its id is known
    assert codes == {("u", 0): 0, ("u", 9): 3, ("t", 0): TOPIC_REFUSED, ("t", 9): TOPIC_REFUSED, ("nowhere", 0): 100, ("nowhere", 9): 100}
    assert checks == [(READ, GROUP, "g"), (READ, TOPIC, "u"), (READ, TOPIC, "t")]
    # If every topic is refused, the generation is not checked.
    assert codes_of_commit(peer.ask(committing(generation=99, id="nobody"), 9)) == {("t", 0): TOPIC_REFUSED}


@scenario("OF-04", "OF-05", "OF-06")
@pytest.mark.parametrize("version", range(1, 11))
def test_a_fetch_is_refused_for_its_group(version: int) -> None:
    """Version 1 has the error on each partition. Kafka's version 1 hides it: the empty success makes a consumer reset its position."""
    checks, peer = peer_refused((DESCRIBE, GROUP, "g"))
    reply = peer.ask(fetching("g", version), version)
    if version == 1:
        assert [partition.error_code for partition in reply.topics[0].partitions] == [GROUP_REFUSED, GROUP_REFUSED]
    else:
        group = reply.groups[0] if version >= 8 else reply
        assert (group.error_code, group.topics) == (GROUP_REFUSED, [])
    assert checks == [(DESCRIBE, GROUP, "g")]


@scenario("OF-06")
def test_a_group_without_describe_right_does_not_fail_the_others() -> None:
    _, peer = peer_refused((DESCRIBE, GROUP, "h"))
    groups = [fetching(name, 8).groups[0] for name in ("g", "h", "i")]
    reply = peer.ask(OffsetFetchRequest(groups), 8)
    assert [(group.group_id, group.error_code, len(group.topics)) for group in reply.groups] == [("g", 0, 1), ("h", GROUP_REFUSED, 0), ("i", 0, 1)]


@scenario("OF-08")
def test_topics_without_describe_right_are_listed_last_or_omitted() -> None:
    _, peer = peer_refused((DESCRIBE, TOPIC, "t"))
    partition = [OffsetCommitRequestPartition(0, 5, -1, "meta")]
    committed = OffsetCommitRequest("g", -1, topics=[OffsetCommitRequestTopic("t", partition), OffsetCommitRequestTopic("u", partition)])
    assert set(codes_of_commit(peer.ask(committed, 9)).values()) == {0}
    for version in (1, 5, 7):
        topics = [OffsetFetchRequestTopic("t", [0]), OffsetFetchRequestTopic("u", [0])]
        codes = [
            (topic.name, partition.committed_offset, partition.committed_leader_epoch, partition.metadata, partition.error_code)
            for topic in peer.ask(OffsetFetchRequest(None, "g", topics), version).topics
            for partition in topic.partitions
        ]
        assert codes == [("u", 5, -1, "meta", 0), ("t", -1, -1, "", TOPIC_REFUSED)]
    explicit = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("t", [0]), OffsetFetchRequestTopics("u", [0])])
    (group,) = peer.ask(OffsetFetchRequest([explicit]), 9).groups
    assert [(topic.name, topic.partitions[0].error_code) for topic in group.topics] == [("u", 0), ("t", TOPIC_REFUSED)]
    (group,) = peer.ask(OffsetFetchRequest([OffsetFetchRequestGroup("g", topics=None)]), 9).groups
    assert (group.error_code, [topic.name for topic in group.topics]) == (0, ["u"])


def test_offset_delete_needs_rights_to_the_group_and_each_topic() -> None:
    every = [OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(0)]) for name in ("t", "u", "nowhere")]
    _, peer = peer_refused((DELETE, GROUP, "g"))
    reply = peer.ask(OffsetDeleteRequest("g", every), 0)
    assert (reply.error_code, reply.topics) == (GROUP_REFUSED, [])
    _, peer = peer_refused((READ, TOPIC, "t"))
    peer.ask(committing(topic="u"), 9)
    reply = peer.ask(OffsetDeleteRequest("g", every), 0)
    assert [(topic.name, topic.partitions[0].error_code) for topic in reply.topics] == [("t", TOPIC_REFUSED), ("nowhere", 3), ("u", 0)]


@scenario("AD-21")
def test_groups_without_describe_right_are_answered_first() -> None:
    _, peer = peer_refused((DESCRIBE, GROUP, "y"))
    for version in range(7):
        groups = peer.ask(DescribeGroupsRequest(["x", "y", "z", "y"], version >= 3), version).groups
        assert [group.group_id for group in groups] == ["y", "y", "x", "z"]
        refused = [(group.error_code, group.group_state, group.protocol_type, group.authorized_operations, group.error_message) for group in groups[:2]]
        assert refused == [(GROUP_REFUSED, "", "", -(1 << 31), None)] * 2


def test_the_authorized_operations_of_a_group_are_sent_on_request() -> None:
    _, peer = peer_refused((DELETE, GROUP, "g"), (Operation.ALTER_CONFIGS, GROUP, None))
    peer.ask(committing(), 9)
    (group,) = peer.ask(DescribeGroupsRequest(["g"], True), 5).groups
    assert group.authorized_operations == 1 << 3 | 1 << 8 | 1 << 10
    (group,) = peer.ask(DescribeGroupsRequest(["g"], False), 5).groups
    assert group.authorized_operations == -(1 << 31)


@scenario("AD-20")
def test_without_the_right_to_the_cluster_only_permitted_groups_are_listed() -> None:
    checks, peer = peer_refused((DESCRIBE, CLUSTER, None), (DESCRIBE, GROUP, "hidden"))
    for name in ("hidden", "shown"):
        peer.ask(committing(name), 9)
    reply = peer.ask(ListGroupsRequest(), 5)
    assert (reply.error_code, [group.group_id for group in reply.groups]) == (0, ["shown"])
    assert (DESCRIBE, CLUSTER, "kafka-cluster") in checks
    _, peer = peer_refused((DESCRIBE, GROUP, "hidden"))
    peer.ask(committing("hidden"), 9)
    assert [group.group_id for group in peer.ask(ListGroupsRequest(), 5).groups] == ["hidden"]


def test_groups_without_delete_right_are_answered_last() -> None:
    _, peer = peer_refused((DELETE, GROUP, "x"))
    for name in ("x", "y"):
        peer.ask(committing(name), 9)
    results = peer.ask(DeleteGroupsRequest(["x", "y", "z", "x"]), 2).results
    assert [(result.group_id, result.error_code) for result in results] == [("y", 0), ("z", 69), ("x", GROUP_REFUSED)]
    assert peer.ask(DescribeGroupsRequest(["x"]), 5).groups[0].group_state == "Empty"


@pytest.mark.parametrize("version", range(7))
def test_without_the_right_to_describe_a_group_its_coordinator_is_not_found(version: int) -> None:
    checks, peer = peer_refused((DESCRIBE, GROUP, "g"), (DESCRIBE, ResourceType.TRANSACTIONAL_ID, "t"))
    for key, kind, error in (("g", 0, GROUP_REFUSED), ("t", 1, 53)) if version >= 1 else (("g", 0, GROUP_REFUSED),):
        reply: Any = peer.ask(FindCoordinatorRequest(key, kind, [key]), version)
        coordinator = reply.coordinators[0] if version >= 4 else reply
        assert (coordinator.error_code, coordinator.node_id, coordinator.host, coordinator.port) == (error, -1, "", -1)
        if version >= 1:
            assert coordinator.error_message
    assert checks[0] == (DESCRIBE, GROUP, "g")


def consumer_joining(*topics: str, regex: str | None = None, member: str = "me") -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest("g", member, 0, None, None, 30_000, list(topics) if regex is None else None, regex, None, [])


def test_a_consumer_member_reads_its_group_and_describes_the_topics_that_it_names() -> None:
    checks, peer = peer_refused((READ, GROUP, "g"))
    assert peer.ask(consumer_joining("t"), 1).error_code == GROUP_REFUSED
    assert checks == [(READ, GROUP, "g")]
    checks, peer = peer_refused((DESCRIBE, TOPIC, "u"))
    assert peer.ask(consumer_joining("t", "u"), 1).error_code == TOPIC_REFUSED
    assert checks == [(READ, GROUP, "g"), (DESCRIBE, TOPIC, "t"), (DESCRIBE, TOPIC, "u")]
    assert peer.ask(consumer_joining("t"), 1).error_code == 0


def test_an_expression_matches_the_topics_that_its_member_may_describe() -> None:
    _, peer = peer_refused((DESCRIBE, TOPIC, "u"))
    joined = peer.ask(consumer_joining(regex="[tu]"), 1)
    assert (joined.error_code, joined.assignment.topic_partitions) == (0, [])
    told = peer.ask(ConsumerGroupHeartbeatRequest("g", "me", joined.member_epoch), 1)
    (group,) = peer.ask(ConsumerGroupDescribeRequest(["g"]), 1).groups
    (member,) = group.members
    assert [topic.topic_name for topic in member.assignment.topic_partitions] == ["t"]
    assert len(told.assignment.topic_partitions) == 1


def test_a_consumer_group_is_described_to_clients_that_may_describe_it_and_all_its_topics() -> None:
    harness = GroupHarness(refusing((DESCRIBE, GROUP, "g")))
    peer = GroupClient(harness)
    peer.ask(consumer_joining("t"), 1)
    groups = peer.ask(ConsumerGroupDescribeRequest(["elsewhere", "g"]), 1).groups
    assert [(group.group_id, group.error_code, group.members) for group in groups] == [("g", GROUP_REFUSED, []), ("elsewhere", 69, [])]
    harness.authorizer.allows = refusing((DESCRIBE, TOPIC, "t")).allows
    (group,) = peer.ask(ConsumerGroupDescribeRequest(["g"]), 1).groups
    assert (group.error_code, group.members, group.group_state) == (TOPIC_REFUSED, [], "")
