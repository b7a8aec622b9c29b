"""How long a command waits for what does not come: for brokers that do not answer, for leaders and for coordinators."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

PAUSE_SECONDS: Final = 0.1
PAUSE_SECONDS_MAX: Final = 1.0
# What a broker gets also when the time is up, since others were waited for, not it: one that has answered before, and one that was not asked yet.
ANSWERING_SECONDS: Final = 1.0
GRACE_SECONDS: Final = 0.4


class Limits(NamedTuple):
    """The time limits of a call, in seconds: of all its attempts together, and of each one."""

    call: float
    attempt: float


class Mark(NamedTuple):
    """A moment, and what was spent until then."""

    at: float
    spent: float


class Patience:
    """The time that all calls of a command together may still spend on waiting. An answered request costs nothing, however many there are.

    `limit`: the seconds in all, at the moment.
    """

    def __init__(self, limit: Callable[[], float]) -> None:
        self._limit = limit
        self._spent = 0.0

    @property
    def left(self) -> float:
        return max(0.0, self._limit() - self._spent)

    @property
    def spent(self) -> float:
        return self._spent

    def for_broker(self, *, answering: bool) -> float:
        """The time for a broker that has not failed yet."""
        return max(self.left, min(ANSWERING_SECONDS if answering else GRACE_SECONDS, self._limit()))

    def share(self, share: float) -> float:
        """The time for one of several parts, each of which may not be answered."""
        return max(self.left * share, min(GRACE_SECONDS, self._limit()))

    def renew(self) -> None:
        """Begin anew: a command without an end has done a step."""
        self._spent = 0.0

    def mark(self) -> Mark:
        return Mark(time.monotonic(), self._spent)

    def spend(self, since: Mark) -> None:
        """Count the time since a mark as spent. What calls within it have spent is a part of it."""
        self._spent = max(self._spent, since.spent + time.monotonic() - since.at)


class Wait:
    """Repeats a step, with growing pauses, while the command has time for it."""

    def __init__(self, patience: Patience, seconds: float) -> None:
        self._patience = patience
        self._mark = patience.mark()
        self._pause = PAUSE_SECONDS
        self.deadline = self._mark.at + seconds

    def again(self) -> bool:
        """Pause before the next attempt; False if the time is up."""
        self._patience.spend(self._mark)
        if time.monotonic() + self._pause >= self.deadline or not self._patience.left:
            return False
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, PAUSE_SECONDS_MAX)
        self._patience.spend(self._mark)
        return True


def seconds_text(seconds: float) -> str:
    return f"{max(round(seconds, 1), 0.1):g} s"
