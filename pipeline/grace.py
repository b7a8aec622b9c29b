"""Time in which missing commits are excused: rebalances and coordinator outages. The clock of a group stops meanwhile."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns import MISSING, Ints, ints, locate
from pipeline.series import value_at

# The excused time of a rebalance is limited to the default of max.poll.interval.ms, so that endless rebalances do not hide a lag.
REBALANCE_MS_MAX: Final = 5 * 60_000

Interval = tuple[int, int]


class Clock(NamedTuple):
    """Disjoint excused intervals, sorted by group and time."""

    groups: Ints
    since: Ints
    until: Ints
    before: Ints  # excused time of the group before this interval

    def clock_time(self, group: Ints, at: Ints) -> Ints:
        """The time shown by the group's clock, which stops in excused intervals."""
        index = locate(self.groups, self.since, group, at, "right") - 1
        in_group = (index >= 0) & (value_at(self.groups, index) == group)
        inside = np.minimum(value_at(self.until, index), at) - value_at(self.since, index)
        return at - np.where(in_group, value_at(self.before, index) + inside, 0)

    def first_moment(self, group: Ints, clock_time: Ints) -> Ints:
        """The first moment at which the clock shows this time."""
        index = locate(self.groups, self.since - self.before, group, clock_time, "left") - 1
        in_group = (index >= 0) & (value_at(self.groups, index) == group)
        excused = value_at(self.before, index) + value_at(self.until, index) - value_at(self.since, index)
        return clock_time + np.where(in_group, excused, 0)


def clock_of(groups: Sequence[str], excused: Mapping[str, Sequence[Interval]]) -> Clock:
    """The clocks of these groups, which stop in their excused intervals; the intervals may overlap.

    `groups`: sorted names; the index of a name is the group's number.
    """
    rows = [
        (place, since, until, before)
        for place, name in enumerate(groups)
        for since, until, before in _disjoint(excused.get(name, ()))
    ]
    columns = np.array(rows, np.int64).reshape(len(rows), 4).T
    return Clock(*columns)


def _disjoint(intervals: Sequence[Interval]) -> list[tuple[int, int, int]]:
    disjoint: list[tuple[int, int, int]] = []
    for since, until in sorted(intervals):
        if until <= since:
            continue
        if disjoint and since <= disjoint[-1][1]:
            disjoint[-1] = (disjoint[-1][0], max(disjoint[-1][1], until), disjoint[-1][2])
        else:
            disjoint.append((since, until, disjoint[-1][2] + disjoint[-1][1] - disjoint[-1][0] if disjoint else 0))
    return disjoint


def excused_intervals(homes: Mapping[str, int], rebalances: pa.Table, notes: pa.Table, now_ms: int) -> dict[str, list[Interval]]:
    """Excused intervals of groups, from their `rebalances` and the notes about coordinators. `homes`: the partition of each group."""
    of_partitions = {partition: outages(notes.filter(pc.equal(notes["partition"], partition)), now_ms) for partition in sorted(set(homes.values()))}
    intervals = {name: list(of_partitions[partition]) for name, partition in homes.items()}
    starts, ends = ints(rebalances["start_lo_ms"]), ints(rebalances["end_ms"])
    for name, start_hi, start_lo, until in zip(rebalances["group"].to_pylist(), ints(rebalances["start_hi_ms"]), starts, ends, strict=True):
        begins = assumed_begin_ms(*(int(ms) if ms != MISSING else None for ms in (start_lo, start_hi)))
        if name in intervals and begins is not None:
            intervals[name].append((begins, min(int(until) if until != MISSING else now_ms, begins + REBALANCE_MS_MAX)))
    return intervals


def assumed_begin_ms(start_lo_ms: int | None, start_hi_ms: int | None) -> int | None:
    """When a rebalance began, if it was not longer than usual: the earliest begin may be long before, as of a group that was empty for weeks."""
    if start_lo_ms is None or start_hi_ms is None:
        return start_hi_ms if start_lo_ms is None else start_lo_ms
    return max(start_lo_ms, start_hi_ms - REBALANCE_MS_MAX)


def outages(notes: pa.Table, now_ms: int) -> list[Interval]:
    """Times at which a partition's coordinator was suspended or not loaded, from its notes (kind 9)."""
    kinds = ints(notes["kind"]) == 9
    intervals: list[Interval] = []
    since: int | None = None
    for at, body in zip(ints(notes["at_ms"])[kinds], notes["body"].filter(pa.array(kinds)).to_pylist(), strict=True):
        change = json.loads(body)["what"]
        if change in (1, 2) and since is None:
            since = int(at)
        elif change in (0, 3) and since is not None:
            intervals.append((since, int(at)))
            since = None
    return [*intervals, (since, now_ms)] if since is not None else intervals
