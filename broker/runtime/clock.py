"""The broker's clock: monotonic time for deadlines, and wall time for what is stored.

Deadlines and durations follow `now`: no step of the wall clock moves them, and the time that a machine sleeps does not count.

`wall` is the time that is stored: of commits, of records that the broker stamps, of notes. A wall clock can be wrong for seconds,
and what is then deleted by time is gone for good. So the clock has to have run steadily for a while before anything is deleted by
its time (`deletion_ms`): after each step of more than a minute, all smaller ones since the last one added up, and after a start
that far from when the data directory was last in use. Steady means: as far as the machine's other clock, sleep included.

Until then `wall` follows a step ahead at once, and a step back not at all: what is stored meanwhile is never older than it seems.
Then the new time counts, whatever it is.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from broker.logging.logs import log

NS_PER_MS: Final = 1_000_000
STEP_MS: Final = 60_000  # the wall clock may be that far from where it should be before it counts as set
NOT_YET: Final = -1


def boot_clock() -> Callable[[], int]:
    """A monotonic clock in nanoseconds that goes on while the machine sleeps, as Python's does not.

    On a system without one, sleep looks like a wall clock that was set ahead: deletion waits for a while, and nothing else.
    """
    id = getattr(time, "CLOCK_BOOTTIME", None)  # Linux
    if id is None and sys.platform == "darwin":
        id = time.CLOCK_MONOTONIC  # there it is this one; time.monotonic_ns is CLOCK_UPTIME_RAW
    if id is None:
        return time.monotonic_ns
    boot: int = id
    return lambda: time.clock_gettime_ns(boot)


class Clock:
    """`now` and `wall` are milliseconds as last read; `tick` reads them anew."""

    __slots__ = (
        "_boot_ns",
        "_course",
        "_settle_ms",
        "_settles_at",
        "_since",
        "_slept",
        "_trusted",
        "_wall_ns",
        "monotonic_ns",
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
        """`boot_ns` as `boot_clock`; without it sleep is not told from a step."""
        self._wall_ns = wall_ns
        self.monotonic_ns = monotonic_ns
        self._boot_ns = boot_ns or monotonic_ns
        self._settle_ms = settle_ms
        self.now = monotonic_ns() // NS_PER_MS
        self.wall = wall_ns() // NS_PER_MS
        self._slept = self._boot_ns() // NS_PER_MS - self.now  # since the machine was started
        # Wall time minus `now`, sleep added: where the wall clock should be, and where it was before it was set, if it was.
        self._course = self.wall - self.now
        self._trusted = self._course
        self._settles_at = 0  # when a clock that was set counts, 0 while it does
        self._since = self.now  # since when it has run steadily
        self.next_ns = 0  # when the next millisecond begins
        self.tick()

    def tick(self) -> int:
        """Read the time anew, cheap enough for every chunk of input: the monotonic time."""
        monotonic_ns = self.monotonic_ns()
        if monotonic_ns >= self.next_ns:
            self.move_to(monotonic_ns)
        return self.now

    def move_to(self, monotonic_ns: int) -> None:
        """A new millisecond has begun. Apart from `tick`, as a busy broker reads the time many times in one."""
        ms = monotonic_ns // NS_PER_MS
        self.next_ns = (ms + 1) * NS_PER_MS
        self.now = ms
        self.wall = wall = self._wall_ns() // NS_PER_MS
        if self._settles_at or not -STEP_MS <= wall - ms - self._course <= STEP_MS:
            self._judge()

    def _judge(self) -> None:
        """The wall clock is not where it should be, or was not a while ago."""
        now, wall = self.now, self.wall
        slept = self._boot_ns() // NS_PER_MS - now
        self._course += slept - self._slept
        self._trusted += slept - self._slept
        self._slept = slept
        step = wall - now - self._course
        if not -STEP_MS <= step <= STEP_MS:
            self._course += step
            self._since = now
            self._wait()
            log.warning("deletion by time is suspended: the wall clock was set", ahead_seconds=step // 1000, until=self._until())
        if self._settles_at and now >= self._settles_at:
            self._settles_at = 0
            self._course = self._trusted = wall - now
            log.info("deletion by time goes on: the wall clock has run steadily", time=shown(wall))
        if self._settles_at:
            self.wall = max(wall, now + self._trusted)

    def start_after(self, last_ms: int) -> None:
        """The data directory was last in use at `last_ms` by a clock that counted; NOT_YET where that is not known."""
        self.tick()
        away = self.wall - last_ms
        if last_ms == NOT_YET:
            self._wait()
            log.warning("deletion by time is suspended: the data directory does not say when it was last in use", until=self._until())
        elif not -STEP_MS <= away <= STEP_MS:
            self._trusted -= away
            self._wait()
            log.warning(
                "deletion by time is suspended: the clock is far from when the data directory was last in use",
                ahead_seconds=away // 1000,
                until=self._until(),
            )
        self._judge()

    def _wait(self) -> None:
        self._settles_at = max(self.now + self._settle_ms, 1)

    def _until(self) -> str:
        return shown(self.wall + self._settles_at - self.now)

    # What is deleted by time.

    @property
    def settled(self) -> bool:
        """Whether the wall clock has run steadily for long enough."""
        return not self._settles_at

    @property
    def steady_ms(self) -> int:
        """The wall time from which on it has; NOT_YET where it has not.

        What was stored with a later time than now was stored before, by a clock that was wrong.
        """
        return NOT_YET if self._settles_at else self.wall - (self.now - self._since)

    def deletion_ms(self) -> int:
        """The wall time, read anew, by which old data may be deleted; NOT_YET: none may."""
        self.move_to(self.monotonic_ns())
        return NOT_YET if self._settles_at else self.wall

    @property
    def trouble(self) -> str:
        """In words, for people; "" where its time counts."""
        return f"deletion by time is suspended until {self._until()}" if self._settles_at else ""


def shown(ms: int) -> str:
    """In UTC, as far as a wrong clock lets itself be shown."""
    try:
        return datetime.fromtimestamp(ms // 1000, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
