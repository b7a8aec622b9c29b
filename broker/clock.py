"""The broker's one clock: whole milliseconds that never step back and may be stored."""

from __future__ import annotations

import time
from collections.abc import Callable

# A wall clock this far ahead of ours means that the machine slept: the monotonic clock stood still meanwhile.
SUSPENDED_MS = 1_000


class Clock:
    """Wall time at start plus monotonic time since; `now` is the last reading.

    A wall clock that falls behind is ignored. One that runs ahead moves `now` forward; whoever keeps deadlines moves
    them by what `read` returns, since nobody could have met them while the machine slept.
    """

    __slots__ = ("_monotonic", "_offset", "_wall", "now")

    def __init__(
        self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic, at_least: int = 0
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._offset = max(int(wall() * 1000), at_least) - int(monotonic() * 1000)
        self.now = self._offset + int(monotonic() * 1000)

    def tick(self) -> int:
        """Read the time anew, without a look at the wall clock: cheap enough for every chunk of input."""
        now = self._offset + int(self._monotonic() * 1000)
        self.now = now
        return now

    def read(self) -> int:
        """Read the time anew; answers by how many milliseconds it jumped because the machine slept."""
        now = self.tick()
        jump = int(self._wall() * 1000) - now
        if jump > SUSPENDED_MS:
            self._offset += jump
            self.now = now + jump
            return jump
        return 0

    def raise_to(self, timestamp: int) -> None:
        """Not before the newest timestamp replayed: what was stored is in the past."""
        if timestamp > self.now:
            self._offset += timestamp - self.now
            self.now = timestamp
