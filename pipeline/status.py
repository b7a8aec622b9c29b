"""Gold `status`: the rules of `status_rules.py` for every partition over time, as stretches of one status.

A status can change at a commit, at a sample of the end offset, when a record says who has the partition, when a sample has become too
old, and when a silence has lasted too long. All these moments are evaluated at once; equal neighbours are one stretch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline import status_rules as rules
from pipeline.columns import MINUTE_MS, MISSING, Flags, Floats, Ints, by_key_and_time, coded, firsts, ints, last_seen, optional
from pipeline.grace import Clock, Interval, clock_of
from pipeline.owners import NOBODY, Owners, nobody, owners_of
from pipeline.schema import schema_of
from pipeline.series import AHEAD_MS, HOLD_MS, Moments, View, flag_at, last_of, picked
from pipeline.windows import burrow_windows, sequences, thinned_windows

CODES: Final = {verdict: code for code, verdict in enumerate(rules.VERDICTS)}
SERIES: Final = ("group", "topic", "topic_partition")
NO_STATUS: Final = -1  # removed, or nothing was committed yet
QUIET_BACK_MS: Final = 6 * 3_600_000  # how far back to search for the last time without lag

Moment = tuple[Ints, Ints]  # series and times


class Points(NamedTuple):
    """The inputs of the status rules at each moment, by series and time."""

    moments: Moments
    idle_ms: Ints  # the last time without lag


class Burrow:
    name: Final = "burrow"

    def __init__(self, view: View, sequence: Ints) -> None:
        self._view = view
        self._windows = burrow_windows(view, sequence)

    def breaks(self) -> Moment:
        """When a silence becomes longer than its window, in whole seconds."""
        windows = self._windows
        stops = (2 * windows.last_ms - windows.first_ms) // 1_000 * 1_000 + 1_000
        waits = last_of(windows.sequence) | (stops < np.roll(windows.at, -1))
        return windows.series[waits], stops[waits]

    def verdicts(self, points: Points) -> Ints:
        seen, windows = points.moments, self._windows
        window = windows.last(seen.commit)
        lag = self._view.samples.sampled(seen.sample) - seen.committed
        last_ms = picked(windows.last_ms, window)
        silent = seen.at - seen.at % 1_000 - last_ms > last_ms - picked(windows.first_ms, window)
        return first_true(
            ((window < 0) | (seen.committed == MISSING), NO_STATUS),
            (lag <= 0, CODES[rules.NO_LAG]),
            (flag_at(windows.zero, window), CODES[rules.NO_LAG_IN_WINDOW]),
            (flag_at(windows.rewound, window), CODES[rules.REWIND]),
            (silent, CODES[rules.STOP]),
            (~flag_at(windows.moved, window), CODES[rules.STALL]),
            (~flag_at(windows.caught_up, window), CODES[rules.WARN]),
            otherwise=CODES[rules.MOVING],
        )

    def filled(self, commit: Ints) -> Floats:
        """The filled share of the window that ends with that commit."""
        window = self._windows.last(commit)
        return np.where(window >= 0, picked(self._windows.size, window), 0) / rules.BURROW_WINDOW


class Tenure:
    name: Final = "tenure"

    def __init__(self, view: View, sequence: Ints, owners: Owners, clock: Clock) -> None:
        self._view = view
        self._owners = owners
        self._clock = clock
        self._windows = thinned_windows(view, sequence)

    def breaks(self) -> Moment:
        """Moments of assignments, and moments at which a silence becomes too long."""
        return _together(self._owners.moments(self._view.series.groups, MISSING), self._stops())

    def _stops(self) -> Moment:
        """Since each commit and each moment without lag, if the silence is not broken before."""
        series, seen = self._view.series, self._view.moments
        idle = seen.lag == 0
        of_series, at = _together((series.series, series.at), (seen.series[idle], seen.at[idle]))
        order = by_key_and_time(of_series, at)
        of_series, at = of_series[order], at[order]
        # Most partitions get their next commit before the limit.
        quiet = last_of(of_series) | (np.roll(at, -1) - at > rules.WINDOW_MS_MIN)
        following = np.where(last_of(of_series), MISSING, np.roll(at, -1))[quiet]
        of_series, at = of_series[quiet], at[quiet]
        patience = self._patience(self._windows.last(series.last_commit(of_series, at)))
        group = series.groups[of_series]
        stops = self._clock.shows(group, self._clock.counted(group, at) + patience + 1)
        held = (following == MISSING) | (stops < following)
        return of_series[held], stops[held]

    def _patience(self, window: Ints) -> Ints:
        span = np.where(window >= 0, picked(self._windows.last_ms, window) - picked(self._windows.first_ms, window), 0)
        return np.clip(span, rules.WINDOW_MS_MIN, rules.WINDOW_MS_MAX)

    def verdicts(self, points: Points) -> Ints:
        seen, windows = points.moments, self._windows
        log_start = self._view.samples.log_start_of(seen.sample)
        window = windows.last(seen.commit)
        count = np.where(window >= 0, picked(windows.size, window), 0)
        return first_true(
            (seen.committed == MISSING, NO_STATUS),
            ((log_start != MISSING) & (seen.committed < log_start), CODES[rules.LOST]),
            (seen.lag == MISSING, CODES[rules.UNKNOWN]),
            (seen.lag == 0, CODES[rules.NO_LAG]),
            (self._unowned(seen), CODES[rules.UNOWNED]),
            (self._stopped(points, window), CODES[rules.STOP]),
            ((count > 0) & flag_at(windows.zero, window), CODES[rules.NO_LAG_IN_WINDOW]),
            (count < 2, CODES[rules.FEW]),
            (flag_at(windows.rewound, window), CODES[rules.REWIND]),
            (~flag_at(windows.moved, window), CODES[rules.STALL]),
            (flag_at(windows.unknown, window), CODES[rules.FEW]),
            (~flag_at(windows.caught_up, window), CODES[rules.WARN]),
            otherwise=CODES[rules.MOVING],
        )

    def _unowned(self, seen: Moments) -> Flags:
        """Mark moments with a lag and no owner."""
        behind = np.flatnonzero(seen.lag > 0)
        series = seen.series[behind]
        found = np.zeros(len(seen.lag), np.bool_)
        found[behind] = self._owners.of(series, self._view.series.groups[series], seen.at[behind]) == NOBODY
        return found

    def _stopped(self, points: Points, window: Ints) -> Flags:
        seen = points.moments
        patience = self._patience(window)
        since = np.maximum(np.where(seen.commit >= 0, picked(self._view.series.at, seen.commit), MISSING), points.idle_ms)
        long = np.flatnonzero((seen.lag > 0) & (seen.at - since > patience))  # by a clock that never stands still
        group = self._view.series.groups[seen.series[long]]
        quiet = self._clock.counted(group, seen.at[long]) - self._clock.counted(group, since[long])
        found = np.zeros(len(seen.lag), np.bool_)
        found[long] = quiet > patience[long]
        return found

    def filled(self, commit: Ints) -> Floats:
        window = self._windows.last(commit)
        count = np.where(window >= 0, picked(self._windows.size, window), 0)
        return np.minimum(count, rules.COMMITS_MIN) / rules.COMMITS_MIN


def begin(previous: pa.Table, since_ms: int) -> int:
    """From when on rows are made anew: stretches that were open may have ended since they were looked at."""
    looked = ints(previous.filter(pc.invert(previous["final"]))["to_ms"])
    since_ms = min(since_ms, int(looked.min())) if len(looked) else since_ms
    return since_ms - since_ms % MINUTE_MS  # a whole number of slots


def stretches(
    view: View,
    generations: pa.Table,
    members: pa.Table,
    excused: Mapping[str, Sequence[Interval]],
    reaching: pa.Table,
    since_ms: int,
    now_ms: int,
) -> pa.Table:
    """Rows of `status` of a bucket that end at `since_ms` or later, in the table's order. The first time that is before everything.

    The view has of all partitions of the bucket what `State.tails` has, or more, and moments from QUIET_BACK_MS before on.
    `generations`, `members`: silver, all that are known; `excused`: `grace.excused`; `reaching`: stretches of the build before that
    began before `since_ms` and did not end before it.
    """
    series = view.series
    sequence = sequences(series)
    names = series.names.groups
    owners = owners_of(series, names, generations, members) if len(generations) else nobody(series)
    rulesets = Burrow(view, sequence), Tenure(view, sequence, owners, clock_of(names.to_pylist(), excused))
    places = Places(view)
    found = []
    for ruleset in rulesets:
        points = _points(view, _together(ruleset.breaks(), _ends(view)), since_ms, now_ms)
        mine = places(reaching.filter(pc.equal(reaching["ruleset"], ruleset.name)))
        found.append(_stretches(mine, points.moments, ruleset.verdicts(points), now_ms))
    return _table(rulesets, view, owners, found)


class Stretches(NamedTuple):
    """The verdicts of one ruleset, by series and time."""

    series: Ints
    since: Ints
    until: Ints
    verdict: Ints
    is_open: Flags

    @property
    def end(self) -> Ints:
        """Just before the next begins: lag, owner and completeness are of that moment."""
        return np.where(self.is_open, self.until, self.until - 1)


def _stretches(reaching: Sequence[Ints], seen: Moments, verdict: Ints, now_ms: int) -> Stretches:
    series, at = seen.series, seen.at
    if len(reaching[0]):
        series, at, verdict = (np.concatenate(columns) for columns in zip(reaching, (series, at, verdict), strict=True))
        order = by_key_and_time(series, at)
        series, at, verdict = series[order], at[order], verdict[order]
    other = firsts(series) | firsts(verdict)
    series, at, verdict = series[other], at[other], verdict[other]
    is_last = last_of(series)
    until = np.where(is_last, now_ms, np.roll(at, -1))
    kept = verdict != NO_STATUS
    return Stretches(series[kept], at[kept], until[kept], verdict[kept], is_last[kept])


def _points(view: View, others: Moment, since_ms: int, now_ms: int) -> Points:
    """The times of the view, and these others, within an interval."""
    series, at = others
    wanted = (at >= since_ms) & (at <= now_ms)  # few
    asked = view.at(series[wanted], at[wanted])
    both = Moments(*(np.concatenate(columns) for columns in zip(view.moments, asked, strict=True)))
    is_idle = both.lag == 0
    is_idle[len(view.moments.at) :] = False
    order = by_key_and_time(both.series, both.at)
    both, is_idle = Moments(*(column[order] for column in both)), is_idle[order]
    idle = last_seen(is_idle)
    idle_ms = np.where((idle >= 0) & (picked(both.series, idle) == both.series), picked(both.at, idle), MISSING)
    kept = (firsts(both.series) | firsts(both.at)) & (both.at >= since_ms) & (both.at <= now_ms)
    if kept.all():
        return Points(both, idle_ms)
    return Points(Moments(*(column[kept] for column in both)), idle_ms[kept])


def _ends(view: View) -> Moment:
    """When offsets are removed, and when the last samples become too old."""
    series, samples = view.series, view.samples
    every = np.arange(len(series.heads))
    last = samples.end(series.parts) - 1
    has = every[(series.parts >= 0) & (last >= 0)]
    ended = picked(samples.at, last[has])
    return _together((series.series[series.removed], series.at[series.removed]), (has, ended + HOLD_MS + 1), (has, ended + AHEAD_MS + 1))


def _together(*moments: Moment) -> Moment:
    return np.concatenate([series for series, _ in moments]), np.concatenate([at for _, at in moments])


class Places:
    """Finds stretches that had begun before: series, times and verdicts, of the view's series alone."""

    def __init__(self, view: View) -> None:
        names = view.series.named(np.arange(len(view.series.heads)), *SERIES)
        self._places = {key: place for place, key in enumerate(zip(*(column.to_pylist() for column in names), strict=True))}

    def __call__(self, rows: pa.Table) -> tuple[Ints, Ints, Ints]:
        keys = zip(*(rows[name].to_pylist() for name in SERIES), strict=True)
        series = np.array([self._places.get(key, -1) for key in keys], np.int64)
        verdicts = [CODES[status, rule] for status, rule in zip(rows["status"].to_pylist(), rows["rule"].to_pylist(), strict=True)]
        mine = series >= 0
        return series[mine], ints(rows["from_ms"])[mine], np.array(verdicts, np.int64)[mine]


def _table(rulesets: Sequence[Burrow | Tenure], view: View, owners: Owners, found: Sequence[Stretches]) -> pa.Table:
    series = view.series
    by_rules = np.repeat(np.arange(len(found)), [len(one.series) for one in found])
    every = [np.concatenate(columns) for columns in zip(*found, strict=True)]
    order = np.argsort(every[0] * len(found) + by_rules, kind="stable")
    whole, by_rules = Stretches._make(column[order] for column in every), by_rules[order]
    at_end = view.at(whole.series, whole.end)
    complete = np.empty(len(order))
    for place, ruleset in enumerate(rulesets):
        mine = by_rules == place
        complete[mine] = ruleset.filled(at_end.commit[mine])
    owner = owners.of(whole.series, series.groups[whole.series], whole.end)
    cluster, group, topic, partition = series.named(whole.series, "cluster", "group", "topic", "topic_partition")
    columns = {
        "cluster": cluster,
        "group": group,
        "topic": topic,
        "topic_partition": partition,
        "ruleset": coded(by_rules, [ruleset.name for ruleset in rulesets]),
        "from_ms": pa.array(whole.since),
        "to_ms": pa.array(whole.until),
        "status": coded(whole.verdict, [status for status, _ in rules.VERDICTS]),
        "rule": coded(whole.verdict, [rule for _, rule in rules.VERDICTS]),
        "lag": optional(at_end.lag),
        "complete": pa.array(complete),
        "owner": coded(owner, owners.keys.to_pylist()),
        "final": pa.array(~whole.is_open),
    }
    schema = schema_of("status")
    return pa.table([columns[name] for name in schema.names], names=schema.names)


def first_true(*cases: tuple[Flags, int], otherwise: int) -> Ints:
    """Rules in order: the number of the first that is true."""
    found = np.full(len(cases[0][0]), otherwise, np.int64)
    for case, code in reversed(cases):
        found[case] = code
    return found
