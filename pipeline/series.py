"""Committed offsets and end offsets of the same partitions over time, and where either was at any moment.

A series is one (group, topic, partition); a part is one (topic, partition) of which end offsets are known. What is not known is
MISSING, never 0. Between two samples an end offset is a straight line, but for the time over which the note of the later one says
that nothing had changed. After the last sample a note holds for good, for a broker writes the next one when something changes;
any other sample holds for `HOLD_MS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.columns import (
    MISSING,
    Flags,
    Ints,
    SortedRows,
    by_key_and_time,
    distinct,
    expanded,
    firsts,
    flags,
    ints,
    last_seen,
    pair,
    ranks,
    rising,
)

ORIGINS: Final = ("notes", "live", "segments", "checkpoint")  # in order of precedence
HOLD_MS: Final = 5 * 60_000
# A commit may be ahead of the last sample by the records written since: no lag. Later than this the sample is too old.
AHEAD_MS: Final = 60_000
MOMENTS_TOGETHER: Final = 400_000
LOOKBACK_MS: Final = 61 * 60_000  # the lag at a time depends on no older data


def picked(values: Ints, index: Ints) -> Ints:
    """An arbitrary row where there is none: callers ignore it."""
    return values.take(index, mode="clip") if len(values) else np.full(len(index), MISSING)


def flag_at(values: Flags, index: Ints) -> Flags:
    return values.take(index, mode="clip") if len(values) else np.zeros(len(index), np.bool_)


class Samples:
    """Sorted by part and time. A sample is known by its row; -1: there is none."""

    def __init__(self, parts: Ints, at: Ints, held: Ints, ends: Ints, log_start: Ints, origin: Ints) -> None:
        self.parts, self.at, self.ends, self.log_start = parts, at, ends, log_start
        self.held = held  # the end of the sample before held until then
        self.origin = origin  # place in ORIGINS
        self.is_last = last_of(parts)
        # The interval between a sample and the next one; a falling end belongs to a recreated topic: it jumps.
        self._leaves = np.roll(held, -1)
        self._takes = np.where(self.is_last, 1, np.maximum(np.roll(at, -1) - self._leaves, 1))
        self._rise = np.where(self.is_last, 0, np.maximum(np.roll(ends, -1) - ends, 0))
        self._top = rising(parts, ends)
        self._line, self._tops = SortedRows(parts, at), SortedRows(parts, self._top)

    def begin(self, part: Ints, at: Ints) -> Ints:
        """Of each part the first row from that moment on, of it or of another."""
        return self._line.find(part, at, "left")

    def end(self, part: Ints) -> Ints:
        """For each part the row after its last sample."""
        return np.searchsorted(self.parts, part, "right")

    def index_at(self, part: Ints, at: Ints) -> Ints:
        """The row of the last sample up to that time."""
        index = self._line.find(part, at, "right") - 1
        return np.where((index >= 0) & (picked(self.parts, index) == part), index, -1)

    def sampled(self, index: Ints) -> Ints:
        """The end offset of the sample."""
        return np.where(index >= 0, picked(self.ends, index), MISSING)

    def end_at(self, index: Ints, at: Ints) -> tuple[Ints, Ints]:
        """The end, and for how long its sample has been the last one (0: another follows)."""
        share = np.clip((at - picked(self._leaves, index)) / picked(self._takes, index), 0.0, 1.0)
        end = picked(self.ends, index) + np.floor(picked(self._rise, index) * share).astype(np.int64)
        age = np.where(flag_at(self.is_last, index), at - picked(self.at, index), 0)
        known = (index >= 0) & ((age <= HOLD_MS) | (picked(self.origin, index) == 0))
        return np.where(known, end, MISSING), age

    def lag_at(self, index: Ints, at: Ints, committed: Ints) -> tuple[Ints, Ints]:
        """Lag and end offset; both MISSING if unknown."""
        end, age = self.end_at(index, at)
        known = (end != MISSING) & (committed != MISSING) & ((committed <= end) | (age <= AHEAD_MS))
        return np.where(known, np.maximum(end - committed, 0), MISSING), np.where(known, end, MISSING)

    def passed_at(self, part: Ints, committed: Ints) -> tuple[Ints, Flags]:
        """When the end was last at `committed`; or the first sample's time, where it was beyond that already (the flag)."""
        top = self._top
        index = self._tops.find(part, committed, "right")
        found = (index < len(self.parts)) & (picked(self.parts, index) == part)
        is_first = found & ((index == 0) | (picked(self.parts, index - 1) != part))
        low, high = picked(top, index - 1), picked(top, index)
        since, until = picked(self.held, index), picked(self.at, index)
        share = (committed - low) / np.maximum(high - low, 1)
        moment = since + np.floor((until - since) * np.clip(share, 0.0, 1.0)).astype(np.int64)
        return np.where(found, np.where(is_first, until, moment), MISSING), is_first

    def origin_of(self, index: Ints) -> Ints:
        return np.where(index >= 0, picked(self.origin, index), MISSING)

    def log_start_of(self, index: Ints) -> Ints:
        return np.where(index >= 0, picked(self.log_start, index), MISSING)


class Series:
    """Commits sorted by series and log order, and the series in the order of group, topic and partition."""

    def __init__(self, commits: pa.Table, rows: Ints, series: Ints, parts: Ints, groups: Ints, names: Names) -> None:
        self.commits = commits
        self.rows = rows  # of `commits`, in this order
        self.series = series  # of each commit
        self.at = rising(series, ints(commits["append_ms"])[rows])  # never falls within a series, though clocks do
        self.removed = flags(commits["tombstone"])[rows]
        self.committed = np.where(self.removed, MISSING, ints(commits["committed"])[rows])
        self.heads = np.flatnonzero(firsts(series))  # the first commit of each series
        self.parts = parts  # of each series; -1: no end offsets
        self.groups = groups  # of each series: places in `names.groups`
        self.names = names
        self._line = SortedRows(series, self.at)

    def part(self, low: int, high: int) -> Series:
        """Some of the series, numbered from 0."""
        begin, end = np.append(self.heads, len(self.series))[[low, high]]
        chosen = slice(begin, end)
        names = self.names._replace(columns={name: column[low:high] for name, column in self.names.columns.items()})
        return Series(self.commits, self.rows[chosen], self.series[chosen] - low, self.parts[low:high], self.groups[low:high], names)

    def column(self, name: str) -> Ints:
        return ints(self.commits[name])[self.rows]

    def last_commit(self, series: Ints, at: Ints) -> Ints:
        """The last commit of that series up to that moment, -1: none."""
        index = self._line.find(series, at, "right") - 1
        return np.where((index >= 0) & (picked(self.series, index) == series), index, -1)

    def named(self, series: Ints, *columns: str) -> list[pa.Array]:
        """The names of each row's series, as dictionary columns."""
        places = pa.array(series.astype(np.int32))
        return [self.names.columns[name].take(places) for name in columns]


class Names(NamedTuple):
    """The names of the series."""

    columns: dict[str, pa.Array]  # cluster, group, topic (codes of texts), topic_partition of each series
    groups: pa.Array  # sorted


def _names(commits: pa.Table, heads: Ints, groups: pa.Array) -> Names:
    rows = commits.select(["cluster", "group", "topic", "topic_partition"]).take(pa.array(heads)).combine_chunks()
    columns = {name: rows[name].combine_chunks() for name in rows.column_names}
    return Names({name: column.dictionary_encode() if pa.types.is_string(column.type) else column for name, column in columns.items()}, groups)


class Moments(NamedTuple):
    """Times of commits and samples of each series, sorted by series and time."""

    series: Ints
    at: Ints
    commit: Ints  # the last sample up to it, -1: none
    sample: Ints  # the same
    committed: Ints
    lag: Ints
    end: Ints


class View(NamedTuple):
    """Commits and end offsets joined: lag over time."""

    series: Series
    samples: Samples
    moments: Moments  # all of them from some moment on, while something is committed

    def at(self, series: Ints, at: Ints) -> Moments:
        """The commit and sample known for each of these series and times."""
        commit = self.series.last_commit(series, at)
        return _moments(self.series, self.samples, series, at, commit, self.samples.index_at(self.series.parts[series], at))


def view_of(series: Series, samples: Samples, since_ms: int) -> View:
    """Moments from `since_ms` on."""
    return View(series, samples, _all_moments(series, samples, since_ms))


def views_of(series: Series, samples: Samples, since_ms: int) -> Iterator[View]:
    """The same of some series after the others, so that memory is bounded."""
    weights = np.diff(np.append(series.heads, len(series.series))) + samples.end(series.parts) - samples.begin(series.parts, np.full(len(series.parts), since_ms))
    number = np.cumsum(weights) // MOMENTS_TOGETHER
    cuts = [0, *(np.flatnonzero(number[1:] != number[:-1]) + 1).tolist(), len(weights)]
    for low, high in pairwise(cuts):
        yield view_of(series.part(low, high), samples, since_ms)


def connect(commits: pa.Table, ends: pa.Table) -> tuple[Series, Samples]:
    """Silver `commits` and `end_offsets`, in any order."""
    (groups,), names = ranks(commits["group"])
    (of_commits, of_ends), _ = ranks(commits["topic"], ends["topic"])
    partitions = np.concatenate((ints(commits["topic_partition"]), ints(ends["topic_partition"])))
    known, places = distinct(pair(np.concatenate((of_commits, of_ends)), partitions))
    part_of_commit, part_of_end = places[: len(of_commits)], places[len(of_commits) :]

    series = groups * max(len(known), 1) + part_of_commit
    rows = by_key_and_time(series, ints(commits["offset"]))
    series = series[rows]
    first = firsts(series)
    heads = rows[first]
    parts = part_of_commit[heads]
    with_ends = np.zeros(len(known), np.bool_)
    with_ends[part_of_end] = True
    wanted = np.zeros(len(known), np.bool_)
    wanted[parts] = True
    used = wanted[part_of_end]
    return (
        Series(commits, rows, np.cumsum(first) - 1, np.where(with_ends[parts], parts, -1), groups[heads], _names(commits, heads, names)),
        _samples(ends.filter(pa.array(used)), part_of_end[used]),
    )


def _samples(ends: pa.Table, parts: Ints) -> Samples:
    """Drop samples that lie between two samples of a preferred origin."""
    names = ends["origin"].combine_chunks().dictionary_encode()
    coded = np.array([ORIGINS.index(name) for name in names.dictionary.to_pylist()], np.int64)
    origin = coded[np.asarray(names.indices.to_numpy())] if len(ends) else np.empty(0, np.int64)
    at = ints(ends["at_ms"])
    order = by_key_and_time(parts, at) if len(coded) < 2 else np.lexsort((origin, at, parts))
    parts, at, origin = parts[order], at[order], origin[order]
    counts = np.ones(len(parts), np.bool_)
    for place in range(len(ORIGINS) - 1) if len(coded) > 1 else ():
        better = counts & (origin == place)
        if not better.any():
            continue
        rows = np.flatnonzero(better)
        behind = SortedRows(parts[rows], at[rows]).find(parts, at, "right")
        has_before = (behind > 0) & (parts[rows][np.maximum(behind - 1, 0)] == parts)
        has_after = (behind < len(rows)) & (parts[rows][np.minimum(behind, len(rows) - 1)] == parts)
        same = has_before & (at[rows][np.maximum(behind - 1, 0)] == at)
        counts &= ~((origin > place) & has_before & (has_after | same | (place == 0)))
    order, parts, at, origin = order[counts], parts[counts], at[counts], origin[counts]
    before = np.where(firsts(parts), at, np.roll(at, 1))
    unchanged = ints(ends["unchanged_ms"])[order]
    held = np.where((unchanged != MISSING) & (origin == 0), np.clip(unchanged, before, at), before)
    return Samples(parts, at, held, ints(ends["end_offset"])[order], ints(ends["log_start"])[order], origin)


def _all_moments(series: Series, samples: Samples, since_ms: int) -> Moments:
    """Every commit and every sample. A series begins with its first commit, and after a removal with the next one."""
    low = samples.begin(series.parts, np.maximum(series.at[series.heads], since_ms))
    count = np.where(series.parts >= 0, np.maximum(samples.end(series.parts) - low, 0), 0)
    owner, number = expanded(count)
    sample = low[owner] + number
    commit = np.flatnonzero(series.at >= since_ms)
    of_series = np.concatenate((owner, series.series[commit]))
    at = np.concatenate((samples.at[sample], series.at[commit]))
    order = by_key_and_time(of_series, at)
    of_series, at = of_series[order], at[order]
    is_commit = order >= len(owner)
    source = np.concatenate((sample, commit))[order]
    every = np.arange(len(series.heads))
    commits_before = series.last_commit(every, np.full(len(every), since_ms - 1))
    has_before = (low > 0) & (picked(samples.parts, low - 1) == series.parts)
    commits = _filled(of_series, source, is_commit, commits_before)
    sampled = _filled(of_series, source, ~is_commit, np.where(has_before, low - 1, -1))
    last = np.append((of_series[1:] != of_series[:-1]) | (at[1:] != at[:-1]), True) if len(at) else np.empty(0, np.bool_)
    last &= picked(series.committed, commits) != MISSING
    return _moments(series, samples, of_series[last], at[last], commits[last], sampled[last])


def _filled(keys: Ints, values: Ints, holds: Flags, before: Ints) -> Ints:
    """For each row the last value of its key for which `holds` is true; `before` has the initial value of each key."""
    index = last_seen(holds)
    mine = (index >= 0) & (picked(keys, index) == keys)
    return np.where(mine, picked(values, index), picked(before, keys))


def _moments(series: Series, samples: Samples, of_series: Ints, at: Ints, commit: Ints, sample: Ints) -> Moments:
    committed = np.where(commit >= 0, picked(series.committed, commit), MISSING)
    lag, end = samples.lag_at(sample, at, committed)
    return Moments(of_series, at, commit, sample, committed, lag, end)


def last_of(keys: Ints) -> Flags:
    """Mark the last row of each key, in rows sorted by key."""
    return np.append(firsts(keys)[1:], True) if len(keys) else np.empty(0, np.bool_)


def affected_since(new_commits: pa.Table, new_ends: pa.Table, old_ends: pa.Table) -> int | None:
    """From when on lag and status may be other than before: None: not at all. `old_ends`: of the same topics, all or the newest.

    A sample changes the line from the sample before it on.
    """
    since = [int(ints(new_commits["append_ms"]).min())] if len(new_commits) else []
    if len(new_ends):
        (new, old), _ = ranks(new_ends["topic"], old_ends["topic"])
        part = pair(np.concatenate((new, old)), np.concatenate((ints(new_ends["topic_partition"]), ints(old_ends["topic_partition"]))))
        (new, old), _ = ranks(new_ends["origin"], old_ends["origin"])
        at = np.concatenate((ints(new_ends["at_ms"]), ints(old_ends["at_ms"])))
        is_old = np.arange(len(at)) >= len(new_ends)
        # Samples of other origins may no longer count since the last one of the same origin.
        part_and_origin = pair(np.unique(part, return_inverse=True)[1], np.concatenate((new, old)))
        since += [_earliest_before(keys, at, is_old) for keys in (part, part_and_origin)]
    return min(since) if since else None


def _earliest_before(keys: Ints, at: Ints, is_old: Flags) -> int:
    order = by_key_and_time(keys, at)  # new rows come first among those of one time, in their given order
    keys, at, is_old = keys[order], at[order], is_old[order]
    before = last_seen(is_old)
    own = (before >= 0) & (keys[np.maximum(before, 0)] == keys)
    return int(np.where(own, at[np.maximum(before, 0)], at)[~is_old].min())
