"""Windows of commits, and what the rules of `status_rules.py` ask of them: any of each window, all windows at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipeline.columns import MISSING, Flags, Ints, firsts, last_seen, locate, window_sums
from pipeline.commits import SLOT_MS
from pipeline.series import Samples, Series, picked
from pipeline.status_rules import BURROW_WINDOW, COMMITS_MIN, WINDOW_MS_MAX, WINDOW_MS_MIN


class Windows(NamedTuple):
    """One that ends with each of these commits; by sequence, which a removal ends, and time."""

    sequence: Ints
    at: Ints
    first_ms: Ints
    last_ms: Ints
    size: Ints
    zero: Flags  # a lag of 0
    unknown: Flags  # a lag that is not known
    rewound: Flags
    moved: Flags
    caught_up: Flags  # the lag fell

    def last(self, sequence: Ints, at: Ints) -> Ints:
        """The window at that moment, -1: none yet."""
        index = locate(self.sequence, self.at, sequence, at, "right") - 1
        return np.where((index >= 0) & (picked(self.sequence, index) == sequence), index, -1)


def sequences(series: Series) -> Ints:
    """Of each commit: the removal belongs to what it ends."""
    begins = firsts(series.series)
    begins[1:] |= series.committed[:-1] == MISSING
    return np.cumsum(begins) - 1


def burrow_windows(series: Series, samples: Samples, sequence: Ints) -> Windows:
    """Burrow drops a commit for which it knows no end offset, and never corrects the lag that it has stored."""
    end = samples.sampled_at(series.parts[series.series], series.at)
    rows = np.flatnonzero((series.committed != MISSING) & (end != MISSING))
    lag = np.maximum(end[rows] - series.committed[rows], 0)
    commit_ms = np.asarray(series.commits["commit_ms"].to_numpy(), np.int64)[rows]
    since = np.maximum(np.arange(len(rows)) - (BURROW_WINDOW - 1), _begin(sequence[rows]))
    return _windows(sequence[rows], series.at[rows], commit_ms, series.committed[rows], lag, since)


def thinned_windows(series: Series, samples: Samples, sequence: Ints) -> Windows:
    """Of the last commit of each 15 seconds: ten minutes or ten commits, whichever is longer, and an hour at most."""
    live = np.flatnonzero(series.committed != MISSING)
    last_of_slot = np.append(firsts(sequence[live])[1:] | firsts(series.at[live] // SLOT_MS)[1:], True) if len(live) else np.empty(0, np.bool_)
    rows = live[last_of_slot]
    sequence, at, committed = sequence[rows], series.at[rows], series.committed[rows]
    lag, _ = samples.lag_at(series.parts[series.series[rows]], at, committed)
    long = locate(sequence, at, sequence, at - WINDOW_MS_MIN, "left")
    many = np.maximum(np.arange(len(rows)) - (COMMITS_MIN - 1), _begin(sequence))
    since = np.maximum(np.minimum(long, many), locate(sequence, at, sequence, at - WINDOW_MS_MAX, "left"))
    return _windows(sequence, at, at, committed, lag, since)


def _begin(sequence: Ints) -> Ints:
    return last_seen(firsts(sequence)) if len(sequence) else np.empty(0, np.int64)


def _windows(sequence: Ints, at: Ints, ms: Ints, committed: Ints, lag: Ints, since: Ints) -> Windows:
    own = np.arange(len(at))
    later = np.minimum(since + 1, own + 1)  # each but the first is compared with the one before it
    both = (lag != MISSING) & (np.roll(lag, 1) != MISSING)
    before = np.roll(committed, 1)

    def any_of(what: Flags, begin: Ints) -> Flags:
        return window_sums(what.astype(np.int64), begin) > 0

    return Windows(
        sequence,
        at,
        ms[since] if len(ms) else ms,
        ms,
        own - since + 1,
        any_of(lag == 0, since),
        any_of(lag == MISSING, since),
        any_of(committed < before, later),
        any_of(committed != before, later),
        any_of(both & (lag < np.roll(lag, 1)), later),
    )
