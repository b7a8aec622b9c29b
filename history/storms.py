"""Storms: rebalances that follow each other closely."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

WINDOW_MS_MAX: Final = 60_000
CHAINED_MIN: Final = 3


class Stretch(NamedTuple):
    """The latest begin and the end of a rebalance (None: unknown), and the maximum distance to the previous one in a storm."""

    start_ms: int | None
    end_ms: int | None
    window_ms: int


def window_ms(timeouts_ms: Iterable[int]) -> int:
    """The maximum distance of rebalances in a storm: the longest rebalance timeout, at most a minute."""
    return min(max(timeouts_ms, default=WINDOW_MS_MAX), WINDOW_MS_MAX)


def storms(stretches: Sequence[Stretch]) -> list[int | None]:
    """For each rebalance the number of the first rebalance of its storm; None outside of storms."""
    found: list[int | None] = [None] * len(stretches)
    first = 0
    for number, one in enumerate(stretches):
        before = stretches[number - 1].end_ms if number else None
        if before is None or one.start_ms is None or one.start_ms - before >= one.window_ms:
            first = number
        if number - first + 1 >= CHAINED_MIN:
            found[first : number + 1] = [first] * (number + 1 - first)
    return found
