"""The broker's one clock: whole milliseconds that never step back and may be stored."""

from __future__ import annotations

import time
from collections.abc import Callable

# A wall clock this far ahead of ours means that the machine slept: the monotonic clock stood still meanwhile.
SUSPENDED_MS = 1_000
NS_PER_MS = 1_000_000


class Clock:
    """Wall time at start plus monotonic time since; `now` is the last reading.

    A wall clock that falls behind is ignored. One that runs ahead moves `now` forward; whoever keeps deadlines moves
    them by what `read` returns, since nobody could have met them while the machine slept.
    """

    __slots__ = ("_offset", "_wall_ns", "monotonic_ns", "next_ns", "now")

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, monotonic_ns: Callable[[], int] = time.monotonic_ns, at_least: int = 0
    ) -> None:
        self._wall_ns = wall_ns
        self.monotonic_ns = monotonic_ns
        self._offset = max(wall_ns() // NS_PER_MS, at_least) - monotonic_ns() // NS_PER_MS
        self.next_ns = 0  # when the next millisecond begins
        self.now = 0
        self.tick()

    def tick(self) -> int:
        """Read the time anew, without a look at the wall clock: cheap enough for every chunk of input."""
        monotonic_ns = self.monotonic_ns()
        if monotonic_ns >= self.next_ns:
            self.move_to(monotonic_ns)
        return self.now

    def move_to(self, monotonic_ns: int) -> None:
        """A new millisecond has begun. Apart from `tick`, as a busy broker reads the time many times in one."""
        ms = monotonic_ns // NS_PER_MS
        self.next_ns = (ms + 1) * NS_PER_MS
        self.now = self._offset + ms

    def read(self) -> int:
        """Read the time anew; answers by how many milliseconds it jumped because the machine slept."""
        now = self.tick()
        jump = self._wall_ns() // NS_PER_MS - now
        if jump > SUSPENDED_MS:
            self._offset += jump
            self.now = now + jump
            return jump
        return 0

    def raise_to(self, timestamp: int) -> int:
        """Not before the newest timestamp replayed: what was stored is in the past. Answers by how much `now` jumped."""
        jump = timestamp - self.now
        if jump <= 0:
            return 0
        self._offset += jump
        self.now = timestamp
        return jump
