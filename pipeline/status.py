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
from pipeline.columns import MINUTE_MS, MISSING, Flags, Floats, Ints, firsts, ints, locate, optional, pair, ranks
from pipeline.grace import Clock, Interval, clock_of
from pipeline.owners import NOBODY, Owners, nobody, owners_of
from pipeline.schema import in_order, joined, schema_of
from pipeline.series import AHEAD_MS, HOLD_MS, Moments, Samples, Series, connect, moments, picked
from pipeline.windows import burrow_windows, sequences, thinned_windows

CODES: Final = {verdict: code for code, verdict in enumerate(rules.VERDICTS)}
NO_STATUS: Final = -1  # removed, or nothing was committed yet
QUIET_BACK_MS: Final = 6 * 3_600_000  # so far back it is looked for when there was last nothing to read


Moment = tuple[Ints, Ints]  # series and times


class Seen(NamedTuple):
    """What rules look at, the same for both."""

    series: Series
    samples: Samples
    sequence: Ints
    group_of: Ints  # of each series
    moments: Moments

    def commit_at(self, series: Ints, at: Ints) -> tuple[Ints, Ints]:
        """The last commit, and what it committed; MISSING: nothing, or it was removed."""
        index = self.series.last_commit(series, at)
        return index, np.where(index >= 0, picked(self.series.committed, index), MISSING)

    def series_of(self, sequence: Ints) -> Ints:
        return self.series.series[np.searchsorted(self.sequence, sequence)] if len(sequence) else sequence

    def changes(self, what: Ints) -> Moment:
        """Moments at which that is not what it was at the moment before."""
        changed = firsts(self.moments.series) | firsts(what)
        return self.moments.series[changed], self.moments.at[changed]


class Burrow:
    name: Final = "burrow"

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._windows = burrow_windows(seen.series, seen.samples, seen.sequence)

    def breaks(self) -> Moment:
        """Commits, when the lag comes and goes, and when a silence becomes longer than its window, in whole seconds."""
        seen, windows = self._seen, self._windows
        lag = seen.samples.sampled_at(seen.series.parts[seen.moments.series], seen.moments.at) - seen.moments.committed
        stops = (2 * windows.last_ms - windows.first_ms) // 1_000 * 1_000 + 1_000
        waits = _last_of(windows.sequence) | (stops < np.roll(windows.at, -1))
        series = seen.series_of(windows.sequence)
        return _together((series, windows.at), (series[waits], stops[waits]), seen.changes((lag <= 0).astype(np.int64)))

    def at(self, series: Ints, at: Ints) -> tuple[Ints, Floats]:
        """The verdict and the share of the window that is filled."""
        seen, windows = self._seen, self._windows
        index, committed = seen.commit_at(series, at)
        window = windows.last(np.where(index >= 0, picked(seen.sequence, index), -1), at)
        lag = seen.samples.sampled_at(seen.series.parts[series], at) - committed
        silent = at - at % 1_000 - picked(windows.last_ms, window) > picked(windows.last_ms, window) - picked(windows.first_ms, window)
        verdict = first_true(
            ((window < 0) | (committed == MISSING), NO_STATUS),
            (lag <= 0, CODES[rules.NO_LAG]),
            (_flag(windows.zero, window), CODES[rules.NO_LAG_IN_WINDOW]),
            (_flag(windows.rewound, window), CODES[rules.REWIND]),
            (silent, CODES[rules.STOP]),
            (~_flag(windows.moved, window), CODES[rules.STALL]),
            (~_flag(windows.caught_up, window), CODES[rules.WARN]),
            otherwise=CODES[rules.MOVING],
        )
        return verdict, np.where(window >= 0, picked(windows.size, window), 0) / rules.BURROW_WINDOW


class Tenure:
    name: Final = "tenure"

    def __init__(self, seen: Seen, owners: Owners, clock: Clock) -> None:
        self._seen = seen
        self._owners = owners
        self._clock = clock
        self._windows = thinned_windows(seen.series, seen.samples, seen.sequence)
        none_left = seen.moments.lag == 0
        self._idle = seen.moments.series[none_left], seen.moments.at[none_left]

    def breaks(self) -> Moment:
        """Thinned commits, and those that end a silence; when lag comes, goes, or is not known; when a record says who has what; and
        when a silence is too long."""
        seen, lag = self._seen, self._seen.moments.lag
        at = seen.series.at
        silent = firsts(seen.sequence) | (at - np.roll(at, 1) > rules.WINDOW_MS_MIN)
        start = seen.samples.log_start_at(seen.series.parts[seen.moments.series], seen.moments.at)
        lost = (start != MISSING) & (seen.moments.committed < start)
        return _together(
            (seen.series_of(self._windows.sequence), self._windows.at),
            (seen.series.series[silent], at[silent]),
            seen.changes(np.sign(lag + 1) + 3 * (lag == 0) + 6 * lost),
            self._owners.moments(seen.group_of, MISSING),
            self._stops(),
        )

    def _stops(self) -> Moment:
        """Since each commit and each moment without lag, if the silence is not broken before."""
        seen = self._seen
        series = np.concatenate((seen.series.series, self._idle[0]))
        at = np.concatenate((seen.series.at, self._idle[1]))
        order = np.argsort(pair(series, at), kind="stable")
        series, at = series[order], at[order]
        # Of most the next comes before anybody could lose patience.
        quiet = _last_of(series) | (np.roll(at, -1) - at > rules.WINDOW_MS_MIN)
        following = np.where(_last_of(series), MISSING, np.roll(at, -1))[quiet]
        series, at = series[quiet], at[quiet]
        _, patience = self._patience(series, at)
        group = seen.group_of[series]
        stops = self._clock.shows(group, self._clock.counted(group, at) + patience + 1)
        held = (following == MISSING) | (stops < following)
        return series[held], stops[held]

    def _patience(self, series: Ints, at: Ints) -> tuple[Ints, Ints]:
        seen, windows = self._seen, self._windows
        index = seen.series.last_commit(series, at)
        window = windows.last(np.where(index >= 0, picked(seen.sequence, index), -1), at)
        span = np.where(window >= 0, picked(windows.last_ms, window) - picked(windows.first_ms, window), 0)
        return window, np.clip(span, rules.WINDOW_MS_MIN, rules.WINDOW_MS_MAX)

    def at(self, series: Ints, at: Ints) -> tuple[Ints, Floats]:
        seen, windows = self._seen, self._windows
        index, committed = seen.commit_at(series, at)
        part = seen.series.parts[series]
        lag, _ = seen.samples.lag_at(part, at, committed)
        log_start = seen.samples.log_start_at(part, at)
        window, patience = self._patience(series, at)
        count = np.where(window >= 0, picked(windows.size, window), 0)
        idle = locate(*self._idle, series, at, "right") - 1
        idle_at = np.where((idle >= 0) & (picked(self._idle[0], idle) == series), picked(self._idle[1], idle), MISSING)
        since = np.maximum(np.where(index >= 0, picked(seen.series.at, index), MISSING), idle_at)
        group = seen.group_of[series]
        quiet = self._clock.counted(group, at) - self._clock.counted(group, since)
        verdict = first_true(
            (committed == MISSING, NO_STATUS),
            ((log_start != MISSING) & (committed < log_start), CODES[rules.LOST]),
            (lag == MISSING, CODES[rules.UNKNOWN]),
            (lag == 0, CODES[rules.NO_LAG]),
            (self._owners.of(series, group, at) == NOBODY, CODES[rules.UNOWNED]),
            (quiet > patience, CODES[rules.STOP]),
            ((count > 0) & _flag(windows.zero, window), CODES[rules.NO_LAG_IN_WINDOW]),
            (count < 2, CODES[rules.FEW]),
            (_flag(windows.rewound, window), CODES[rules.REWIND]),
            (~_flag(windows.moved, window), CODES[rules.STALL]),
            (_flag(windows.unknown, window), CODES[rules.FEW]),
            (~_flag(windows.caught_up, window), CODES[rules.WARN]),
            otherwise=CODES[rules.MOVING],
        )
        return verdict, np.minimum(count, rules.COMMITS_MIN) / rules.COMMITS_MIN


def begin(previous: pa.Table, since_ms: int) -> int:
    """From when on rows are made anew: stretches that were open may have ended since they were looked at."""
    looked = ints(previous.filter(pc.invert(previous["final"]))["to_ms"])
    since_ms = min(since_ms, int(looked.min())) if len(looked) else since_ms
    return since_ms - since_ms % MINUTE_MS  # a whole number of slots


def stretches(
    commits: pa.Table,
    ends: pa.Table,
    generations: pa.Table,
    members: pa.Table,
    excused: Mapping[str, Sequence[Interval]],
    previous: pa.Table,
    since_ms: int,
    now_ms: int,
) -> pa.Table:
    """All rows of `status` of a bucket: those of `previous` that ended before `begin`, and from then on new ones.

    `commits`: of all its partitions what `State.tails` has, or more. `ends`: of their topics, from QUIET_BACK_MS before on.
    `generations`, `members`: silver, all that are known; `excused`: `grace.excused`. The first time `previous` is empty and
    `since_ms` lies before everything.
    """
    since_ms = begin(previous, since_ms)
    series, samples = connect(commits, ends)
    (groups,), names = ranks(series.commits["group"])
    seen = Seen(series, samples, sequences(series), groups[series.heads], moments(series, samples, since_ms - QUIET_BACK_MS))
    owners = owners_of(series, names, generations, members) if len(generations) else nobody(series)
    clock = clock_of(names.to_pylist(), excused)
    kept = previous.filter(pa.array(ints(previous["to_ms"]) < since_ms))
    reaching = previous.filter(pa.array((ints(previous["to_ms"]) >= since_ms) & (ints(previous["from_ms"]) < since_ms)))
    tables = [_stretches(ruleset, seen, owners, reaching, since_ms, now_ms) for ruleset in (Burrow(seen), Tenure(seen, owners, clock))]
    return in_order("status", joined("status", [kept, *tables]))


def _ends(seen: Seen) -> Moment:
    """When offsets are removed, and when the last samples become too old."""
    series, samples = seen.series, seen.samples
    removed = series.committed == MISSING
    every = np.arange(len(series.heads))
    last = np.searchsorted(samples.parts, series.parts, "right") - 1 if len(samples.parts) else np.full(len(every), -1)
    has = every[(series.parts >= 0) & (last >= 0)]
    ended = picked(samples.at, last[has])
    return _together((series.series[removed], series.at[removed]), (has, ended + HOLD_MS + 1), (has, ended + AHEAD_MS + 1))


def _together(*moments: Moment) -> Moment:
    return np.concatenate([series for series, _ in moments]), np.concatenate([at for _, at in moments])


def _last_of(keys: Ints) -> Flags:
    return np.append(firsts(keys)[1:], True) if len(keys) else np.empty(0, np.bool_)


def _stretches(ruleset: Burrow | Tenure, seen: Seen, owners: Owners, reaching: pa.Table, since_ms: int, now_ms: int) -> pa.Table:
    series, at = _together(ruleset.breaks(), _ends(seen))
    wanted = (at >= since_ms) & (at <= now_ms)
    series, at = series[wanted], at[wanted]
    _, distinct = np.unique(pair(series, at), return_index=True)
    series, at = series[distinct], at[distinct]
    verdict, _ = ruleset.at(series, at)

    before = _reaching(ruleset.name, seen, reaching)
    series = np.concatenate((before[0], series))
    at = np.concatenate((before[1], at))
    verdict = np.concatenate((before[2], verdict))
    order = np.lexsort((at, series))
    series, at, verdict = series[order], at[order], verdict[order]
    other = firsts(series) | firsts(verdict)
    series, at, verdict = series[other], at[other], verdict[other]
    is_last = _last_of(series)
    until = np.where(is_last, now_ms, np.roll(at, -1))
    with_status = verdict != NO_STATUS
    return _table(ruleset, seen, owners, series[with_status], at[with_status], until[with_status], verdict[with_status], is_last[with_status])


def _reaching(ruleset: str, seen: Seen, previous: pa.Table) -> tuple[Ints, Ints, Ints]:
    """Stretches that had begun before, as moments."""
    mine = previous.filter(pa.array(np.array([name == ruleset for name in previous["ruleset"].to_pylist()], np.bool_)))
    series = _series_of(seen, mine)
    verdicts = [CODES[status, rule] for status, rule in zip(mine["status"].to_pylist(), mine["rule"].to_pylist(), strict=True)]
    return series, ints(mine["from_ms"]), np.array(verdicts, np.int64)


def _series_of(seen: Seen, rows: pa.Table) -> Ints:
    """Every stretch that reaches on has its commit among the tails."""
    heads = seen.series.commits.select(["group", "topic", "topic_partition"]).take(pa.array(seen.series.heads))
    places = {key: place for place, key in enumerate(zip(*(column.to_pylist() for column in heads.columns), strict=True))}
    keys = zip(*(rows[name].to_pylist() for name in heads.column_names), strict=True)
    return np.array([places[key] for key in keys], np.int64)


def _table(ruleset: Burrow | Tenure, seen: Seen, owners: Owners, series: Ints, at: Ints, until: Ints, verdict: Ints, is_open: Flags) -> pa.Table:
    """Lag, owner and completeness are those of its end, just before the next begins."""
    end = np.where(is_open, until, until - 1)
    _, committed = seen.commit_at(series, end)
    lag, _ = seen.samples.lag_at(seen.series.parts[series], end, committed)
    _, complete = ruleset.at(series, end)
    owner = owners.of(series, seen.group_of[series], end)
    cluster, group, topic, partition = seen.series.named(series, "cluster", "group", "topic", "topic_partition")
    columns = {
        "cluster": cluster,
        "group": group,
        "topic": topic,
        "topic_partition": partition,
        "ruleset": pa.array([ruleset.name] * len(series), pa.string()),
        "from_ms": pa.array(at),
        "to_ms": pa.array(until),
        "status": pa.array([status for status, _ in rules.VERDICTS]).take(pa.array(verdict)),
        "rule": pa.array([rule for _, rule in rules.VERDICTS]).take(pa.array(verdict)),
        "lag": optional(lag),
        "complete": pa.array(complete),
        "owner": owners.keys.take(pa.array(owner, mask=owner < 0)),
        "final": pa.array(~is_open),
    }
    schema = schema_of("status")
    return pa.table([columns[name] for name in schema.names], names=schema.names).cast(schema)


def first_true(*cases: tuple[Flags, int], otherwise: int) -> Ints:
    """Rules in order: the number of the first that is true."""
    return np.select([case for case, _ in cases], [np.int64(code) for _, code in cases], np.int64(otherwise))


def _flag(values: Flags, index: Ints) -> Flags:
    return values[np.clip(index, 0, len(values) - 1)] if len(values) else np.zeros(len(index), np.bool_)
