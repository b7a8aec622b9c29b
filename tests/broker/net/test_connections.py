"""The connections that are closed to make room for others."""

from __future__ import annotations

from typing import Any

import pytest

from broker.net.connections import CLOSED_PER_CALL_MAX, IDLE_MS, MADE_ROOM, SILENT_MS, Connections
from broker.runtime.clock import Clock


class Peer:
    """The attributes of a connection that the code under test reads."""

    peer = "127.0.0.1"

    def __init__(self, connections: Connections, opened: int, active: int = -1, busy: bool = False) -> None:
        self.last_active = opened
        self.busy = busy
        self.closed = False
        self.reason = ""
        self._connections = connections
        connections.add(self)  # type: ignore[arg-type]
        if active >= 0:
            self.last_active = active

    def abort(self, reason: str) -> None:
        self.closed, self.reason = True, reason

    def ends(self) -> None:
        self._connections.ended(self, self.reason)  # type: ignore[arg-type]


@pytest.fixture
def connections() -> Connections:
    clock: Any = Clock(lambda: 0, lambda: 0)
    return Connections(clock, -1)


@pytest.mark.plain
def test_the_longest_idle_connection_is_closed_first_and_silent_ones_sooner(connections: Connections) -> None:
    now = 1_000_000
    spoke = [Peer(connections, 0, now - IDLE_MS - number) for number in range(3)]
    silent = Peer(connections, now - SILENT_MS)
    young = Peer(connections, now - SILENT_MS + 1)
    spoke_at_once = Peer(connections, now - SILENT_MS - 5, now - SILENT_MS - 5)
    busy = Peer(connections, 0, busy=True)
    closed = []
    while connections.make_room(now):
        assert connections.make_room(now) == 0  # that connection is still being closed
        (peer,) = [peer for peer in (*spoke, silent, young, spoke_at_once, busy) if peer.reason == MADE_ROOM and peer not in closed]
        closed.append(peer)
        peer.ends()
    assert closed == [spoke[2], spoke[1], silent]


@pytest.mark.plain
def test_several_connections_are_closed_at_once_among_many(connections: Connections) -> None:
    peers = [Peer(connections, 0) for _ in range(640)]
    assert connections.make_room(10_000) == 10
    for peer in [peer for peer in peers if peer.closed]:
        peer.ends()
    for _ in range(5_000):
        Peer(connections, 0)
    assert connections.make_room(10_000) == CLOSED_PER_CALL_MAX
