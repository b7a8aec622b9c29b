"""Rebalances that follow one another so closely that they are one trouble."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

WINDOW_MS_MAX: Final = 60_000
CHAINED_MIN: Final = 3


class Stretch(NamedTuple):
    """When a rebalance began at the latest, and ended (None: not known), and how close the one before has to be."""

    start_ms: int | None
    end_ms: int | None
    window_ms: int


def window_ms(timeouts_ms: Iterable[int]) -> int:
    """Rebalances closer than that belong together: the longest rebalance timeout, a minute at most."""
    return min(max(timeouts_ms, default=WINDOW_MS_MAX), WINDOW_MS_MAX)


def storms(stretches: Sequence[Stretch]) -> list[int | None]:
    """For each the number of the first one of its storm, None for one that is in none."""
    found: list[int | None] = [None] * len(stretches)
    first = 0
    for number, one in enumerate(stretches):
        before = stretches[number - 1].end_ms if number else None
        if before is None or one.start_ms is None or one.start_ms - before >= one.window_ms:
            first = number
        if number - first + 1 >= CHAINED_MIN:
            found[first : number + 1] = [first] * (number + 1 - first)
    return found
