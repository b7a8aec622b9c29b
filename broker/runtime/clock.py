"""The broker's clock: monotonic time for deadlines, and wall time for stored timestamps.

Deadlines and durations follow `now`: a step of the wall clock does not move them, and time that the machine sleeps does not count.

`wall` stamps commits, records and notes. A wall clock can be wrong for seconds, and data that is deleted by a wrong time is lost
for good. So deletion by time (`wall_for_deletion`) is suspended after a step of more than a minute (smaller steps add up), and after a start
more than a minute away from the data directory's last use (or if that is unknown). It resumes when the wall clock has run as fast as
the boot clock for `clock.settle.ms`.

While deletion is suspended, `wall` follows a step forward at once but ignores a step back, so that no record is stamped too old.
Afterwards the new time is accepted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from broker.logging.logs import log

NS_PER_MS: Final = 1_000_000
STEP_MS: Final = 60_000  # a larger deviation of the wall clock counts as a step
NOT_YET: Final = -1


def boot_clock() -> Callable[[], int]:
    """A monotonic clock in nanoseconds that also counts the machine's sleep, unlike `time.monotonic_ns`.

    Without such a clock, sleep looks like a step forward of the wall clock, and deletion by time waits needlessly.
    """
    id = getattr(time, "CLOCK_BOOTTIME", None)  # Linux
    if id is None and sys.platform == "darwin":
        id = time.CLOCK_MONOTONIC  # counts sleep on macOS; time.monotonic_ns is CLOCK_UPTIME_RAW there
    if id is None:
        return time.monotonic_ns
    boot: int = id
    return lambda: time.clock_gettime_ns(boot)


class Clock:
    """`now` (monotonic) and `wall` are in milliseconds, as of the last `tick`."""

    __slots__ = (
        "_boot_ns",
        "_expected_offset",
        "_settle_ms",
        "_slept_ms",
        "_steady_since",
        "_trusted_from",
        "_trusted_offset",
        "_wall_ns",
        "monotonic_ns",
        "moved",
        "next_ns",
        "now",
        "wall",
    )

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        boot_ns: Callable[[], int] | None = None,
        settle_ms: int = 0,
    ) -> None:
        """`boot_ns`: a clock that counts sleep (`boot_clock`); without it, sleep looks like a step of the wall clock."""
        self._wall_ns = wall_ns
        self.monotonic_ns = monotonic_ns
        # Called in each new millisecond, before the requests that are read in it are processed. While it returns True, it is called before each
        # chunk of input: in the millisecond in which connections were closed, clients may have connected again, or have waited to be accepted.
        self.moved: Callable[[], bool] | None = None
        self._boot_ns = boot_ns or monotonic_ns
        self._settle_ms = settle_ms
        self.now = monotonic_ns() // NS_PER_MS
        self.wall = wall_ns() // NS_PER_MS
        self._slept_ms = self._boot_ns() // NS_PER_MS - self.now  # since the machine booted
        # Both are wall time minus `now`, corrected for sleep. Expected: since the last step; trusted: when the clock was last trusted.
        self._expected_offset = self.wall - self.now
        self._trusted_offset = self._expected_offset
        self._trusted_from = 0  # monotonic time at which the clock is trusted again, 0 while it is trusted
        self._steady_since = self.now
        self.next_ns = 0  # start of the next millisecond
        self.tick()

    def tick(self) -> int:
        """Read the clocks and return `now`; cheap enough to call for every chunk of input."""
        monotonic_ns = self.monotonic_ns()
        if monotonic_ns >= self.next_ns:
            self.move_to(monotonic_ns)
        return self.now

    def move_to(self, monotonic_ns: int) -> None:
        """Begin a new millisecond."""
        ms = monotonic_ns // NS_PER_MS
        self.next_ns = (ms + 1) * NS_PER_MS
        self.now = ms
        self.wall = wall = self._wall_ns() // NS_PER_MS
        if self._trusted_from or not -STEP_MS <= wall - ms - self._expected_offset <= STEP_MS:
            self._check_wall_clock()
        if self.moved is not None and self.moved():
            self.next_ns = 0

    def _check_wall_clock(self) -> None:
        """Detect a step of the wall clock, or the end of the wait after one."""
        now, wall = self.now, self.wall
        slept = self._boot_ns() // NS_PER_MS - now
        self._expected_offset += slept - self._slept_ms
        self._trusted_offset += slept - self._slept_ms
        self._slept_ms = slept
        step = wall - now - self._expected_offset
        if not -STEP_MS <= step <= STEP_MS:
            self._expected_offset += step
            self._steady_since = now
            self._distrust_wall_time()
            log.warning("deletion by time is suspended: the wall clock was set", ahead_seconds=step // 1000, until=self._trusted_at())
        if self._trusted_from and now >= self._trusted_from:
            self._trusted_from = 0
            self._expected_offset = self._trusted_offset = wall - now
            log.info("deletion by time goes on: the wall clock has run steadily", time=format_utc(wall))
        if self._trusted_from:
            self.wall = max(wall, now + self._trusted_offset)

    def start_after(self, last_ms: int) -> None:
        """Compare the clock with `last_ms`, the last use of the data directory with a trusted clock (NOT_YET: unknown)."""
        self.tick()
        away = self.wall - last_ms
        if last_ms == NOT_YET:
            self._distrust_wall_time()
            log.warning("deletion by time is suspended: the data directory does not say when it was last in use", until=self._trusted_at())
        elif not -STEP_MS <= away <= STEP_MS:
            self._trusted_offset -= away
            self._distrust_wall_time()
            log.warning(
                "deletion by time is suspended: the clock is far from when the data directory was last in use",
                ahead_seconds=away // 1000,
                until=self._trusted_at(),
            )
        self._check_wall_clock()

    def _distrust_wall_time(self) -> None:
        self._trusted_from = max(self.now + self._settle_ms, 1)

    def _trusted_at(self) -> str:
        return format_utc(self.wall + self._trusted_from - self.now)

    @property
    def settled(self) -> bool:
        """Whether the wall clock has run steadily for long enough."""
        return not self._trusted_from

    @property
    def steady_since_ms(self) -> int:
        """The wall time since which the clock has run steadily; NOT_YET while it is not trusted.

        A stored timestamp that is later than the current time was written before the returned time, by a wrong clock.
        """
        return NOT_YET if self._trusted_from else self.wall - (self.now - self._steady_since)

    def wall_for_deletion(self) -> int:
        """The current wall time, by which old data may be deleted; NOT_YET: delete nothing."""
        self.move_to(self.monotonic_ns())
        return NOT_YET if self._trusted_from else self.wall

    @property
    def problem(self) -> str:
        """The problem of the clock, for `tenure health`; "" while it is trusted."""
        return f"deletion by time is suspended until {self._trusted_at()}" if self._trusted_from else ""


def format_utc(ms: int) -> str:
    """The time in UTC, or the milliseconds if a wrong clock is outside of the calendar."""
    try:
        return datetime.fromtimestamp(ms // 1000, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
