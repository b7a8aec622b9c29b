"""LeaveGroup: members leave their group, or an administrator removes several."""

from __future__ import annotations

from typing import Final

from broker.api.parts import BrokerParts
from broker.groups.group_journal import GroupJournal
from broker.groups.held_replies import answer_when_durable
from broker.net.dispatch import Call, Response, Route
from broker.security.authorizer import Operation, group_allowed
from coordinator import Leaver
from protocol.errors import ErrorCode
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from protocol.wire import Steps

SEVERAL_MEMBERS_FROM: Final = 3
LEAVERS_PER_STEP: Final = 1_000  # at most one rebalance follows for all of them


def route(parts: BrokerParts) -> Route:
    return Route(LeaveGroupRequest, parts.long_requests.handler(LeaveGroup(parts).handle), error_response)


class LeaveGroup:
    def __init__(self, parts: BrokerParts) -> None:
        self._shards = parts.shards
        self._clock = parts.clock
        self._authorizer = parts.authorizer

    def handle(self, call: Call, request: LeaveGroupRequest) -> Steps[Response | None]:
        if not group_allowed(self._authorizer, call, Operation.READ, request.group_id):
            return LeaveGroupResponse(0, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not request.group_id:
            return LeaveGroupResponse(0, ErrorCode.INVALID_GROUP_ID)
        journal = self._shards.journal_of(request.group_id)
        if journal.refusal:
            return LeaveGroupResponse(0, journal.refusal)
        several = call.version >= SEVERAL_MEMBERS_FROM
        members = request.members if several else [MemberIdentity(request.member_id)]
        hold = journal.shard.hold
        results: list[MemberResponse] = []
        for at in range(0, len(members), LEAVERS_PER_STEP):
            if journal.refusal or journal.shard.hold is not hold:  # replayed meanwhile: members in the reply may not have left
                return LeaveGroupResponse(0, journal.refusal or ErrorCode.COORDINATOR_NOT_AVAILABLE)
            step = members[at : at + LEAVERS_PER_STEP]
            leavers = [Leaver(member.member_id, member.group_instance_id, member.reason) for member in step]
            codes = journal.call(journal.shard.leave, request.group_id, leavers, self._clock.now, self._clock.wall)
            for leaver, code in zip(leavers, codes, strict=True):
                if code:
                    self._log_refusal(call, journal, request.group_id, leaver, code)
            if not several:
                return answer_when_durable(journal, call, LeaveGroupResponse(0, codes[0]))
            results += [MemberResponse(member.member_id, member.group_instance_id, code) for member, code in zip(step, codes, strict=True)]
            yield len(step)
        return answer_when_durable(journal, call, LeaveGroupResponse(0, ErrorCode.NONE, results))

    def _log_refusal(self, call: Call, journal: GroupJournal, group_id: str, leaver: Leaver, code: int) -> None:
        if code == ErrorCode.FENCED_INSTANCE_ID:
            journal.fenced_lines.add(journal, "LeaveGroup", group_id, leaver.member_id, leaver.instance_id, call.connection.peer)
        elif not leaver.member_id and not leaver.instance_id:
            journal.fenced_lines.add_nameless_leave(journal, group_id, call.connection.peer)


def error_response(request: LeaveGroupRequest, version: int, error: int) -> Response:
    return LeaveGroupResponse(0, error)
