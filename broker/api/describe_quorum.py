"""DescribeQuorum: the controller, and the nodes that can become controller.

Kafka's controllers replicate the log `__cluster_metadata`. Here the topic registry replaces that log, and clients cannot read the registry.
The reply names the owner of the registry as leader and the live nodes as voters, with offsets of 0.
"""

from __future__ import annotations

from typing import Final

from broker.api.brokers import brokers_of
from broker.api.parts import BrokerParts
from broker.internal_topics import REGISTRY_LOG_ID
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import LOOKUP_COST
from broker.runtime.node import Address
from broker.security.authorizer import Operation, cluster_allowed
from broker.topics.leaders import NO_NODE
from broker.topics.registry import NO_ID
from protocol.errors import ErrorCode
from protocol.messages import describe_quorum
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    ReplicaState,
)
from protocol.wire import Steps

METADATA_TOPIC: Final = "__cluster_metadata"
SINGLE_NODE_EPOCH: Final = 1  # a single node was elected once


def route(parts: BrokerParts) -> Route:
    return Route(DescribeQuorumRequest, parts.long_requests.handler(DescribeQuorum(parts).handle), error_response)


class DescribeQuorum:
    def __init__(self, parts: BrokerParts) -> None:
        self._node = parts.node
        self._leaders = parts.leaders
        self._clock = parts.clock
        self._authorizer = parts.authorizer

    def handle(self, call: Call, request: DescribeQuorumRequest) -> Steps[Response]:
        if not cluster_allowed(self._authorizer, call, Operation.DESCRIBE):
            return error_response(request, call.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if not _asks_for_quorum(request):
            topics = []
            for requested in request.topics:
                partitions: list[DescribeQuorumResponsePartitionData] = []
                topics.append(DescribeQuorumResponseTopicData(requested.topic_name, partitions))
                yield LOOKUP_COST
                for partition in requested.partitions:
                    partitions.append(_no_quorum(partition.partition_index))
                    yield LOOKUP_COST
            return DescribeQuorumResponse(topics=topics, nodes=[])
        address: Address = call.connection.listener
        voters, controller = brokers_of(self._node, self._leaders, address)
        topic = DescribeQuorumResponseTopicData(METADATA_TOPIC, [self._quorum([voter.id for voter in voters], controller)])
        nodes = [describe_quorum.Node(voter.id, [Listener(address.name, voter.host, voter.port)]) for voter in voters]
        return DescribeQuorumResponse(topics=[topic], nodes=nodes)

    def _quorum(self, voters: list[int], controller: int) -> DescribeQuorumResponsePartitionData:
        error = ErrorCode.LEADER_NOT_AVAILABLE if controller == NO_NODE else ErrorCode.NONE
        now = self._clock.wall
        states = [ReplicaState(voter, NO_ID, 0, now, now) for voter in voters]
        return DescribeQuorumResponsePartitionData(0, error, error.message if error else "", controller, self._epoch(), 0, states, [])

    def _epoch(self) -> int:
        return SINGLE_NODE_EPOCH if self._leaders is None else self._leaders.leader_epoch(REGISTRY_LOG_ID)


def _asks_for_quorum(request: DescribeQuorumRequest) -> bool:
    """Whether the request names the one partition that has a quorum, and nothing else."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return False
    topic = request.topics[0]
    return topic.topic_name == METADATA_TOPIC and topic.partitions[0].partition_index == 0


def _no_quorum(index: int) -> DescribeQuorumResponsePartitionData:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeQuorumResponsePartitionData(index, error, error.message, current_voters=[], observers=[])


def error_response(request: DescribeQuorumRequest, version: int, error: int) -> Response:
    return DescribeQuorumResponse(error_code=error, error_message=ErrorCode(error).message, topics=[], nodes=[])
