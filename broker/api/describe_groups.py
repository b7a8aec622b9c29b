"""DescribeGroups: state, protocol and members of groups."""

from __future__ import annotations

from typing import Final

from broker.api.parts import BrokerParts
from broker.groups.group_journal import GroupJournal
from broker.groups.held_replies import answer_when_all_durable
from broker.net.dispatch import Call, Response, Route
from broker.security.authorizer import Operation, group_allowed, group_operations
from coordinator import Description
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsRequest, DescribeGroupsResponse
from protocol.wire import TEXT_BYTES_MAX

NOT_FOUND_FROM: Final = 6  # from this version on, an unknown group is an error (KIP-1043)
DEAD: Final = "Dead"


def route(parts: BrokerParts) -> Route:
    return Route(DescribeGroupsRequest, DescribeGroups(parts).handle, error_response)


class DescribeGroups:
    def __init__(self, parts: BrokerParts) -> None:
        self._shards = parts.shards
        self._authorizer = parts.authorizer

    def handle(self, call: Call, request: DescribeGroupsRequest) -> None:
        refused: list[DescribedGroup] = []
        results: list[DescribedGroup] = []
        described: list[tuple[int, GroupJournal]] = []
        for id in request.groups:
            if not group_allowed(self._authorizer, call, Operation.DESCRIBE, id):
                refused.append(_error(id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
                continue
            journal = self._shards.journal_of(id)
            if journal.refusal:
                results.append(_error(id, journal.refusal))
                continue
            group = _described(id, journal.shard.describe(id), call.version)
            if request.include_authorized_operations and not group.error_code:
                group.authorized_operations = group_operations(self._authorizer, call, id)
            described.append((len(results), journal))
            results.append(group)
        groups = refused + results

        def refuse_part(part: int, error: int) -> None:
            number = len(refused) + described[part][0]
            groups[number] = _error(groups[number].group_id, error)

        answer_when_all_durable(call, DescribeGroupsResponse(0, groups), [journal for _, journal in described], refuse_part)


def _described(group_id: str, description: Description, version: int) -> DescribedGroup:
    missing = description.state == DEAD and version >= NOT_FOUND_FROM
    message = f"Group {group_id} not found." if missing else None
    if message is not None and len(message.encode()) > TEXT_BYTES_MAX:
        return _error(group_id, ErrorCode.UNKNOWN_SERVER_ERROR)
    return DescribedGroup(
        ErrorCode.GROUP_ID_NOT_FOUND if missing else ErrorCode.NONE,
        message,
        group_id,
        description.state,
        description.protocol_type,
        description.protocol_data,
        [
            DescribedGroupMember(member.member_id, member.instance_id, member.client_id, member.client_host, member.metadata, member.assignment)
            for member in description.members
        ],
    )


def _error(group_id: str, error: int) -> DescribedGroup:
    return DescribedGroup(error, None, group_id)


def error_response(request: DescribeGroupsRequest, version: int, error: int) -> Response:
    return DescribeGroupsResponse(0, [_error(id, error) for id in request.groups])
