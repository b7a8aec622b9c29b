"""Windows of commits, and the checks of `status_rules.py` on them, for all windows at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipeline.columns import MISSING, Flags, Ints, SortedRows, last_true, mark_firsts, window_sums
from pipeline.commits import SLOT_MS
from pipeline.series import LagView, Series, value_at
from pipeline.status_rules import BURROW_WINDOW, COMMITS_MIN, WINDOW_MS_MAX, WINDOW_MS_MIN


class Windows(NamedTuple):
    """Windows of commits, each identified by its last commit; sorted by sequence and time. A tombstone ends a sequence."""

    series: Ints
    sequence: Ints
    at_ms: Ints
    first_ms: Ints
    last_ms: Ints
    size: Ints
    zero: Flags  # whether any lag in the window is 0
    unknown: Flags  # whether any lag in the window is unknown
    rewound: Flags
    moved: Flags
    caught_up: Flags  # whether the lag fell
    of_commit: Ints  # for every commit of the series: the last window up to it; -1: none

    def last(self, commit: Ints) -> Ints:
        """The last window up to each commit; -1: none."""
        return np.where(commit >= 0, value_at(self.of_commit, commit), -1)


def sequences(series: Series) -> Ints:
    """The number of each commit's sequence. A sequence is the commits of a series after one tombstone, up to and including the next."""
    begins = mark_firsts(series.series)
    begins[1:] |= series.committed[:-1] == MISSING
    return np.cumsum(begins) - 1


def burrow_windows(view: LagView, sequence: Ints) -> Windows:
    """Windows of ten commits, without commits for which Burrow knows no end offset, and with the lag at the time of the commit."""
    series, samples, _ = view
    end = samples.sampled(samples.index_at(series.partition_ids[series.series], series.at_ms))
    rows = np.flatnonzero((series.committed != MISSING) & (end != MISSING))
    lag = np.maximum(end[rows] - series.committed[rows], 0)
    since = np.maximum(np.arange(len(rows)) - (BURROW_WINDOW - 1), _first_row_of_sequence(sequence[rows]))
    return _windows(series, sequence, rows, series.column("commit_ms")[rows], lag, since)


def thinned_windows(view: LagView, sequence: Ints) -> Windows:
    """Windows over the last commit of each 15 seconds: ten minutes or ten commits, whichever is longer, up to an hour."""
    series, samples, _ = view
    live = np.flatnonzero(series.committed != MISSING)
    last_of_slot = np.append(mark_firsts(sequence[live])[1:] | mark_firsts(series.at_ms[live] // SLOT_MS)[1:], True) if len(live) else np.empty(0, np.bool_)
    rows = live[last_of_slot]
    own, at = sequence[rows], series.at_ms[rows]
    lag, _ = samples.lag_at(samples.index_at(series.partition_ids[series.series[rows]], at), at, series.committed[rows])
    line = SortedRows(own, at)
    tenth_newest = np.maximum(np.arange(len(rows)) - (COMMITS_MIN - 1), _first_row_of_sequence(own))
    since = np.maximum(np.minimum(line.find(own, at - WINDOW_MS_MIN, "left"), tenth_newest), line.find(own, at - WINDOW_MS_MAX, "left"))
    return _windows(series, sequence, rows, at, lag, since)


def _first_row_of_sequence(sequence: Ints) -> Ints:
    return last_true(mark_firsts(sequence)) if len(sequence) else np.empty(0, np.int64)


def _windows(series: Series, sequences: Ints, rows: Ints, ms: Ints, lag: Ints, since: Ints) -> Windows:
    """`rows`: the commits with a window; `ms`, `lag` and `since` (the first row of its window): for each of these commits."""
    sequence, at, committed = sequences[rows], series.at_ms[rows], series.committed[rows]
    own = np.arange(len(at))
    later = np.minimum(since + 1, own + 1)  # the first commit is not compared with its predecessor
    both_known = (lag != MISSING) & (np.roll(lag, 1) != MISSING)
    before = np.roll(committed, 1)
    has_window = np.zeros(len(sequences), np.bool_)
    has_window[rows] = True
    last = np.cumsum(has_window) - 1

    def any_of(condition: Flags, begin: Ints) -> Flags:
        return window_sums(condition.astype(np.int64), begin) > 0

    return Windows(
        series.series[rows],
        sequence,
        at,
        ms[since] if len(ms) else ms,
        ms,
        own - since + 1,
        any_of(lag == 0, since),
        any_of(lag == MISSING, since),
        any_of(committed < before, later),
        any_of(committed != before, later),
        any_of(both_known & (lag < np.roll(lag, 1)), later),
        np.where((last >= 0) & (value_at(sequence, last) == sequences), last, -1),
    )
