"""A heartbeat of the same bytes as the one before is answered before it is read.

Members send the same one for hours: only the correlation id differs. The core knows whether it is accepted as before
(`coordinator.repeats`), and all replies that there are have been written once.
"""

from __future__ import annotations

from typing import Final

from broker.groups.group_journal import GroupJournal
from broker.net.connection import KIND_BYTES, REST_AT, Connection
from broker.net.dispatch import Call
from broker.runtime.clock import Clock
from broker.security.authorizer import Authorizer
from coordinator.repeats import RepeatedHeartbeat
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

HEARTBEAT_BYTES_MAX: Final = 512  # of a heartbeat, kept for each connection

_COST: Final = 800  # what Python takes for it besides the request, about


def heartbeat_replies(version: int) -> dict[int, bytes]:
    """All there are, from behind the correlation id on."""
    tags = b"\0" if version >= HeartbeatResponse.FLEXIBLE_FROM else b""
    return {code.value: tags + HeartbeatResponse(0, code).encode(version) for code in ErrorCode}


class HeartbeatAgain:
    __slots__ = ("_accepted", "_authorizer", "_beat", "_clock", "_front", "_journal", "_replies", "_rest", "cost")

    def __init__(
        self, call: Call, request: HeartbeatRequest, journal: GroupJournal, authorizer: Authorizer, clock: Clock, replies: dict[int, bytes]
    ) -> None:
        """`call` was accepted just now; `replies` are those of its version, all of one length."""
        self._beat = RepeatedHeartbeat(request.group_id, request.generation_id, request.member_id, request.group_instance_id)
        self._rest = call.rest
        self._replies = replies
        self._accepted = replies[ErrorCode.NONE]
        self._front = (len(self._accepted) + 4).to_bytes(4, "big")
        self._journal = journal
        self._authorizer = authorizer
        self._clock = clock
        self.cost = _COST + len(self._rest)

    def forgotten(self) -> None: ...

    def answer(self, connection: Connection, data: bytes) -> bytes | None:
        """The reply, where nobody has to be asked for it but the group and nothing has to be waited for."""
        if data[REST_AT:] != self._rest:
            return None
        journal = self._journal
        shard = journal.shard
        hold = shard.hold
        if journal.refusal or hold.durable != hold.emitted or not self._authorizer.open:
            return None
        if self._beat.again(self._clock.now):
            return self._front + data[KIND_BYTES:REST_AT] + self._accepted
        try:
            code = self._beat.ask(shard, self._clock.now)
        except Exception:
            return None  # it will happen again on the usual way, where it is dealt with
        journal.stepped()
        return self._front + data[KIND_BYTES:REST_AT] + self._replies[code]
