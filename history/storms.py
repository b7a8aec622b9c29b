"""Storms: rebalances that follow each other closely."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

WINDOW_MS_MAX: Final = 60_000
CHAINED_MIN: Final = 3


class RebalanceSpan(NamedTuple):
    """The latest begin and the end of a rebalance (None: unknown), and the maximum distance to the previous rebalance in a storm."""

    start_ms: int | None
    end_ms: int | None
    window_ms: int


def window_ms(timeouts_ms: Iterable[int]) -> int:
    """The maximum distance of rebalances in a storm: the longest rebalance timeout, at most a minute."""
    return min(max(timeouts_ms, default=WINDOW_MS_MAX), WINDOW_MS_MAX)


def storms(spans: Sequence[RebalanceSpan]) -> list[int | None]:
    """For each rebalance the number of the first rebalance of its storm; None outside of storms."""
    first_numbers: list[int | None] = [None] * len(spans)
    first = 0
    for number, span in enumerate(spans):
        previous_end = spans[number - 1].end_ms if number else None
        if previous_end is None or span.start_ms is None or span.start_ms - previous_end >= span.window_ms:
            first = number
        if number - first + 1 >= CHAINED_MIN:
            first_numbers[first : number + 1] = [first] * (number + 1 - first)
    return first_numbers
