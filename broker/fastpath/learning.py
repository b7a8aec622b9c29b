"""Whether a fast path is worth building. Building costs more than the usual way, so a client whose requests keep differing gets no more.

Members that take turns on one connection send such requests: each would replace the fast path of the one before.
"""

from __future__ import annotations

from typing import Final

from broker.net.connection import Connection, FastPath
from broker.net.dispatch import Call

LEARN_ATTEMPTS_MAX: Final = 16
LEARN_PAUSE_MS: Final = 60_000


class Learned(FastPath):
    """What a connection keeps of one kind of request. `failed_attempts` fast paths were built for it, the last at `attempted_ms`."""

    __slots__ = ("attempted_ms", "failed_attempts")

    def __init__(self, cost: int) -> None:
        super().__init__(cost)
        self.failed_attempts = 0
        self.attempted_ms = 0


class SeenRequest(Learned):
    """Marks that one request of its kind came. The next one of the same kind is worth a fast path."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(256)

    def answer(self, connection: Connection, data: bytes) -> bytes | None:
        return None


def attempts_before(call: Call, now: int) -> int:
    """How many fast paths were built for this kind of request lately; from LEARN_ATTEMPTS_MAX on build no more."""
    before = call.fast_path()
    if not isinstance(before, Learned) or now - before.attempted_ms >= LEARN_PAUSE_MS:
        return 0
    return before.failed_attempts


def learn(call: Call, fast_path: Learned, attempts: int, now: int) -> None:
    fast_path.failed_attempts = attempts + 1
    fast_path.attempted_ms = now
    if not call.add_fast_path(fast_path):  # no memory is left for it
        before = call.fast_path()
        if isinstance(before, Learned):
            before.failed_attempts = LEARN_ATTEMPTS_MAX
            before.attempted_ms = now
