"""ListGroups: the groups of all serving partitions of __consumer_offsets."""

from __future__ import annotations

from typing import Final

from broker.api.parts import BrokerParts
from broker.groups.group_journal import GroupJournal
from broker.groups.held_replies import answer_when_all_durable
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import LOOKUP_COST
from broker.security.authorizer import Operation, cluster_allowed, group_allowed
from protocol.errors import ErrorCode
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from protocol.wire import Steps

GROUPS_PER_STEP: Final = 4


def route(parts: BrokerParts) -> Route:
    return Route(ListGroupsRequest, parts.long_requests.handler(ListGroups(parts).handle), error_response)


class ListGroups:
    def __init__(self, parts: BrokerParts) -> None:
        self._shards = parts.shards
        self._authorizer = parts.authorizer

    def handle(self, call: Call, request: ListGroupsRequest) -> Steps[Response | None]:
        serving: list[GroupJournal] = []
        for journal in self._shards.journals:
            if not journal.refusal:
                serving.append(journal)
            elif journal.refusal != ErrorCode.NOT_COORDINATOR:
                return ListGroupsResponse(0, journal.refusal)
        states: set[str] = set()
        for state in request.states_filter:
            states.add(state.strip().lower())
            yield LOOKUP_COST
        types: set[str] = set()
        for kind in request.types_filter:
            types.add(kind.lower())
            yield LOOKUP_COST
        authorizer = self._authorizer
        may_describe_all = cluster_allowed(authorizer, call, Operation.DESCRIBE)
        reply = ListGroupsResponse(0, ErrorCode.NONE)
        holds = [journal.shard.hold for journal in serving]
        for journal in serving:
            for number, id in enumerate([group.id for group in journal.shard.all_groups()]):
                if number % GROUPS_PER_STEP == 0:
                    yield LOOKUP_COST
                group = journal.shard.listed_group(id)
                if (
                    group is not None
                    and (not types or group.group_type in types)
                    and (not states or group.state.lower() in states)
                    and (may_describe_all or group_allowed(authorizer, call, Operation.DESCRIBE, id))
                ):
                    reply.groups.append(ListedGroup(id, group.protocol_type, group.state, group.group_type))
        if any(journal.shard.hold is not hold for journal, hold in zip(serving, holds, strict=True)):
            return error_response(request, call.version, ErrorCode.COORDINATOR_NOT_AVAILABLE)  # replayed meanwhile: the groups listed may not exist

        def refuse_part(part: int, error: int) -> None:
            reply.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            reply.groups = []

        answer_when_all_durable(call, reply, serving, refuse_part)
        return None


def error_response(request: ListGroupsRequest, version: int, error: int) -> Response:
    return ListGroupsResponse(0, error)
