"""Count events that may repeat thousands of times a second: each kind gets a log line at once, and then one a minute with its number."""

from __future__ import annotations

from typing import Final

LINE_MS: Final = 60_000
KNOWN_MAX: Final = 1_000  # kinds that are counted; beyond that all counts begin anew


class LineCounts:
    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[tuple[str, ...], tuple[int, int]] = {}  # when the next line is due, and the events since the last line

    def count(self, kind: tuple[str, ...], now: int) -> int:
        """The number of events to report now, or 0."""
        due, events = self._counts.get(kind, (0, 0))
        if now < due:
            self._counts[kind] = due, events + 1
            return 0
        if len(self._counts) >= KNOWN_MAX:
            self._counts.clear()
        self._counts[kind] = now + LINE_MS, 0
        return events + 1
