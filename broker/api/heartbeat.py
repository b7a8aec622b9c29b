"""Heartbeat: a member is alive, and learns whether its group rebalances."""

from __future__ import annotations

from broker.api.parts import Parts
from broker.fastpath.heartbeat import HEARTBEAT_BYTES_MAX, HeartbeatFastPath, heartbeat_replies
from broker.fastpath.learning import LEARN_ATTEMPTS_MAX, attempts_before, learn
from broker.groups.group_journal import GroupJournal
from broker.groups.held_replies import answer
from broker.groups.shards import Shards
from broker.net.dispatch import Call, ConstantReply, Response, Route
from broker.runtime.clock import Clock
from broker.security.authorizer import Authorizer, Operation, group_allowed
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def route(parts: Parts) -> Route:
    handler = Heartbeat(parts.shards, parts.clock, parts.authorizer)
    return Route(HeartbeatRequest, handler.handle, refuse)


class Heartbeat:
    def __init__(self, shards: Shards, clock: Clock, authorizer: Authorizer) -> None:
        self._shards = shards
        self._clock = clock
        self._authorizer = authorizer
        self._replies: dict[int, ConstantReply] = {code.value: ConstantReply(HeartbeatResponse(0, code)) for code in ErrorCode}
        self._encoded = [heartbeat_replies(version) for version in range(HeartbeatResponse.VERSIONS[1] + 1)]

    def handle(self, call: Call, request: HeartbeatRequest) -> Response | None:
        group_id = request.group_id
        authorizer = self._authorizer
        if not authorizer.open and not group_allowed(authorizer, call, Operation.READ, group_id):
            return self._replies[ErrorCode.GROUP_AUTHORIZATION_FAILED]
        journal = self._shards.of(group_id)
        if journal.refusal:
            return self._replies[_refusal(group_id, journal.refusal)]
        code = journal.call(
            journal.shard.heartbeat, group_id, request.generation_id, request.member_id, request.group_instance_id, self._clock.now
        )
        if not code:
            self._remember(call, request, journal)
        return answer(journal, call, self._replies[code])

    def _remember(self, call: Call, request: HeartbeatRequest, journal: GroupJournal) -> None:
        """The next heartbeat is nearly always the same."""
        if call.size > HEARTBEAT_BYTES_MAX or call.connection.host.trace is not None:
            return
        now = self._clock.now
        attempts = attempts_before(call, now)
        if attempts < LEARN_ATTEMPTS_MAX:
            learn(call, HeartbeatFastPath(call, request, journal, self._authorizer, self._clock, self._encoded[call.version]), attempts, now)


def _refusal(group_id: str, refusal: int) -> int:
    """No error while the partition is loading: sessions begin anew when it is done."""
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    return ErrorCode.NONE if refusal == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else refusal


def refuse(request: HeartbeatRequest, version: int, error: int) -> Response:
    return HeartbeatResponse(0, error)
