"""Gold `status`: the status of every partition over time by the rules of `status_rules.py`, as intervals.

A status can change at a commit, a sample of the end offset, or an assignment, when a sample becomes too old, and when commits have been
missing for too long. The rules are evaluated at all these moments at once; consecutive equal results are one interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline import status_rules as rules
from pipeline.columns import (
    MINUTE_MS,
    MISSING,
    Flags,
    Floats,
    Ints,
    by_key_and_time,
    dictionary_column,
    ints,
    last_true,
    mark_firsts,
    optional,
)
from pipeline.grace import Clock, Interval, clock_of
from pipeline.owners import NO_OWNER, Owners, owners_of, unknown_owners
from pipeline.schema import schema_of
from pipeline.series import AHEAD_MS, HOLD_MS, LagView, Moments, flag_at, mark_lasts, value_at
from pipeline.windows import burrow_windows, sequences, thinned_windows

CODES: Final = {verdict: code for code, verdict in enumerate(rules.VERDICTS)}
SERIES: Final = ("group", "topic", "topic_partition")
NO_STATUS: Final = -1  # no committed offset
QUIET_BACK_MS: Final = 6 * 3_600_000  # how far back to search for the last time without lag

SeriesTimes = tuple[Ints, Ints]  # series and their times


class Points(NamedTuple):
    """The inputs of the status rules at each moment, by series and time."""

    moments: Moments
    idle_ms: Ints  # the last time without lag


class BurrowRules:
    name: Final = "burrow"

    def __init__(self, view: LagView, sequence: Ints) -> None:
        self._view = view
        self._windows = burrow_windows(view, sequence)

    def expiry_times(self) -> SeriesTimes:
        """The times at which commits have been missing for longer than their window, in whole seconds."""
        windows = self._windows
        stops = (2 * windows.last_ms - windows.first_ms) // 1_000 * 1_000 + 1_000
        waits = mark_lasts(windows.sequence) | (stops < np.roll(windows.at_ms, -1))
        return windows.series[waits], stops[waits]

    def verdicts(self, points: Points) -> Ints:
        moments, windows = points.moments, self._windows
        window = windows.last(moments.commit)
        lag = self._view.samples.sampled(moments.sample) - moments.committed
        last_ms = value_at(windows.last_ms, window)
        silent = moments.at_ms - moments.at_ms % 1_000 - last_ms > last_ms - value_at(windows.first_ms, window)
        return first_true(
            ((window < 0) | (moments.committed == MISSING), NO_STATUS),
            (lag <= 0, CODES[rules.NO_LAG]),
            (flag_at(windows.zero, window), CODES[rules.NO_LAG_IN_WINDOW]),
            (flag_at(windows.rewound, window), CODES[rules.REWIND]),
            (silent, CODES[rules.STOP]),
            (~flag_at(windows.moved, window), CODES[rules.STALL]),
            (~flag_at(windows.caught_up, window), CODES[rules.WARN]),
            otherwise=CODES[rules.MOVING],
        )

    def filled(self, commit: Ints) -> Floats:
        """How full the window that ends with that commit is: its commits as a share of the number that the rules need."""
        window = self._windows.last(commit)
        return np.where(window >= 0, value_at(self._windows.size, window), 0) / rules.BURROW_WINDOW


class TenureRules:
    name: Final = "tenure"

    def __init__(self, view: LagView, sequence: Ints, owners: Owners, clock: Clock) -> None:
        self._view = view
        self._owners = owners
        self._clock = clock
        self._windows = thinned_windows(view, sequence)

    def expiry_times(self) -> SeriesTimes:
        """The times of assignments, and those at which commits have been missing for too long."""
        return _concatenated(self._owners.moments(self._view.series.groups, MISSING), self._stops())

    def _stops(self) -> SeriesTimes:
        """For each commit and each moment without lag: when the silence limit is reached, unless the next commit or moment without lag comes first."""
        series, moments = self._view.series, self._view.moments
        idle = moments.lag == 0
        of_series, at = _concatenated((series.series, series.at_ms), (moments.series[idle], moments.at_ms[idle]))
        order = by_key_and_time(of_series, at)
        of_series, at = of_series[order], at[order]
        # Most commits are no candidates: their next commit follows before any limit.
        is_candidate = mark_lasts(of_series) | (np.roll(at, -1) - at > rules.WINDOW_MS_MIN)
        following = np.where(mark_lasts(of_series), MISSING, np.roll(at, -1))[is_candidate]
        of_series, at = of_series[is_candidate], at[is_candidate]
        limit = self._silence_limit(self._windows.last(series.last_commit(of_series, at)))
        group = series.groups[of_series]
        stops = self._clock.first_moment(group, self._clock.clock_time(group, at) + limit + 1)
        is_reached = (following == MISSING) | (stops < following)
        return of_series[is_reached], stops[is_reached]

    def _silence_limit(self, window: Ints) -> Ints:
        span = np.where(window >= 0, value_at(self._windows.last_ms, window) - value_at(self._windows.first_ms, window), 0)
        return np.clip(span, rules.WINDOW_MS_MIN, rules.WINDOW_MS_MAX)

    def verdicts(self, points: Points) -> Ints:
        moments, windows = points.moments, self._windows
        log_start = self._view.samples.log_start_of(moments.sample)
        window = windows.last(moments.commit)
        count = np.where(window >= 0, value_at(windows.size, window), 0)
        return first_true(
            (moments.committed == MISSING, NO_STATUS),
            ((log_start != MISSING) & (moments.committed < log_start), CODES[rules.LOST]),
            (moments.lag == MISSING, CODES[rules.UNKNOWN]),
            (moments.lag == 0, CODES[rules.NO_LAG]),
            (self._unowned(moments), CODES[rules.UNOWNED]),
            (self._stopped(points, window), CODES[rules.STOP]),
            ((count > 0) & flag_at(windows.zero, window), CODES[rules.NO_LAG_IN_WINDOW]),
            (count < 2, CODES[rules.FEW]),
            (flag_at(windows.rewound, window), CODES[rules.REWIND]),
            (~flag_at(windows.moved, window), CODES[rules.STALL]),
            (flag_at(windows.unknown, window), CODES[rules.FEW]),
            (~flag_at(windows.caught_up, window), CODES[rules.WARN]),
            otherwise=CODES[rules.MOVING],
        )

    def _unowned(self, moments: Moments) -> Flags:
        """Mark moments with a lag and no owner."""
        lagging = np.flatnonzero(moments.lag > 0)
        series = moments.series[lagging]
        unowned = np.zeros(len(moments.lag), np.bool_)
        unowned[lagging] = self._owners.owners_at(series, self._view.series.groups[series], moments.at_ms[lagging]) == NO_OWNER
        return unowned

    def _stopped(self, points: Points, window: Ints) -> Flags:
        moments = points.moments
        limit = self._silence_limit(window)
        since = np.maximum(np.where(moments.commit >= 0, value_at(self._view.series.at_ms, moments.commit), MISSING), points.idle_ms)
        candidates = np.flatnonzero((moments.lag > 0) & (moments.at_ms - since > limit))  # an upper bound of the silence: it includes excused time
        group = self._view.series.groups[moments.series[candidates]]
        silence = self._clock.clock_time(group, moments.at_ms[candidates]) - self._clock.clock_time(group, since[candidates])
        stopped = np.zeros(len(moments.lag), np.bool_)
        stopped[candidates] = silence > limit[candidates]
        return stopped

    def filled(self, commit: Ints) -> Floats:
        window = self._windows.last(commit)
        count = np.where(window >= 0, value_at(self._windows.size, window), 0)
        return np.minimum(count, rules.COMMITS_MIN) / rules.COMMITS_MIN


def recompute_since(previous: pa.Table, since_ms: int) -> int:
    """The time since which rows are recomputed: intervals that were open in the previous build may have ended since."""
    open_until = ints(previous.filter(pc.invert(previous["final"]))["to_ms"])
    since_ms = min(since_ms, int(open_until.min())) if len(open_until) else since_ms
    return since_ms - since_ms % MINUTE_MS  # a minute is a whole number of slots


def status_rows(
    view: LagView,
    generations: pa.Table,
    members: pa.Table,
    excused: Mapping[str, Sequence[Interval]],
    reaching: pa.Table,
    since_ms: int,
    now_ms: int,
) -> pa.Table:
    """Rows of `status` that end at `since_ms` or later, in table order.

    The view has at least the commits of `CommitState.tails`, and moments since QUIET_BACK_MS earlier. `generations`, `members`: all silver rows;
    `excused`: `grace.excused_intervals`; `reaching`: intervals of the previous build that extend to `since_ms`.
    """
    series = view.series
    sequence = sequences(series)
    names = series.names.groups
    owners = owners_of(series, names, generations, members) if len(generations) else unknown_owners(series)
    rulesets = BurrowRules(view, sequence), TenureRules(view, sequence, owners, clock_of(names.to_pylist(), excused))
    find_intervals = IntervalFinder(view)
    intervals = []
    for ruleset in rulesets:
        points = _points(view, _concatenated(ruleset.expiry_times(), _ends(view)), since_ms, now_ms)
        earlier_intervals = find_intervals(reaching.filter(pc.equal(reaching["ruleset"], ruleset.name)))
        intervals.append(_intervals(earlier_intervals, points.moments, ruleset.verdicts(points), now_ms))
    return _table(rulesets, view, owners, intervals)


class Intervals(NamedTuple):
    """The intervals of one ruleset, by series and time."""

    series: Ints
    since: Ints
    until: Ints
    verdict: Ints
    is_open: Flags

    @property
    def end(self) -> Ints:
        """The moment just before the next interval: lag, owner and completeness are of that moment."""
        return np.where(self.is_open, self.until, self.until - 1)


def _intervals(reaching: Sequence[Ints], moments: Moments, verdict: Ints, now_ms: int) -> Intervals:
    series, at = moments.series, moments.at_ms
    if len(reaching[0]):
        series, at, verdict = (np.concatenate(columns) for columns in zip(reaching, (series, at, verdict), strict=True))
        order = by_key_and_time(series, at)
        series, at, verdict = series[order], at[order], verdict[order]
    is_start = mark_firsts(series) | mark_firsts(verdict)
    series, at, verdict = series[is_start], at[is_start], verdict[is_start]
    is_last = mark_lasts(series)
    until = np.where(is_last, now_ms, np.roll(at, -1))
    has_status = verdict != NO_STATUS
    return Intervals(series[has_status], at[has_status], until[has_status], verdict[has_status], is_last[has_status])


def _points(view: LagView, extra: SeriesTimes, since_ms: int, now_ms: int) -> Points:
    """The moments of the view, and those in `extra`, from `since_ms` to `now_ms`."""
    series, at = extra
    in_range = (at >= since_ms) & (at <= now_ms)  # few rows
    other_moments = view.at(series[in_range], at[in_range])
    all_moments = Moments(*(np.concatenate(columns) for columns in zip(view.moments, other_moments, strict=True)))
    is_idle = all_moments.lag == 0
    is_idle[len(view.moments.at_ms) :] = False
    order = by_key_and_time(all_moments.series, all_moments.at_ms)
    all_moments, is_idle = Moments(*(column[order] for column in all_moments)), is_idle[order]
    idle = last_true(is_idle)
    idle_ms = np.where((idle >= 0) & (value_at(all_moments.series, idle) == all_moments.series), value_at(all_moments.at_ms, idle), MISSING)
    is_first = mark_firsts(all_moments.series) | mark_firsts(all_moments.at_ms)
    has_status = is_first & (all_moments.at_ms >= since_ms) & (all_moments.at_ms <= now_ms)
    if has_status.all():
        return Points(all_moments, idle_ms)
    return Points(Moments(*(column[has_status] for column in all_moments)), idle_ms[has_status])


def _ends(view: LagView) -> SeriesTimes:
    """The times at which offsets are removed and the last samples become too old."""
    series, samples = view.series, view.samples
    every = np.arange(len(series.heads))
    last = samples.end(series.partition_ids) - 1
    with_samples = every[(series.partition_ids >= 0) & (last >= 0)]
    ended = value_at(samples.at, last[with_samples])
    return _concatenated((series.series[series.removed], series.at_ms[series.removed]), (with_samples, ended + HOLD_MS + 1), (with_samples, ended + AHEAD_MS + 1))


def _concatenated(*moments: SeriesTimes) -> SeriesTimes:
    return np.concatenate([series for series, _ in moments]), np.concatenate([at for _, at in moments])


class IntervalFinder:
    """Converts rows of `status` to series, times and verdicts, for the series of the view."""

    def __init__(self, view: LagView) -> None:
        names = view.series.named(np.arange(len(view.series.heads)), *SERIES)
        self._places = {key: place for place, key in enumerate(zip(*(column.to_pylist() for column in names), strict=True))}

    def __call__(self, rows: pa.Table) -> tuple[Ints, Ints, Ints]:
        keys = zip(*(rows[name].to_pylist() for name in SERIES), strict=True)
        series = np.array([self._places.get(key, -1) for key in keys], np.int64)
        verdicts = [CODES[status, rule] for status, rule in zip(rows["status"].to_pylist(), rows["rule"].to_pylist(), strict=True)]
        known = series >= 0
        return series[known], ints(rows["from_ms"])[known], np.array(verdicts, np.int64)[known]


def _table(rulesets: Sequence[BurrowRules | TenureRules], view: LagView, owners: Owners, intervals: Sequence[Intervals]) -> pa.Table:
    series = view.series
    by_rules = np.repeat(np.arange(len(intervals)), [len(part.series) for part in intervals])
    every = [np.concatenate(columns) for columns in zip(*intervals, strict=True)]
    order = np.argsort(every[0] * len(intervals) + by_rules, kind="stable")
    all_intervals, by_rules = Intervals._make(column[order] for column in every), by_rules[order]
    at_end = view.at(all_intervals.series, all_intervals.end)
    complete = np.empty(len(order))
    for place, ruleset in enumerate(rulesets):
        of_ruleset = by_rules == place
        complete[of_ruleset] = ruleset.filled(at_end.commit[of_ruleset])
    owner = owners.owners_at(all_intervals.series, series.groups[all_intervals.series], all_intervals.end)
    cluster, group, topic, partition = series.named(all_intervals.series, "cluster", "group", "topic", "topic_partition")
    columns = {
        "cluster": cluster,
        "group": group,
        "topic": topic,
        "topic_partition": partition,
        "ruleset": dictionary_column(by_rules, [ruleset.name for ruleset in rulesets]),
        "from_ms": pa.array(all_intervals.since),
        "to_ms": pa.array(all_intervals.until),
        "status": dictionary_column(all_intervals.verdict, [status for status, _ in rules.VERDICTS]),
        "rule": dictionary_column(all_intervals.verdict, [rule for _, rule in rules.VERDICTS]),
        "lag": optional(at_end.lag),
        "complete": pa.array(complete),
        "owner": dictionary_column(owner, owners.keys.to_pylist()),
        "final": pa.array(~all_intervals.is_open),
    }
    schema = schema_of("status")
    return pa.table([columns[name] for name in schema.names], names=schema.names)


def first_true(*cases: tuple[Flags, int], otherwise: int) -> Ints:
    """The code of the first case that is true, for each row."""
    codes = np.full(len(cases[0][0]), otherwise, np.int64)
    for case, code in reversed(cases):
        codes[case] = code
    return codes
