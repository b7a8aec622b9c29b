"""DescribeGroups: state, protocol and members of groups."""

from __future__ import annotations

from typing import Final

from broker.api.encoded_arrays import EncodedArray
from broker.api.parts import BrokerParts
from broker.groups.held_replies import GroupParts
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import LOOKUP_COST
from broker.security.authorizer import Operation, group_allowed, group_operations
from coordinator import Description
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsRequest, DescribeGroupsResponse
from protocol.wire import TEXT_BYTES_MAX, Steps

NOT_FOUND_FROM: Final = 6  # from this version on, an unknown group is an error (KIP-1043)
DEAD: Final = "Dead"

_write: Final = DescribedGroup.write_array_in_steps


def route(parts: BrokerParts) -> Route:
    return Route(DescribeGroupsRequest, parts.long_requests.handler(DescribeGroups(parts).handle), error_response)


class DescribeGroups:
    def __init__(self, parts: BrokerParts) -> None:
        self._shards = parts.shards
        self._authorizer = parts.authorizer

    def handle(self, call: Call, request: DescribeGroupsRequest) -> Steps[None]:
        allowed: list[str] = []
        refused: list[str] = []
        for id in request.groups:
            (allowed if group_allowed(self._authorizer, call, Operation.DESCRIBE, id) else refused).append(id)
            yield LOOKUP_COST
        ids = refused + allowed
        reply = EncodedArray(call, DescribeGroupsResponse())
        parts = GroupParts()
        for number, id in enumerate(ids):
            if number < len(refused):
                group = _error(id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
            else:
                group = self._describe(call, request, number, id, parts)
            yield from reply.add(_write, group)

        def refuse(number: int, error: int) -> None:
            for _ in reply.replace(number, _write, _error(ids[number], error)):
                pass

        parts.answer(call, reply, refuse)

    def _describe(self, call: Call, request: DescribeGroupsRequest, number: int, id: str, parts: GroupParts) -> DescribedGroup:
        journal = self._shards.journal_of(id)
        if journal.refusal:
            return _error(id, journal.refusal)
        parts.add(journal, number)
        group = _described(id, journal.shard.describe(id), call.version)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = group_operations(self._authorizer, call, id)
        return group


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
