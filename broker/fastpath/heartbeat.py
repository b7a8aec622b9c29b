"""Fast path of Heartbeat: a request with the same bytes as an earlier one is answered without being decoded.

A member sends the same request for hours, and only the correlation id differs. `coordinator.repeats` decides whether it is still
accepted. All possible replies are encoded once.
"""

from __future__ import annotations

from typing import Final

from broker.fastpath.learning import LearnedFastPath
from broker.groups.group_journal import GroupJournal
from broker.net.connection import KIND_BYTES, NOT_MINE, REST_AT, Connection
from broker.net.dispatch import Call
from broker.runtime.clock import Clock
from broker.security.authorizer import Authorizer
from coordinator.repeats import RepeatedHeartbeat
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

HEARTBEAT_BYTES_MAX: Final = 512  # larger heartbeats get no fast path

_COST: Final = 800  # the approximate memory of the objects besides the request


class HeartbeatReplies:
    """All replies of one version, which have the same length."""

    __slots__ = ("accepted", "by_code", "size")

    def __init__(self, version: int) -> None:
        tags = b"\0" if version >= HeartbeatResponse.FLEXIBLE_FROM else b""
        # `by_code`: the bytes after the correlation id; `size`: the four bytes before it.
        self.by_code = {code.value: tags + HeartbeatResponse(0, code).encode(version) for code in ErrorCode}
        self.accepted = self.by_code[ErrorCode.NONE]
        self.size = (len(self.accepted) + 4).to_bytes(4, "big")


class HeartbeatFastPath(LearnedFastPath):
    __slots__ = ("_authorizer", "_clock", "_heartbeat", "_journal", "_repeated_bytes", "_replies")

    def __init__(
        self, call: Call, request: HeartbeatRequest, journal: GroupJournal, authorizer: Authorizer, clock: Clock, replies: HeartbeatReplies
    ) -> None:
        """`call`: a heartbeat that was just accepted. `replies`: those of its version."""
        self._heartbeat = RepeatedHeartbeat(request.group_id, request.generation_id, request.member_id, request.group_instance_id)
        self._repeated_bytes = call.after_correlation_id
        self._replies = replies
        self._journal = journal
        self._authorizer = authorizer
        self._clock = clock
        super().__init__(_COST + len(self._repeated_bytes))

    def answer(self, connection: Connection, data: bytes) -> bytes | None:
        if data[REST_AT:] != self._repeated_bytes:
            return NOT_MINE
        journal = self._journal
        if not self._authorizer.allows_all or not journal.answers_at_once:
            return NOT_MINE
        if self._heartbeat.try_accept(self._clock.now):
            return self._replies.size + data[KIND_BYTES:REST_AT] + self._replies.accepted
        code = self._heartbeat.accept_slow(journal.shard, self._clock.now)
        if code == ErrorCode.FENCED_INSTANCE_ID:
            return NOT_MINE  # the usual path writes a log line
        journal.schedule_after_step()
        if not journal.answers_at_once:
            return NOT_MINE  # the heartbeat ended a static member's absence: the reply waits until that fact is stored
        return self._replies.size + data[KIND_BYTES:REST_AT] + self._replies.by_code[code]

    def failed(self, connection: Connection, data: bytes) -> bool:
        self._journal.step_failed()
        return True
