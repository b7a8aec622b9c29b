"""DescribeGroups: state, protocol and members of groups."""

from __future__ import annotations

from typing import Final

from broker.api.parts import Parts
from broker.groups.group_journal import GroupJournal
from broker.groups.held_replies import answer_together
from broker.groups.shards import Shards
from broker.net.dispatch import Call, Response, Route
from broker.security.authorizer import Authorizer, Operation, group_allowed, group_operations
from coordinator import Description
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsRequest, DescribeGroupsResponse
from protocol.wire import TEXT_BYTES_MAX

NOT_FOUND_FROM: Final = 6  # from this version on, an unknown group is an error (KIP-1043)
DEAD: Final = "Dead"


def route(parts: Parts) -> Route:
    handler = DescribeGroups(parts.shards, parts.authorizer)
    return Route(DescribeGroupsRequest, handler.handle, refuse)


class DescribeGroups:
    def __init__(self, shards: Shards, authorizer: Authorizer) -> None:
        self._shards = shards
        self._authorizer = authorizer

    def handle(self, call: Call, request: DescribeGroupsRequest) -> None:
        refused: list[DescribedGroup] = []
        results: list[DescribedGroup] = []
        asked: list[tuple[int, GroupJournal]] = []
        for id in request.groups:
            if not group_allowed(self._authorizer, call, Operation.DESCRIBE, id):
                refused.append(_error(id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
                continue
            journal = self._shards.of(id)
            if journal.refusal:
                results.append(_error(id, journal.refusal))
                continue
            group = _described(id, journal.shard.describe(id), call.version)
            if request.include_authorized_operations and not group.error_code:
                group.authorized_operations = group_operations(self._authorizer, call, id)
            asked.append((len(results), journal))
            results.append(group)
        groups = refused + results

        def refuse_part(part: int, error: int) -> None:
            number = len(refused) + asked[part][0]
            groups[number] = _error(groups[number].group_id, error)

        answer_together(call, DescribeGroupsResponse(0, groups), [journal for _, journal in asked], refuse_part)


def _described(group_id: str, found: Description, version: int) -> DescribedGroup:
    missing = found.state == DEAD and version >= NOT_FOUND_FROM
    message = f"Group {group_id} not found." if missing else None
    if message is not None and len(message.encode()) > TEXT_BYTES_MAX:
        return _error(group_id, ErrorCode.UNKNOWN_SERVER_ERROR)
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


def _error(group_id: str, error: int) -> DescribedGroup:
    return DescribedGroup(error, None, group_id)


def refuse(request: DescribeGroupsRequest, version: int, error: int) -> Response:
    return DescribeGroupsResponse(0, [_error(id, error) for id in request.groups])
