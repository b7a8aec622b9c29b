"""The times of a group's commits, in log order: those before each of its records tell which members had fallen silent.

`pipeline/edges.py` computes the same for all groups of a cluster at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from statistics import median_high, median_low
from typing import Final

from history.commits import NearbyCommits

GAPS: Final = 10  # the usual time between commits is the median of so many


class CommitTimes:
    def __init__(self) -> None:
        self._last_ms: dict[str, int] = {}
        self._gaps: dict[str, deque[int]] = {}

    def add(self, partition: str, at_ms: int, *, deleted: bool = False) -> None:
        """A commit for `topic-partition`, or the deletion of its offset, after which commits begin anew."""
        if deleted:
            self._last_ms.pop(partition, None)
            self._gaps.pop(partition, None)
            return
        before = self._last_ms.get(partition)
        gaps = self._gaps.setdefault(partition, deque(maxlen=GAPS))
        if before is not None:
            gaps.append(at_ms - before)
        self._last_ms[partition] = at_ms

    def before_now(self) -> NearbyCommits:
        """The commits so far, for a record that comes next. What follows the record is not known yet, nor needed to infer its rebalance."""
        return NearbyCommits(dict(self._last_ms), {}, {partition: middle(gaps) for partition, gaps in self._gaps.items()})


def middle(gaps: Collection[int]) -> int:
    """Their median; -1 if there are none."""
    return (median_low(gaps) + median_high(gaps)) // 2 if gaps else -1
