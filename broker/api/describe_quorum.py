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

METADATA_TOPIC: Final = "__cluster_metadata"
SINGLE_NODE_EPOCH: Final = 1  # a single node was elected once


def route(parts: BrokerParts) -> Route:
    return Route(DescribeQuorumRequest, DescribeQuorum(parts).handle, error_response)


class DescribeQuorum:
    def __init__(self, parts: BrokerParts) -> None:
        self._node = parts.node
        self._leaders = parts.leaders
        self._clock = parts.clock
        self._authorizer = parts.authorizer

    def handle(self, call: Call, request: DescribeQuorumRequest) -> Response:
        if not cluster_allowed(self._authorizer, call, Operation.DESCRIBE):
            return error_response(request, call.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        requested = [(topic.topic_name, [partition.partition_index for partition in topic.partitions]) for topic in request.topics]
        if requested != [(METADATA_TOPIC, [0])]:
            topics = [DescribeQuorumResponseTopicData(name, [_no_quorum(index) for index in indexes]) for name, indexes in requested]
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


def _no_quorum(index: int) -> DescribeQuorumResponsePartitionData:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeQuorumResponsePartitionData(index, error, error.message, current_voters=[], observers=[])


def error_response(request: DescribeQuorumRequest, version: int, error: int) -> Response:
    return DescribeQuorumResponse(error_code=error, error_message=ErrorCode(error).message, topics=[], nodes=[])
