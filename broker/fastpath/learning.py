"""When to build a fast path. Building costs more than the usual path, so a client whose requests keep differing gets no more fast paths for a while.

Members that take turns on one connection send such requests: each would replace the fast path of the member before.
"""

from __future__ import annotations

from typing import Final

from broker.net.connection import NOT_MINE, Connection, FastPath
from broker.net.dispatch import Call

LEARN_ATTEMPTS_MAX: Final = 16
LEARN_PAUSE_MS: Final = 60_000


class LearnedFastPath(FastPath):
    """A fast path that counts the attempts to build one for its kind of request; the last attempt was at `attempted_ms`."""

    __slots__ = ("attempted_ms", "recent_attempts")

    def __init__(self, cost: int, any_size: bool = False) -> None:
        super().__init__(cost, any_size)
        self.recent_attempts = 0
        self.attempted_ms = 0


class FirstRequest(LearnedFastPath):
    """Marks that one request of a kind has arrived: the second builds the fast path."""

    __slots__ = ()

    def __init__(self, any_size: bool) -> None:
        super().__init__(256, any_size)

    def answer(self, connection: Connection, data: bytes) -> bytes | None:
        return NOT_MINE


def _recent_attempts(call: Call, now: int) -> int:
    previous = call.fast_path()
    if not isinstance(previous, LearnedFastPath) or now - previous.attempted_ms >= LEARN_PAUSE_MS:
        return 0
    return previous.recent_attempts


def may_learn(call: Call, now: int) -> bool:
    """Whether to build a fast path from this request. None is built while requests are traced: the trace shows decoded requests."""
    return call.connection.context.trace is None and _recent_attempts(call, now) < LEARN_ATTEMPTS_MAX


def may_learn_repeated(call: Call, now: int, any_size: bool = False) -> bool:
    """Whether to build a fast path, if this is not the first request of its kind; the first is only marked."""
    if isinstance(call.fast_path(), LearnedFastPath):
        return may_learn(call, now)
    if call.connection.context.trace is None:
        call.add_fast_path(FirstRequest(any_size))
    return False


def learn(call: Call, fast_path: LearnedFastPath, now: int) -> None:
    """Use `fast_path` for requests like this one, and count the attempt."""
    fast_path.recent_attempts = _recent_attempts(call, now) + 1
    fast_path.attempted_ms = now
    if not call.add_fast_path(fast_path):  # the memory limit of fast paths is reached
        previous = call.fast_path()
        if isinstance(previous, LearnedFastPath):
            previous.recent_attempts = LEARN_ATTEMPTS_MAX
            previous.attempted_ms = now
