"""What administrators ask about groups: DescribeGroups, ListGroups, DeleteGroups. One request may reach several shards."""

from __future__ import annotations

from typing import Final

from broker.groups.group_journal import GroupJournal
from broker.groups.held_replies import answer_together
from broker.groups.shards import Shards
from broker.net.dispatch import Call, Response, Route
from broker.runtime.clock import Clock
from broker.security.authorizer import CLUSTER_NAME, Authorizer, Operation, Resource, group_operations, may
from coordinator import Description
from protocol.apis import APIS
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from protocol.wire import TEXT_BYTES_MAX

DESCRIBE_NOT_FOUND: Final = 6  # a group that is not there is an error from here on (KIP-1043)
DEAD: Final = "Dead"
CLASSIC: Final = "classic"


class GroupAdminHandlers:
    """The groups of all shards, as they look from outside."""

    def __init__(self, shards: Shards, clock: Clock, authorizer: Authorizer) -> None:
        self._shards = shards
        self._clock = clock
        self._authorizer = authorizer

    def routes(self) -> list[Route]:
        return [
            Route(APIS[DescribeGroupsRequest.API_KEY], self.describe, refuse_describe),
            Route(APIS[ListGroupsRequest.API_KEY], self.list_groups, refuse_list),
            Route(APIS[DeleteGroupsRequest.API_KEY], self.delete, refuse_delete),
        ]

    def _may(self, call: Call, operation: Operation, group_id: str) -> bool:
        return may(self._authorizer, call, operation, Resource.GROUP, group_id)

    # DescribeGroups

    def describe(self, call: Call, request: DescribeGroupsRequest) -> None:
        refused: list[DescribedGroup] = []
        told: list[DescribedGroup] = []
        asked: list[tuple[int, GroupJournal]] = []
        for id in request.groups:
            if not self._may(call, Operation.DESCRIBE, id):
                refused.append(undescribed(id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
                continue
            journal = self._shards.of(id)
            if journal.refusal:
                told.append(undescribed(id, journal.refusal))
                continue
            shown = described(id, journal.shard.describe(id), call.version)
            if request.include_authorized_operations and not shown.error_code:
                shown.authorized_operations = group_operations(self._authorizer, call, id)
            asked.append((len(told), journal))
            told.append(shown)
        groups = refused + told

        def refuse(part: int, error: int) -> None:
            number = len(refused) + asked[part][0]
            groups[number] = undescribed(groups[number].group_id, error)

        answer_together(call, DescribeGroupsResponse(0, groups), [journal for _, journal in asked], refuse)

    # ListGroups

    def list_groups(self, call: Call, request: ListGroupsRequest) -> Response | None:
        serving: list[GroupJournal] = []
        for journal in self._shards.journals:
            if not journal.refusal:
                serving.append(journal)
            elif journal.refusal != ErrorCode.NOT_COORDINATOR:
                return ListGroupsResponse(0, journal.refusal)
        states = {state.strip().lower() for state in request.states_filter}
        types = {kind.lower() for kind in request.types_filter}
        everything = may(self._authorizer, call, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)
        reply = ListGroupsResponse(0, ErrorCode.NONE)
        if not types or CLASSIC in types:
            reply.groups = [
                ListedGroup(group.group_id, group.protocol_type, group.state, CLASSIC)
                for journal in serving
                for group in journal.shard.listed()
                if (not states or group.state.lower() in states) and (everything or self._may(call, Operation.DESCRIBE, group.group_id))
            ]

        def refuse(part: int, error: int) -> None:
            reply.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            reply.groups = []

        answer_together(call, reply, serving, refuse)
        return None

    # DeleteGroups

    def delete(self, call: Call, request: DeleteGroupsRequest) -> None:
        refused: list[DeletableGroupResult] = []
        told: list[DeletableGroupResult] = []
        asked: list[tuple[DeletableGroupResult, GroupJournal]] = []
        for id in dict.fromkeys(request.groups_names):
            if not self._may(call, Operation.DELETE, id):
                refused.append(DeletableGroupResult(id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
                continue
            journal = self._shards.of(id)
            result = DeletableGroupResult(id, journal.refusal or self._delete(journal, id))
            told.append(result)
            if not journal.refusal:
                asked.append((result, journal))

        def refuse(part: int, error: int) -> None:
            asked[part][0].error_code = error

        answer_together(call, DeleteGroupsResponse(0, told + refused), [journal for _, journal in asked], refuse)

    def _delete(self, journal: GroupJournal, group_id: str) -> int:
        try:
            code = journal.shard.delete(group_id, self._clock.now, self._clock.wall)
        except Exception:
            journal.broken()
            raise
        journal.stepped()
        return code


def described(group_id: str, found: Description, version: int) -> DescribedGroup:
    missing = found.state == DEAD and version >= DESCRIBE_NOT_FOUND
    message = f"Group {group_id} not found." if missing else None
    if message is not None and len(message.encode()) > TEXT_BYTES_MAX:
        return undescribed(group_id, ErrorCode.UNKNOWN_SERVER_ERROR)
    return DescribedGroup(
        ErrorCode.GROUP_ID_NOT_FOUND if missing else ErrorCode.NONE,
        message,
        group_id,
        found.state,
        found.protocol_type,
        found.protocol_data,
        [
            DescribedGroupMember(one.member_id, one.instance_id, one.client_id, one.client_host, one.metadata, one.assignment)
            for one in found.members
        ],
    )


def undescribed(group_id: str, error: int) -> DescribedGroup:
    return DescribedGroup(error, None, group_id)


def refuse_describe(request: DescribeGroupsRequest, version: int, error: int) -> Response:
    return DescribeGroupsResponse(0, [undescribed(id, error) for id in request.groups])


def refuse_list(request: ListGroupsRequest, version: int, error: int) -> Response:
    return ListGroupsResponse(0, error)


def refuse_delete(request: DeleteGroupsRequest, version: int, error: int) -> Response:
    return DeleteGroupsResponse(0, [DeletableGroupResult(id, error) for id in dict.fromkeys(request.groups_names)])
