"""ListPartitionReassignments: always empty, since each partition is stored once."""

from __future__ import annotations

from broker.api.parts import BrokerParts
from broker.net.dispatch import Call, Response, Route
from broker.security.authorizer import Operation, cluster_allowed
from protocol.errors import ErrorCode
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def route(parts: BrokerParts) -> Route:
    return Route(ListPartitionReassignmentsRequest, ListPartitionReassignments(parts).handle, error_response)


class ListPartitionReassignments:
    def __init__(self, parts: BrokerParts) -> None:
        self._authorizer = parts.authorizer

    def handle(self, call: Call, request: ListPartitionReassignmentsRequest) -> Response:
        if not cluster_allowed(self._authorizer, call, Operation.DESCRIBE):
            return error_response(request, call.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return ListPartitionReassignmentsResponse(error_message=None, topics=[])


def error_response(request: ListPartitionReassignmentsRequest, version: int, error: int) -> Response:
    topics = [
        OngoingTopicReassignment(topic.name, [OngoingPartitionReassignment(index, [], [], []) for index in topic.partition_indexes])
        for topic in request.topics or []
    ]
    return ListPartitionReassignmentsResponse(0, error, ErrorCode(error).message, topics)
