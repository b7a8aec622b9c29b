"""New partitions with several nodes: their leaders, and manual assignments of replicas, through any node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic
from protocol.messages.create_partitions import CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.nodes.cluster import METADATA_VERSION, Nodes

pytestmark = pytest.mark.once

CREATE_TOPICS_VERSION, CREATE_PARTITIONS_VERSION, REASSIGNMENTS_VERSION = 7, 3, 0
TIMEOUT_MS = 10_000


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path_factory.mktemp("nodes") / "data", 2)
    nodes.start()
    yield nodes
    nodes.close()


def created(nodes: Nodes, name: str, *replicas: list[int]) -> tuple[int, str | None]:
    assignments = [CreatableReplicaAssignment(partition, brokers) for partition, brokers in enumerate(replicas)]
    with nodes.client(1) as client:
        reply = client.ask(CreateTopicsRequest([CreatableTopic(name, -1, -1, assignments, [])], TIMEOUT_MS, False), CREATE_TOPICS_VERSION)
    return reply.topics[0].error_code, reply.topics[0].error_message


def grown(nodes: Nodes, name: str, count: int, brokers: list[int]) -> int:
    requested = CreatePartitionsTopic(name, count, [CreatePartitionsAssignment(brokers)])
    with nodes.client(2) as client:
        error: int = client.ask(CreatePartitionsRequest([requested], TIMEOUT_MS, False), CREATE_PARTITIONS_VERSION).results[0].error_code
    return error


def reassigned(nodes: Nodes, name: str, brokers: list[int]) -> int:
    requested = ReassignableTopic(name, [ReassignablePartition(0, brokers)])
    with nodes.client(1) as client:
        reply = client.ask(AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=[requested]), REASSIGNMENTS_VERSION)
    error: int = reply.responses[0].partitions[0].error_code
    return error


def leaders(nodes: Nodes, name: str, node: int = 1) -> list[int]:
    """The leaders of a topic's partitions in an immediate Metadata reply."""
    with nodes.client(node) as client:
        (topic,) = client.ask(MetadataRequest([MetadataRequestTopic(name=name)], False), METADATA_VERSION).topics
    return [partition.leader_id for partition in topic.partitions]


def test_partitions_can_be_assigned_to_any_node_that_is_there(nodes: Nodes) -> None:
    assert created(nodes, "orders", [1], [2], [2]) == (ErrorCode.NONE, None)
    assert grown(nodes, "orders", 4, [1]) == ErrorCode.NONE
    assert grown(nodes, "orders", 5, [2]) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("brokers", "message"),
    [
        ([3], "The manual partition assignment includes broker 3, but no such broker is registered."),
        ([2, 2], "The manual partition assignment includes the broker 2 more than once."),
        ([1, 2], "The manual partition assignment has 2 replicas, and each partition is stored once."),
        ([], "The manual partition assignment includes an empty replica list."),
    ],
)
def test_other_assignments_are_refused(nodes: Nodes, brokers: list[int], message: str) -> None:
    assert created(nodes, "refused", brokers) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def test_a_partition_stays_where_the_nodes_have_placed_it(nodes: Nodes) -> None:
    assert created(nodes, "placed", [1]) == (ErrorCode.NONE, None)
    nodes.await_settled()
    (owner,) = leaders(nodes, "placed")
    assert reassigned(nodes, "placed", [owner]) == ErrorCode.NONE
    assert reassigned(nodes, "placed", [3 - owner]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassigned(nodes, "placed", [7]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("node", [1, 2])
@pytest.mark.parametrize("number", range(5))
def test_the_reply_that_creates_a_topic_names_its_leaders(nodes: Nodes, node: int, number: int) -> None:
    """Some clients look the leaders up only once: kafka-go dials an empty address."""
    name = f"new-{node}-{number}"
    with nodes.client(node) as client:
        (topic,) = client.ask(MetadataRequest([MetadataRequestTopic(name=name)], True), METADATA_VERSION).topics
    assert [partition.error_code for partition in topic.partitions] == [ErrorCode.NONE]
    nodes.await_settled()
    assert leaders(nodes, name) == leaders(nodes, name, 2) == [topic.partitions[0].leader_id]
