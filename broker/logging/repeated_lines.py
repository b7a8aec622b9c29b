"""Write a repeated warning or error once, then count it: a line with `repeated` says how often it has come since.

That line is written after a second, then at doubling intervals while the repetition goes on. Lines are equal when their level,
event and fields are equal, and the type and place of their exception. At most FOLLOWED_MAX different lines are counted; any
other line is written every time.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from broker.logging.line_format import LEVELS, Details, Render

SECONDS_MIN = 1.0
SECONDS_MAX = 60.0
FOLLOWED_MAX = 200

Key = tuple[str, ...]


class Followed:
    """A line that was written, and the count of its repetitions."""

    __slots__ = ("count", "details", "level", "seconds", "until")

    def __init__(self, level: str, details: Details, now: float) -> None:
        self.level = level
        self.details = details
        self.count = 0
        self.seconds = SECONDS_MIN
        self.until = now + SECONDS_MIN


class Repeats:
    def __init__(self, render: Render, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._render = render
        self._monotonic = monotonic
        self._followed: dict[Key, Followed] = {}
        self._lock = threading.Lock()  # lines come from several threads

    def repeated(self, level: str, details: Details) -> bool:
        """Count the line if it was written before; returns whether it was."""
        if LEVELS[level] < LEVELS["warning"]:
            return False
        key = key_of(level, details)
        with self._lock:
            followed = self._followed.get(key)
            if followed is not None:
                followed.count += 1
                return True
            if len(self._followed) < FOLLOWED_MAX:
                kept = {name: value for name, value in details.items() if name != "exc_info"}
                self._followed[key] = Followed(level, kept, self._monotonic())
            return False

    def wait_seconds(self) -> float | None:
        """Time until `overdue` has lines; None: no line is followed."""
        with self._lock:
            if not self._followed:
                return None
            return max(0.0, min(followed.until for followed in self._followed.values()) - self._monotonic())

    def overdue(self, at_end: bool = False) -> list[bytes]:
        """The lines with repetition counts that are due now."""
        now = self._monotonic()
        lines = []
        with self._lock:
            for key, followed in list(self._followed.items()):
                if followed.until > now and not at_end:
                    continue
                if not followed.count:
                    del self._followed[key]
                    continue
                lines.append(self._render(followed.level, {**followed.details, "repeated": followed.count}))
                followed.count = 0
                followed.seconds = min(2 * followed.seconds, SECONDS_MAX)
                followed.until = now + followed.seconds
        return lines


def key_of(level: str, details: Details) -> Key:
    fields = [f"{name}={value!r}" for name, value in details.items() if name != "exc_info"]
    return (level, *fields, *place_of(details.get("exc_info")))


def place_of(exc_info: Any) -> Key:
    """The type of the exception and where it was raised."""
    if exc_info is True:
        exc_info = sys.exc_info()
    error = exc_info[1] if isinstance(exc_info, tuple) else exc_info
    if not isinstance(error, BaseException):
        return ()
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}" if at is not None else ""
    return (type(error).__qualname__, where)
