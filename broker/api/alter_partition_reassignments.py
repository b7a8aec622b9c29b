"""AlterPartitionReassignments: a partition can only be assigned to the broker that has it."""

from __future__ import annotations

from broker.api.parts import Parts
from broker.api.refused import Refused
from broker.api.replica_assignments import bad_assignment, brokers_there, check_replicas
from broker.net.dispatch import Call, Response, Route
from broker.runtime.node import Node
from broker.security.authorizer import Authorizer, Operation, cluster_allowed
from broker.topics.leaders import Leaders
from broker.topics.registry import Topics
from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from storage import LogId


def route(parts: Parts) -> Route:
    handler = AlterPartitionReassignments(parts.node, parts.leaders, parts.topics, parts.authorizer)
    return Route(AlterPartitionReassignmentsRequest, handler.handle, refuse)


class AlterPartitionReassignments:
    def __init__(self, node: Node, leaders: Leaders | None, topics: Topics, authorizer: Authorizer) -> None:
        self._node = node
        self._leaders = leaders
        self._topics = topics
        self._authorizer = authorizer

    def handle(self, call: Call, request: AlterPartitionReassignmentsRequest) -> Response:
        if not cluster_allowed(self._authorizer, call, Operation.ALTER):
            return refuse(request, call.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if request.timeout_ms <= 0:
            return _no_reassignment(request, ErrorCode.REQUEST_TIMED_OUT, None)
        responses = [
            ReassignableTopicResponse(asked.name, [self._reassigned(asked.name, partition) for partition in asked.partitions])
            for asked in request.topics
        ]
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_message=None if responses else "",
            responses=responses,
        )

    def _reassigned(self, name: str, asked: ReassignablePartition) -> ReassignablePartitionResponse:
        """Accept the current assignment; null replicas would cancel a reassignment, of which there is none."""
        result = ReassignablePartitionResponse(asked.partition_index, ErrorCode.NONE, None)
        topic = self._topics.by_name.get(name)
        try:
            if topic is None:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
            if not 0 <= asked.partition_index < topic.partitions:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{asked.partition_index}.")
            if asked.replicas is None:
                raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
            check_replicas(asked.replicas, brokers_there(self._node, self._leaders))
            if self._leaders is not None and asked.replicas != [self._leaders.leader(LogId(name, asked.partition_index))]:
                raise bad_assignment("The nodes place partitions themselves; `tenure node drain` moves all that a node leads.")
        except Refused as why:
            result.error_code, result.error_message = why.error, why.message
        return result


def _no_reassignment(request: AlterPartitionReassignmentsRequest, error: int, message: str | None) -> Response:
    responses = [
        ReassignableTopicResponse(
            asked.name, [ReassignablePartitionResponse(partition.partition_index, error, message) for partition in asked.partitions]
        )
        for asked in request.topics
    ]
    return AlterPartitionReassignmentsResponse(error_code=error, error_message=message, responses=responses)


def refuse(request: AlterPartitionReassignmentsRequest, version: int, error: int) -> Response:
    return _no_reassignment(request, error, ErrorCode(error).message)
