"""The open connections: their number for each peer, and the closing of idle connections."""

from __future__ import annotations

from collections.abc import Callable
from heapq import nsmallest

from broker.logging.logs import log
from broker.net.connection import Connection
from broker.runtime.clock import Clock
from broker.runtime.turn import NEVER

# Idle connections are searched at least ten times per idle limit, which is exact enough. A search costs about 0.1 us per connection.
SWEEPS_PER_LIMIT = 10
SWEEP_MS_MAX = 30_000
# When new connections need room, connections idle for this long are closed; the shorter time applies to those that never sent a byte.
SILENT_MS = 1_000
IDLE_MS = 30_000
CLOSED_PER_CALL_MAX = 32
LIVE_PER_CLOSED = 64
MADE_ROOM = "idle when another connection needed the room (max.connections)"


class Connections:
    """All live connections; `Turn` calls `advance`, which closes idle connections (`connections.max.idle.ms`)."""

    def __init__(self, clock: Clock, idle_ms_max: int) -> None:
        self.live: dict[Connection, int] = {}  # value: the connection's `last_active` before its first byte
        self.making_room = 0  # connections being closed for new ones
        self.by_peer: dict[str, int] = {}
        self.on_removed: Callable[[], None] = lambda: None  # called after a connection has ended
        self._idle_ms_max = idle_ms_max
        self._idle_reason = f"idle for more than {idle_ms_max} ms (connections.max.idle.ms)"
        self._sweep_ms = max(1, min(SWEEP_MS_MAX, idle_ms_max // SWEEPS_PER_LIMIT))
        self.wake_at = clock.now + self._sweep_ms if idle_ms_max >= 0 else NEVER

    def add(self, connection: Connection) -> None:
        connection.last_active -= 1  # so that the first received bytes change it
        self.live[connection] = connection.last_active
        self.by_peer[connection.peer] = self.by_peer.get(connection.peer, 0) + 1

    def ended(self, connection: Connection, reason: str) -> None:
        if reason == MADE_ROOM:
            self.making_room -= 1
        elif reason == self._idle_reason:
            log.info("connection closed", peer=connection.peer, reason=reason)
        elif reason:
            log.warning("connection closed", peer=connection.peer, reason=reason)
        if connection not in self.live:
            return
        del self.live[connection]
        remaining = self.by_peer[connection.peer] - 1
        if remaining:
            self.by_peer[connection.peer] = remaining
        else:
            del self.by_peer[connection.peer]
        self.on_removed()

    def make_room(self, now: int) -> int:
        """Close some of the longest-idle connections; returns how many: none while the previous ones are still being closed."""
        if self.making_room:
            return 0
        idle = [
            connection
            for connection, opened in self.live.items()
            if not connection.busy
            and not connection.closed
            and now - connection.last_active > (SILENT_MS if connection.last_active == opened else IDLE_MS)
        ]
        longest_idle = nsmallest(min(max(len(self.live) // LIVE_PER_CLOSED, 1), CLOSED_PER_CALL_MAX), idle, key=_last_active)
        self.making_room = len(longest_idle)
        for connection in longest_idle:
            connection.abort(MADE_ROOM)
        return len(longest_idle)

    def advance(self, now: int) -> None:
        self.wake_at = now + self._sweep_ms
        oldest = now - self._idle_ms_max
        # A client that waits for its reply (`busy`) is not idle; a client that does not read its reply is.
        for connection in [c for c in self.live if c.last_active < oldest and not c.busy]:
            connection.abort(self._idle_reason)


def _last_active(connection: Connection) -> int:
    return connection.last_active
