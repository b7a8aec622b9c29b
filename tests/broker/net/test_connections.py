"""Which connections are closed where another one needs the room."""

from __future__ import annotations

from typing import Any

import pytest

from broker.net.connections import CLOSED_AT_ONCE_MAX, IDLE_MS, MADE_ROOM, SILENT_MS, Connections
from broker.runtime.clock import Clock


class Peer:
    """As much of a connection as is asked."""

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


def test_the_one_that_is_idle_for_longest_makes_room_and_a_silent_one_sooner(connections: Connections) -> None:
    now = 1_000_000
    spoke = [Peer(connections, 0, now - IDLE_MS - number) for number in range(3)]
    silent = Peer(connections, now - SILENT_MS)
    young = Peer(connections, now - SILENT_MS + 1)
    spoke_at_once = Peer(connections, now - SILENT_MS - 5, now - SILENT_MS - 5)
    busy = Peer(connections, 0, busy=True)
    closed = []
    while connections.make_room(now):
        assert connections.make_room(now) == 0  # that one is still being closed
        (peer,) = [peer for peer in (*spoke, silent, young, spoke_at_once, busy) if peer.reason == MADE_ROOM and peer not in closed]
        closed.append(peer)
        peer.ends()
    assert closed == [spoke[2], spoke[1], silent]


def test_of_many_some_make_room_at_once(connections: Connections) -> None:
    peers = [Peer(connections, 0) for _ in range(640)]
    assert connections.make_room(10_000) == 10
    for peer in [peer for peer in peers if peer.closed]:
        peer.ends()
    for _ in range(5_000):
        Peer(connections, 0)
    assert connections.make_room(10_000) == CLOSED_AT_ONCE_MAX
