"""DeleteGroups: delete groups without members, and their offsets."""

from __future__ import annotations

from broker.api.parts import BrokerParts
from broker.groups.held_replies import GroupParts
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import LOOKUP_COST
from broker.security.authorizer import Operation, group_allowed
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from protocol.wire import Steps


def route(parts: BrokerParts) -> Route:
    return Route(DeleteGroupsRequest, parts.long_requests.handler(DeleteGroups(parts).handle), error_response)


class DeleteGroups:
    def __init__(self, parts: BrokerParts) -> None:
        self._shards = parts.shards
        self._clock = parts.clock
        self._authorizer = parts.authorizer

    def handle(self, call: Call, request: DeleteGroupsRequest) -> Steps[None]:
        refused: list[DeletableGroupResult] = []
        results: list[DeletableGroupResult] = []
        parts = GroupParts()
        for id in dict.fromkeys(request.groups_names):
            yield LOOKUP_COST
            if not group_allowed(self._authorizer, call, Operation.DELETE, id):
                refused.append(DeletableGroupResult(id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
                continue
            journal = self._shards.journal_of(id)
            if journal.refusal:
                results.append(DeletableGroupResult(id, journal.refusal))
                continue
            parts.add(journal, len(results))
            results.append(DeletableGroupResult(id, journal.call(journal.shard.delete, id, self._clock.now, self._clock.wall)))

        def refuse(number: int, error: int) -> None:
            results[number].error_code = error

        parts.answer(call, DeleteGroupsResponse(0, results + refused), refuse)


def error_response(request: DeleteGroupsRequest, version: int, error: int) -> Response:
    return DeleteGroupsResponse(0, [DeletableGroupResult(id, error) for id in dict.fromkeys(request.groups_names)])
