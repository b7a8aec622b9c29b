"""ListGroups: the groups of all serving partitions of __consumer_offsets."""

from __future__ import annotations

from typing import Final

from broker.api.parts import BrokerParts
from broker.groups.group_journal import GroupJournal
from broker.groups.held_replies import answer_when_all_durable
from broker.net.dispatch import Call, Response, Route
from broker.security.authorizer import Operation, cluster_allowed, group_allowed
from protocol.errors import ErrorCode
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

CLASSIC: Final = "classic"


def route(parts: BrokerParts) -> Route:
    return Route(ListGroupsRequest, ListGroups(parts).handle, error_response)


class ListGroups:
    def __init__(self, parts: BrokerParts) -> None:
        self._shards = parts.shards
        self._authorizer = parts.authorizer

    def handle(self, call: Call, request: ListGroupsRequest) -> Response | None:
        serving: list[GroupJournal] = []
        for journal in self._shards.journals:
            if not journal.refusal:
                serving.append(journal)
            elif journal.refusal != ErrorCode.NOT_COORDINATOR:
                return ListGroupsResponse(0, journal.refusal)
        states = {state.strip().lower() for state in request.states_filter}
        types = {kind.lower() for kind in request.types_filter}
        authorizer = self._authorizer
        may_describe_all = cluster_allowed(authorizer, call, Operation.DESCRIBE)
        reply = ListGroupsResponse(0, ErrorCode.NONE)
        if not types or CLASSIC in types:
            reply.groups = [
                ListedGroup(group.group_id, group.protocol_type, group.state, CLASSIC)
                for journal in serving
                for group in journal.shard.listed()
                if (not states or group.state.lower() in states)
                and (may_describe_all or group_allowed(authorizer, call, Operation.DESCRIBE, group.group_id))
            ]

        def refuse_part(part: int, error: int) -> None:
            reply.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            reply.groups = []

        answer_when_all_durable(call, reply, serving, refuse_part)
        return None


def error_response(request: ListGroupsRequest, version: int, error: int) -> Response:
    return ListGroupsResponse(0, error)
