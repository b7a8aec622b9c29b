"""DeleteGroups: delete groups without members, and their offsets."""

from __future__ import annotations

from broker.api.parts import Parts
from broker.groups.group_journal import GroupJournal
from broker.groups.held_replies import answer_together
from broker.groups.shards import Shards
from broker.net.dispatch import Call, Response, Route
from broker.runtime.clock import Clock
from broker.security.authorizer import Authorizer, Operation, group_allowed
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def route(parts: Parts) -> Route:
    handler = DeleteGroups(parts.shards, parts.clock, parts.authorizer)
    return Route(DeleteGroupsRequest, handler.handle, refuse)


class DeleteGroups:
    def __init__(self, shards: Shards, clock: Clock, authorizer: Authorizer) -> None:
        self._shards = shards
        self._clock = clock
        self._authorizer = authorizer

    def handle(self, call: Call, request: DeleteGroupsRequest) -> None:
        refused: list[DeletableGroupResult] = []
        results: list[DeletableGroupResult] = []
        asked: list[tuple[DeletableGroupResult, GroupJournal]] = []
        for id in dict.fromkeys(request.groups_names):
            if not group_allowed(self._authorizer, call, Operation.DELETE, id):
                refused.append(DeletableGroupResult(id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
                continue
            journal = self._shards.of(id)
            if journal.refusal:
                results.append(DeletableGroupResult(id, journal.refusal))
                continue
            result = DeletableGroupResult(id, journal.call(journal.shard.delete, id, self._clock.now, self._clock.wall))
            results.append(result)
            asked.append((result, journal))

        def refuse_part(part: int, error: int) -> None:
            asked[part][0].error_code = error

        answer_together(call, DeleteGroupsResponse(0, results + refused), [journal for _, journal in asked], refuse_part)


def refuse(request: DeleteGroupsRequest, version: int, error: int) -> Response:
    return DeleteGroupsResponse(0, [DeletableGroupResult(id, error) for id in dict.fromkeys(request.groups_names)])
