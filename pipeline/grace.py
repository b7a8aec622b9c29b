"""Excused time: rebalances and coordinator outages. The clock of a group stops during excused time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.columns import MISSING, Ints, ints, locate
from pipeline.series import picked

# At most the default of max.poll.interval.ms is excused per rebalance, so that endless rebalances do not hide a lag.
REBALANCE_MS_MAX: Final = 5 * 60_000

Interval = tuple[int, int]


class Clock(NamedTuple):
    """Disjoint excused intervals, sorted by group and time."""

    groups: Ints
    since: Ints
    until: Ints
    before: Ints  # excused in the group before this one begins

    def counted(self, group: Ints, at: Ints) -> Ints:
        """The time counted by this clock, which stops in excused intervals."""
        index = locate(self.groups, self.since, group, at, "right") - 1
        mine = (index >= 0) & (picked(self.groups, index) == group)
        inside = np.minimum(picked(self.until, index), at) - picked(self.since, index)
        return at - np.where(mine, picked(self.before, index) + inside, 0)

    def shows(self, group: Ints, counted: Ints) -> Ints:
        """The first moment at which the clock reaches this count."""
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
    """Excused intervals of these groups, from gold `rebalances` and silver `notes` of their bucket."""
    away = outages(notes, now_ms)
    out = {name: list(away) for name in groups}
    starts, ends = ints(rebalances["start_lo_ms"]), ints(rebalances["end_ms"])
    for name, later, since, until in zip(rebalances["group"].to_pylist(), ints(rebalances["start_hi_ms"]), starts, ends, strict=True):
        begins = int(later if since == MISSING else since)
        if name in out and begins != MISSING:
            out[name].append((begins, min(int(until) if until != MISSING else now_ms, begins + REBALANCE_MS_MAX)))
    return out


def outages(notes: pa.Table, now_ms: int) -> list[Interval]:
    """Times at which the bucket's coordinator was suspended or not loaded, from its notes (kind 9)."""
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
