"""Write a repeated warning or error once, then count it: a line with the field `repeated` reports the number of repetitions.

That line is written after a second, then at doubling intervals while the line repeats. Lines are equal when their level, event and
fields are equal, and the type and location of their exception. At most COUNTED_MAX different lines are counted; any other line is
written every time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

SECONDS_MIN = 1.0
SECONDS_MAX = 60.0
COUNTED_MAX = 200
LEVELS = ("warning", "error", "critical")  # whose lines are counted
OWN = ("exc_info", "time")  # what each of equal events has of its own

Key = tuple[str, ...]
Details = Mapping[str, Any]


class CountedLine:
    """A written line, and the count of its repetitions."""

    __slots__ = ("count", "details", "level", "seconds", "until")

    def __init__(self, level: str, details: Details, now: float) -> None:
        self.level = level
        self.details = details
        self.count = 0
        self.seconds = SECONDS_MIN
        self.until = now + SECONDS_MIN


class Repeats:
    def __init__(self, render: Callable[[str, Details], bytes], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._render = render
        self._monotonic = monotonic
        self._counted: dict[Key, CountedLine] = {}
        self._lock = threading.Lock()  # lines come from several threads

    def count_if_repeated(self, level: str, details: Details) -> bool:
        """Count the line if it was written before; returns whether it was."""
        if level not in LEVELS:
            return False
        key = key_of(level, details)
        with self._lock:
            counted = self._counted.get(key)
            if counted is not None:
                counted.count += 1
                return True
            if len(self._counted) < COUNTED_MAX:
                fields = {name: value for name, value in details.items() if name not in OWN}
                self._counted[key] = CountedLine(level, fields, self._monotonic())
            return False

    def wait_seconds(self) -> float | None:
        """Seconds until `due_lines` must be called; None: no line is counted."""
        with self._lock:
            if not self._counted:
                return None
            return max(0.0, min(counted.until for counted in self._counted.values()) - self._monotonic())

    def due_lines(self, at_end: bool = False) -> list[bytes]:
        """The lines with counts that are due now; `at_end`: all of them."""
        now = self._monotonic()
        lines = []
        with self._lock:
            for key, counted in list(self._counted.items()):
                if counted.until > now and not at_end:
                    continue
                if not counted.count:
                    del self._counted[key]
                    continue
                lines.append(self._render(counted.level, {**counted.details, "repeated": counted.count}))
                counted.count = 0
                counted.seconds = min(2 * counted.seconds, SECONDS_MAX)
                counted.until = now + counted.seconds
        return lines


def key_of(level: str, details: Details) -> Key:
    fields = [f"{name}={value!r}" for name, value in details.items() if name not in OWN]
    return (level, *fields, *exception_key(details.get("exc_info")))


def exception_key(error: BaseException | None) -> Key:
    """The type of the exception and where it was raised."""
    if error is None:
        return ()
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    location = f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}" if at is not None else ""
    return (type(error).__qualname__, location)
