"""DescribeQuorum: this broker is the only voter.

Kafka's controllers replicate the log `__cluster_metadata`. Here the topic registry takes its place; clients cannot read that, so
the reply names this broker as leader, with offsets of 0.
"""

from __future__ import annotations

from typing import Final

from broker.api.parts import Parts
from broker.net.dispatch import Call, Response, Route
from broker.runtime.clock import Clock
from broker.runtime.node import Address, Node
from broker.security.authorizer import Authorizer, Operation, cluster_allowed
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
QUORUM_EPOCH = 1  # a quorum of one elects once


def route(parts: Parts) -> Route:
    handler = DescribeQuorum(parts.node, parts.clock, parts.authorizer)
    return Route(DescribeQuorumRequest, handler.handle, refuse)


class DescribeQuorum:
    def __init__(self, node: Node, clock: Clock, authorizer: Authorizer) -> None:
        self._node = node
        self._clock = clock
        self._authorizer = authorizer

    def handle(self, call: Call, request: DescribeQuorumRequest) -> Response:
        if not cluster_allowed(self._authorizer, call, Operation.DESCRIBE):
            return refuse(request, call.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        asked = [(topic.topic_name, [partition.partition_index for partition in topic.partitions]) for topic in request.topics]
        known = asked == [(METADATA_TOPIC, [0])]
        describe = self._quorum if known else _no_quorum
        topics = [DescribeQuorumResponseTopicData(name, [describe(index) for index in indices]) for name, indices in asked]
        address: Address = call.connection.listener
        nodes = [describe_quorum.Node(self._node.id, [Listener(address.name, address.host, address.port)])] if known else []
        return DescribeQuorumResponse(topics=topics, nodes=nodes)

    def _quorum(self, index: int) -> DescribeQuorumResponsePartitionData:
        now, id = self._clock.wall, self._node.id
        voter = ReplicaState(id, NO_ID, 0, now, now)
        return DescribeQuorumResponsePartitionData(index, ErrorCode.NONE, "", id, QUORUM_EPOCH, 0, [voter], [])


def _no_quorum(index: int) -> DescribeQuorumResponsePartitionData:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeQuorumResponsePartitionData(index, error, error.message, current_voters=[], observers=[])


def refuse(request: DescribeQuorumRequest, version: int, error: int) -> Response:
    return DescribeQuorumResponse(error_code=error, error_message=ErrorCode(error).message, topics=[], nodes=[])
