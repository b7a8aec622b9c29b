"""AlterPartitionReassignments: accept the current assignment of a partition, and refuse every other."""

from __future__ import annotations

from broker.api.parts import BrokerParts
from broker.api.refused import Refused
from broker.api.replica_assignments import bad_assignment, check_replicas, live_brokers
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import LOOKUP_COST
from broker.security.authorizer import Operation, cluster_allowed
from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from protocol.wire import Steps
from storage import LogId


def route(parts: BrokerParts) -> Route:
    return Route(AlterPartitionReassignmentsRequest, parts.long_requests.handler(AlterPartitionReassignments(parts).handle), error_response)


class AlterPartitionReassignments:
    def __init__(self, parts: BrokerParts) -> None:
        self._node = parts.node
        self._leaders = parts.leaders
        self._topics = parts.topics
        self._authorizer = parts.authorizer

    def handle(self, call: Call, request: AlterPartitionReassignmentsRequest) -> Steps[Response]:
        if not cluster_allowed(self._authorizer, call, Operation.ALTER):
            return error_response(request, call.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if request.timeout_ms <= 0:
            return _no_reassignment(request, ErrorCode.REQUEST_TIMED_OUT, None)
        responses = []
        for topic in request.topics:
            partitions: list[ReassignablePartitionResponse] = []
            responses.append(ReassignableTopicResponse(topic.name, partitions))
            yield LOOKUP_COST
            for partition in topic.partitions:
                partitions.append(self._reassign(topic.name, partition))
                yield LOOKUP_COST
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_message=None if responses else "",
            responses=responses,
        )

    def _reassign(self, name: str, partition: ReassignablePartition) -> ReassignablePartitionResponse:
        """Accept only the current assignment. Null replicas cancel a reassignment, and there is none to cancel."""
        result = ReassignablePartitionResponse(partition.partition_index, ErrorCode.NONE, None)
        topic = self._topics.by_name.get(name)
        try:
            if topic is None:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
            if not 0 <= partition.partition_index < topic.partition_count:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{partition.partition_index}.")
            if partition.replicas is None:
                raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
            check_replicas(partition.replicas, live_brokers(self._node, self._leaders))
            if self._leaders is not None and partition.replicas != [self._leaders.leader(LogId(name, partition.partition_index))]:
                raise bad_assignment("The nodes place partitions themselves; `tenure node drain` moves all partitions that a node leads.")
        except Refused as refused:
            result.error_code, result.error_message = refused.error, refused.message
        return result


def _no_reassignment(request: AlterPartitionReassignmentsRequest, error: int, message: str | None) -> Response:
    responses = [
        ReassignableTopicResponse(
            topic.name, [ReassignablePartitionResponse(partition.partition_index, error, message) for partition in topic.partitions]
        )
        for topic in request.topics
    ]
    return AlterPartitionReassignmentsResponse(error_code=error, error_message=message, responses=responses)


def error_response(request: AlterPartitionReassignmentsRequest, version: int, error: int) -> Response:
    return _no_reassignment(request, error, ErrorCode(error).message)
