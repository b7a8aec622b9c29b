"""Heartbeat: renew a member's session, and report whether its group rebalances."""

from __future__ import annotations

from typing import Final

from broker.api.parts import BrokerParts
from broker.fastpath.heartbeat import HEARTBEAT_BYTES_MAX, HeartbeatFastPath, HeartbeatReplies
from broker.fastpath.learning import learn, may_learn
from broker.groups.group_journal import GroupJournal
from broker.groups.held_replies import answer_when_durable
from broker.net.dispatch import Call, ConstantReply, Response, Route
from broker.security.authorizer import Operation, group_allowed
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

# By error code; made once for all brokers of a process.
REPLIES: Final[dict[int, ConstantReply]] = {code.value: ConstantReply(HeartbeatResponse(0, code)) for code in ErrorCode}


def route(parts: BrokerParts) -> Route:
    return Route(HeartbeatRequest, Heartbeat(parts).handle, error_response)


class Heartbeat:
    def __init__(self, parts: BrokerParts) -> None:
        self._shards = parts.shards
        self._clock = parts.clock
        self._authorizer = parts.authorizer
        self._encoded_replies: dict[int, HeartbeatReplies] = {}  # by version, made for its first fast path

    def handle(self, call: Call, request: HeartbeatRequest) -> Response | None:
        group_id = request.group_id
        if not group_allowed(self._authorizer, call, Operation.READ, group_id):
            return REPLIES[ErrorCode.GROUP_AUTHORIZATION_FAILED]
        journal = self._shards.journal_of(group_id)
        if journal.refusal:
            return REPLIES[_error_for(group_id, journal.refusal)]
        code = journal.call(
            journal.shard.heartbeat, group_id, request.generation_id, request.member_id, request.group_instance_id, self._clock.now
        )
        if not code:
            self._learn_fast_path(call, request, journal)
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            journal.fenced_lines.add(journal, "Heartbeat", group_id, request.member_id, request.group_instance_id, call.connection.peer)
        return answer_when_durable(journal, call, REPLIES[code])

    def _learn_fast_path(self, call: Call, request: HeartbeatRequest, journal: GroupJournal) -> None:
        """Build a fast path: the next heartbeat on this connection is nearly always the same."""
        if call.size <= HEARTBEAT_BYTES_MAX and may_learn(call, self._clock.now):
            replies = self._encoded_replies.get(call.version)
            if replies is None:
                replies = self._encoded_replies[call.version] = HeartbeatReplies(call.version)
            learn(call, HeartbeatFastPath(call, request, journal, self._authorizer, self._clock, replies), self._clock.now)


def _error_for(group_id: str, refusal: int) -> int:
    """The reply while the partition does not serve: no error while it is loading, since every session restarts after the load."""
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    return ErrorCode.NONE if refusal == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else refusal


def error_response(request: HeartbeatRequest, version: int, error: int) -> Response:
    return HeartbeatResponse(0, error)
