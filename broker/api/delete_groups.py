"""DeleteGroups: delete groups without members, and their offsets."""

from __future__ import annotations

from broker.api.parts import BrokerParts
from broker.groups.group_journal import GroupJournal
from broker.groups.held_replies import answer_when_all_durable
from broker.net.dispatch import Call, Response, Route
from broker.security.authorizer import Operation, group_allowed
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def route(parts: BrokerParts) -> Route:
    return Route(DeleteGroupsRequest, DeleteGroups(parts).handle, error_response)


class DeleteGroups:
    def __init__(self, parts: BrokerParts) -> None:
        self._shards = parts.shards
        self._clock = parts.clock
        self._authorizer = parts.authorizer

    def handle(self, call: Call, request: DeleteGroupsRequest) -> None:
        refused: list[DeletableGroupResult] = []
        results: list[DeletableGroupResult] = []
        deletions: list[tuple[DeletableGroupResult, GroupJournal]] = []
        for id in dict.fromkeys(request.groups_names):
            if not group_allowed(self._authorizer, call, Operation.DELETE, id):
                refused.append(DeletableGroupResult(id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
                continue
            journal = self._shards.journal_of(id)
            if journal.refusal:
                results.append(DeletableGroupResult(id, journal.refusal))
                continue
            result = DeletableGroupResult(id, journal.call(journal.shard.delete, id, self._clock.now, self._clock.wall))
            results.append(result)
            deletions.append((result, journal))

        def refuse_part(part: int, error: int) -> None:
            deletions[part][0].error_code = error

        answer_when_all_durable(call, DeleteGroupsResponse(0, results + refused), [journal for _, journal in deletions], refuse_part)


def error_response(request: DeleteGroupsRequest, version: int, error: int) -> Response:
    return DeleteGroupsResponse(0, [DeletableGroupResult(id, error) for id in dict.fromkeys(request.groups_names)])
