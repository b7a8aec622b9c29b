"""Time that is excused: of rebalances, and of coordinators that were away. A clock that stands still meanwhile."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.columns import MISSING, Ints, ints, locate
from pipeline.series import picked

# A rebalance may take as long as the usual max.poll.interval.ms; a group that does nothing else is not excused for good.
REBALANCE_MS_MAX: Final = 5 * 60_000

Interval = tuple[int, int]


class Clock(NamedTuple):
    """Excused intervals, apart from each other, by group and time."""

    groups: Ints
    since: Ints
    until: Ints
    before: Ints  # excused in the group before this one begins

    def counted(self, group: Ints, at: Ints) -> Ints:
        """What this clock shows."""
        index = locate(self.groups, self.since, group, at, "right") - 1
        mine = (index >= 0) & (picked(self.groups, index) == group)
        inside = np.minimum(picked(self.until, index), at) - picked(self.since, index)
        return at - np.where(mine, picked(self.before, index) + inside, 0)

    def shows(self, group: Ints, counted: Ints) -> Ints:
        """When it first shows that."""
        index = locate(self.groups, self.since - self.before, group, counted, "left") - 1
        mine = (index >= 0) & (picked(self.groups, index) == group)
        excused = picked(self.before, index) + picked(self.until, index) - picked(self.since, index)
        return counted + np.where(mine, excused, 0)


def clock_of(groups: Sequence[str], excused: Mapping[str, Sequence[Interval]]) -> Clock:
    """`groups`: sorted names, whose places are the numbers. Intervals may overlap."""
    rows = [
        (place, since, until, before)
        for place, name in enumerate(groups)
        for since, until, before in _apart(excused.get(name, ()))
    ]
    columns = np.array(rows, np.int64).reshape(len(rows), 4).T
    return Clock(*columns)


def _apart(intervals: Sequence[Interval]) -> list[tuple[int, int, int]]:
    out: list[tuple[int, int, int]] = []
    for since, until in sorted(intervals):
        if until <= since:
            continue
        if out and since <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], until), out[-1][2])
        else:
            out.append((since, until, out[-1][2] + out[-1][1] - out[-1][0] if out else 0))
    return out


def excused(groups: Sequence[str], rebalances: pa.Table, notes: pa.Table, now_ms: int) -> dict[str, list[Interval]]:
    """Of these groups of one bucket: from gold `rebalances` and silver `notes` of the same."""
    away = outages(notes, now_ms)
    out = {name: list(away) for name in groups}
    starts, ends = ints(rebalances["start_lo_ms"]), ints(rebalances["end_ms"])
    for name, later, since, until in zip(rebalances["group"].to_pylist(), ints(rebalances["start_hi_ms"]), starts, ends, strict=True):
        begins = int(later if since == MISSING else since)
        if name in out and begins != MISSING:
            out[name].append((begins, min(int(until) if until != MISSING else now_ms, begins + REBALANCE_MS_MAX)))
    return out


def outages(notes: pa.Table, now_ms: int) -> list[Interval]:
    """While the coordinator of the bucket was suspended or not loaded, as its notes say (kind 9)."""
    kinds = ints(notes["kind"]) == 9
    out: list[Interval] = []
    since: int | None = None
    for at, body in zip(ints(notes["at_ms"])[kinds], notes["body"].filter(pa.array(kinds)).to_pylist(), strict=True):
        what = json.loads(body)["what"]
        if what in (1, 2) and since is None:
            since = int(at)
        elif what in (0, 3) and since is not None:
            out.append((since, int(at)))
            since = None
    return [*out, (since, now_ms)] if since is not None else out
