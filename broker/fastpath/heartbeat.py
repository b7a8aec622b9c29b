"""Fast path of Heartbeat: a request of the same bytes as the one before is answered without being decoded.

A member sends the same request for hours, and only the correlation id differs. `coordinator.repeats` decides whether it is
accepted as before. All possible replies are encoded once.
"""

from __future__ import annotations

from typing import Final

from broker.fastpath.learning import Learned
from broker.groups.group_journal import GroupJournal
from broker.net.connection import KIND_BYTES, REST_AT, Connection
from broker.net.dispatch import Call
from broker.runtime.clock import Clock
from broker.security.authorizer import Authorizer
from coordinator.repeats import RepeatedHeartbeat
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

HEARTBEAT_BYTES_MAX: Final = 512  # larger heartbeats get no fast path

_COST: Final = 800  # about what the objects take in memory besides the request


def heartbeat_replies(version: int) -> dict[int, bytes]:
    """The replies by error code, from behind the correlation id on."""
    tags = b"\0" if version >= HeartbeatResponse.FLEXIBLE_FROM else b""
    return {code.value: tags + HeartbeatResponse(0, code).encode(version) for code in ErrorCode}


class HeartbeatFastPath(Learned):
    __slots__ = ("_accepted", "_authorizer", "_clock", "_front", "_heartbeat", "_journal", "_replies", "_rest")

    def __init__(
        self, call: Call, request: HeartbeatRequest, journal: GroupJournal, authorizer: Authorizer, clock: Clock, replies: dict[int, bytes]
    ) -> None:
        """`call` was accepted just now. `replies` are those of its version, all of the same length."""
        self._heartbeat = RepeatedHeartbeat(request.group_id, request.generation_id, request.member_id, request.group_instance_id)
        self._rest = call.after_correlation_id
        self._replies = replies
        self._accepted = replies[ErrorCode.NONE]
        self._front = (len(self._accepted) + 4).to_bytes(4, "big")
        self._journal = journal
        self._authorizer = authorizer
        self._clock = clock
        super().__init__(_COST + len(self._rest))

    def answer(self, connection: Connection, data: bytes) -> bytes | None:
        if data[REST_AT:] != self._rest:
            return None
        journal = self._journal
        if not self._authorizer.open or not journal.answers_at_once():
            return None
        if self._heartbeat.try_accept(self._clock.now):
            return self._front + data[KIND_BYTES:REST_AT] + self._accepted
        try:
            code = self._heartbeat.accept_slow(journal.shard, self._clock.now)
        except Exception:
            return None  # it is raised again on the usual way, which handles it
        journal.stepped()
        if not journal.answers_at_once():
            return None  # it ended an absence, which is stored first
        return self._front + data[KIND_BYTES:REST_AT] + self._replies[code]
