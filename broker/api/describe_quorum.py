"""DescribeQuorum: this broker is the only voter.

Kafka's controllers replicate the log `__cluster_metadata`. The topic registry takes its place here, and clients cannot read it. The
reply names this broker as leader, with offsets of 0.
"""

from __future__ import annotations

from typing import Final

from broker.api.parts import BrokerParts
from broker.net.dispatch import Call, Response, Route
from broker.runtime.node import Address
from broker.security.authorizer import Operation, cluster_allowed
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


def route(parts: BrokerParts) -> Route:
    return Route(DescribeQuorumRequest, DescribeQuorum(parts).handle, error_response)


class DescribeQuorum:
    def __init__(self, parts: BrokerParts) -> None:
        self._node = parts.node
        self._clock = parts.clock
        self._authorizer = parts.authorizer

    def handle(self, call: Call, request: DescribeQuorumRequest) -> Response:
        if not cluster_allowed(self._authorizer, call, Operation.DESCRIBE):
            return error_response(request, call.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        requested = [(topic.topic_name, [partition.partition_index for partition in topic.partitions]) for topic in request.topics]
        known = requested == [(METADATA_TOPIC, [0])]
        describe = self._quorum if known else _no_quorum
        topics = [DescribeQuorumResponseTopicData(name, [describe(index) for index in indexes]) for name, indexes in requested]
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


def error_response(request: DescribeQuorumRequest, version: int, error: int) -> Response:
    return DescribeQuorumResponse(error_code=error, error_message=ErrorCode(error).message, topics=[], nodes=[])
