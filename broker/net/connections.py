"""The connections that are open: how many, from where, and which have been idle for too long."""

from __future__ import annotations

from collections.abc import Callable
from heapq import nsmallest

from broker.logging.logs import log
from broker.net.connection import Connection
from broker.runtime.clock import Clock
from broker.runtime.turn import NEVER

# Looking at every connection costs about 0.1 us each: a tenth of the limit is exact enough and cheap.
SWEEPS_PER_LIMIT = 10
SWEEP_MS_MAX = 30_000
# Where another connection needs the room: one that never sent anything is closed sooner than one that did.
SILENT_MS = 1_000
SPARE_MS = 30_000
ROOM_AT_ONCE_MAX = 32
LIVE_PER_ROOM = 64
MADE_ROOM = "idle when another connection needed the room (max.connections)"


class Connections:
    """All live connections; an actor whose deadlines are those of idle peers (`connections.max.idle.ms`)."""

    def __init__(self, clock: Clock, idle_ms_max: int) -> None:
        self.live: dict[Connection, int] = {}  # with the time before which it sent nothing
        self.making_room = 0  # so many are being closed for others
        self.by_peer: dict[str, int] = {}
        self.freed: Callable[[], None] = lambda: None
        self._idle_ms_max = idle_ms_max
        self._idle = f"idle for more than {idle_ms_max} ms (connections.max.idle.ms)"
        self._sweep_ms = max(1, min(SWEEP_MS_MAX, idle_ms_max // SWEEPS_PER_LIMIT))
        self.wake_at = clock.now + self._sweep_ms if idle_ms_max >= 0 else NEVER

    def add(self, connection: Connection) -> None:
        connection.last_active -= 1  # so that it differs as soon as something is sent
        self.live[connection] = connection.last_active
        self.by_peer[connection.peer] = self.by_peer.get(connection.peer, 0) + 1

    def ended(self, connection: Connection, reason: str) -> None:
        if reason == MADE_ROOM:
            self.making_room -= 1
        elif reason == self._idle:
            log.info("connection closed", peer=connection.peer, reason=reason)
        elif reason:
            log.warning("connection closed", peer=connection.peer, reason=reason)
        if connection not in self.live:
            return
        del self.live[connection]
        left = self.by_peer[connection.peer] - 1
        if left:
            self.by_peer[connection.peer] = left
        else:
            del self.by_peer[connection.peer]
        self.freed()

    def make_room(self, now: int) -> int:
        """Close some of those that have been idle for longest; how many. None while earlier ones are still being closed."""
        if self.making_room:
            return 0
        idle = [
            connection
            for connection, begun in self.live.items()
            if not connection.busy
            and not connection.closed
            and now - connection.last_active > (SILENT_MS if connection.last_active == begun else SPARE_MS)
        ]
        some = nsmallest(min(max(len(self.live) // LIVE_PER_ROOM, 1), ROOM_AT_ONCE_MAX), idle, key=_last_active)
        self.making_room = len(some)
        for connection in some:
            connection.abort(MADE_ROOM)
        return len(some)

    def advance(self, now: int) -> None:
        self.wake_at = now + self._sweep_ms
        oldest = now - self._idle_ms_max
        # A request whose reply is parked or held is not idleness; a reply that nobody reads is.
        for connection in [c for c in self.live if c.last_active < oldest and not c.busy]:
            connection.abort(self._idle)


def _last_active(connection: Connection) -> int:
    return connection.last_active
