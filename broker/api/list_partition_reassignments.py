"""ListPartitionReassignments: always empty, with a single broker."""

from __future__ import annotations

from broker.api.parts import Parts
from broker.net.dispatch import Call, Response, Route
from broker.security.authorizer import Authorizer, Operation, cluster_allowed
from protocol.errors import ErrorCode
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def route(parts: Parts) -> Route:
    handler = ListPartitionReassignments(parts.authorizer)
    return Route(ListPartitionReassignmentsRequest, handler.handle, refuse)


class ListPartitionReassignments:
    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def handle(self, call: Call, request: ListPartitionReassignmentsRequest) -> Response:
        if not cluster_allowed(self._authorizer, call, Operation.DESCRIBE):
            return refuse(request, call.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return ListPartitionReassignmentsResponse(error_message=None, topics=[])


def refuse(request: ListPartitionReassignmentsRequest, version: int, error: int) -> Response:
    topics = [
        OngoingTopicReassignment(asked.name, [OngoingPartitionReassignment(index, [], [], []) for index in asked.partition_indexes])
        for asked in request.topics or []
    ]
    return ListPartitionReassignmentsResponse(0, error, ErrorCode(error).message, topics)
