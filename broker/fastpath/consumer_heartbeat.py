"""Fast path of ConsumerGroupHeartbeat: most heartbeats say nothing new and are told nothing new, so their bytes repeat, and those of the reply.

`coordinator.consumer.repeats` decides whether that still holds.
"""

from __future__ import annotations

from typing import Final

from broker.fastpath.learning import LearnedFastPath
from broker.groups.group_journal import GroupJournal
from broker.net.connection import KIND_BYTES, NOT_MINE, REST_AT, Connection
from broker.net.dispatch import Call
from broker.runtime.clock import Clock
from broker.security.authorizer import Authorizer
from coordinator.consumer.repeats import RepeatedBeat
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

BEAT_BYTES_MAX: Final = 512  # larger heartbeats get no fast path

_COST: Final = 800  # the approximate memory of the objects besides request and reply
_CORRELATION_ID_BYTES: Final = 4


class ConsumerHeartbeatFastPath(LearnedFastPath):
    __slots__ = ("_authorizer", "_beat", "_clock", "_journal", "_repeated_bytes", "_reply_end", "_reply_size")

    def __init__(
        self, call: Call, beat: RepeatedBeat, reply: ConsumerGroupHeartbeatResponse, journal: GroupJournal, authorizer: Authorizer, clock: Clock
    ) -> None:
        """`call`: a heartbeat that is answered with `reply`."""
        self._beat = beat
        self._repeated_bytes = call.after_correlation_id
        self._reply_end = b"\0" + reply.encode(call.version)
        self._reply_size = (len(self._reply_end) + _CORRELATION_ID_BYTES).to_bytes(4, "big")
        self._journal = journal
        self._authorizer = authorizer
        self._clock = clock
        super().__init__(_COST + len(self._repeated_bytes) + len(self._reply_end))

    def answer(self, connection: Connection, data: bytes) -> bytes | None:
        if data[REST_AT:] != self._repeated_bytes or not self._authorizer.allows_all or not self._journal.answers_at_once:
            return NOT_MINE
        if not self._beat.try_accept(self._clock.now):
            return NOT_MINE
        return self._reply_size + data[KIND_BYTES:REST_AT] + self._reply_end
