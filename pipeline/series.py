"""Committed offsets and end offsets of the same partitions over time, and their values at any moment.

A series is one (group, topic, partition); a partition id is the number of one (topic, partition). Unknown values are MISSING, never 0.
Between two samples the end offset is interpolated, except for the time in which it was unchanged according to the later note. If the last
sample is a note, it stays valid, since a broker writes another note when the end offset changes; any other last sample is valid for `HOLD_MS`.
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
    flags,
    ints,
    last_true,
    mark_firsts,
    pair,
    ranks,
    running_max,
)

ORIGINS: Final = ("notes", "live", "segments", "checkpoint")  # in order of precedence
HOLD_MS: Final = 5 * 60_000
# A committed offset may exceed the last sample, because of newer records: then the lag is 0, or unknown if the sample is older than this.
AHEAD_MS: Final = 60_000
MOMENTS_PER_VIEW: Final = 400_000
LOOKBACK_MS: Final = 61 * 60_000  # the lag at a moment does not depend on older data


def value_at(values: Ints, index: Ints) -> Ints:
    """The value at each index; arbitrary for an index outside, which callers ignore."""
    return values.take(index, mode="clip") if len(values) else np.full(len(index), MISSING)


def flag_at(values: Flags, index: Ints) -> Flags:
    return values.take(index, mode="clip") if len(values) else np.zeros(len(index), np.bool_)


class Samples:
    """Samples of end offsets, sorted by partition id and time. A sample is identified by its row; -1: none."""

    def __init__(self, partition_ids: Ints, at: Ints, unchanged_until: Ints, ends: Ints, log_start: Ints, origin: Ints) -> None:
        self.partition_ids, self.at, self.ends, self.log_start = partition_ids, at, ends, log_start
        self.unchanged_until = unchanged_until  # until then the end offset was that of the previous sample
        self.origin = origin  # index into ORIGINS
        self.is_last = mark_lasts(partition_ids)
        # The interval to the next sample. An end offset that falls belongs to a recreated topic: it is not interpolated.
        self._change_start = np.roll(unchanged_until, -1)
        self._change_ms = np.where(self.is_last, 1, np.maximum(np.roll(at, -1) - self._change_start, 1))
        self._rise = np.where(self.is_last, 0, np.maximum(np.roll(ends, -1) - ends, 0))
        self._highest = running_max(partition_ids, ends)
        self._by_time, self._by_highest = SortedRows(partition_ids, at), SortedRows(partition_ids, self._highest)

    def begin(self, partition_ids: Ints, at: Ints) -> Ints:
        """For each partition its first row at or after that time, or the row where it would be inserted."""
        return self._by_time.find(partition_ids, at, "left")

    def end(self, partition_ids: Ints) -> Ints:
        """For each partition the row after its last sample."""
        return np.searchsorted(self.partition_ids, partition_ids, "right")

    def index_at(self, partition_ids: Ints, at: Ints) -> Ints:
        """The row of the last sample up to that time."""
        index = self._by_time.find(partition_ids, at, "right") - 1
        return np.where((index >= 0) & (value_at(self.partition_ids, index) == partition_ids), index, -1)

    def sampled(self, index: Ints) -> Ints:
        """The end offset of the sample."""
        return np.where(index >= 0, value_at(self.ends, index), MISSING)

    def end_at(self, index: Ints, at: Ints) -> tuple[Ints, Ints]:
        """The end offset, and the age of its sample if it is the last one (else 0)."""
        share = np.clip((at - value_at(self._change_start, index)) / value_at(self._change_ms, index), 0.0, 1.0)
        end = value_at(self.ends, index) + np.floor(value_at(self._rise, index) * share).astype(np.int64)
        age = np.where(flag_at(self.is_last, index), at - value_at(self.at, index), 0)
        known = (index >= 0) & ((age <= HOLD_MS) | (value_at(self.origin, index) == 0))
        return np.where(known, end, MISSING), age

    def lag_at(self, index: Ints, at: Ints, committed: Ints) -> tuple[Ints, Ints]:
        """Lag and end offset; both MISSING if unknown."""
        end, age = self.end_at(index, at)
        known = (end != MISSING) & (committed != MISSING) & ((committed <= end) | (age <= AHEAD_MS))
        return np.where(known, np.maximum(end - committed, 0), MISSING), np.where(known, end, MISSING)

    def passing_times(self, partition_ids: Ints, committed: Ints) -> tuple[Ints, Flags]:
        """The time at which the end offset passed `committed`, or MISSING; and whether the first sample is higher already: then its time counts."""
        highest = self._highest
        index = self._by_highest.find(partition_ids, committed, "right")
        exists = (index < len(self.partition_ids)) & (value_at(self.partition_ids, index) == partition_ids)
        is_first = exists & ((index == 0) | (value_at(self.partition_ids, index - 1) != partition_ids))
        low, high = value_at(highest, index - 1), value_at(highest, index)
        since, until = value_at(self.unchanged_until, index), value_at(self.at, index)
        share = (committed - low) / np.maximum(high - low, 1)
        moment = since + np.floor((until - since) * np.clip(share, 0.0, 1.0)).astype(np.int64)
        return np.where(exists, np.where(is_first, until, moment), MISSING), is_first

    def origin_of(self, index: Ints) -> Ints:
        return np.where(index >= 0, value_at(self.origin, index), MISSING)

    def log_start_of(self, index: Ints) -> Ints:
        return np.where(index >= 0, value_at(self.log_start, index), MISSING)


class Series:
    """Commits sorted by series and log order, and the series in the order of group, topic and partition."""

    def __init__(self, commits: pa.Table, rows: Ints, series: Ints, partition_ids: Ints, groups: Ints, names: Names) -> None:
        self.commits = commits
        self.rows = rows  # of `commits`, in this order
        self.series = series  # of each commit
        self.at_ms = running_max(series, ints(commits["append_ms"])[rows])  # monotonic within a series, although clocks are not
        self.removed = flags(commits["tombstone"])[rows]
        self.committed = np.where(self.removed, MISSING, ints(commits["committed"])[rows])
        self.heads = np.flatnonzero(mark_firsts(series))  # the first commit of each series
        self.partition_ids = partition_ids  # of each series; -1: no end offsets
        self.groups = groups  # of each series: index into `names.groups`
        self.names = names
        self._by_time = SortedRows(series, self.at_ms)

    def subset(self, low: int, high: int) -> Series:
        """The series from `low` to before `high`, renumbered from 0."""
        begin, end = np.append(self.heads, len(self.series))[[low, high]]
        chosen = slice(begin, end)
        names = self.names._replace(columns={name: column[low:high] for name, column in self.names.columns.items()})
        return Series(self.commits, self.rows[chosen], self.series[chosen] - low, self.partition_ids[low:high], self.groups[low:high], names)

    def column(self, name: str) -> Ints:
        return ints(self.commits[name])[self.rows]

    def last_commit(self, series: Ints, at: Ints) -> Ints:
        """The last commit of each series up to that time; -1: none."""
        index = self._by_time.find(series, at, "right") - 1
        return np.where((index >= 0) & (value_at(self.series, index) == series), index, -1)

    def named(self, series: Ints, *columns: str) -> list[pa.Array]:
        """The names of each row's series, as dictionary columns."""
        places = pa.array(series.astype(np.int32))
        return [self.names.columns[name].take(places) for name in columns]


class Names(NamedTuple):
    columns: dict[str, pa.Array]  # of each series: cluster, group and topic (dictionaries), topic_partition
    groups: pa.Array  # sorted


def _names(commits: pa.Table, heads: Ints, groups: pa.Array) -> Names:
    rows = commits.select(["cluster", "group", "topic", "topic_partition"]).take(pa.array(heads)).combine_chunks()
    columns = {name: rows[name].combine_chunks() for name in rows.column_names}
    return Names({name: column.dictionary_encode() if pa.types.is_string(column.type) else column for name, column in columns.items()}, groups)


class Moments(NamedTuple):
    """The times of commits and samples of each series, sorted by series and time."""

    series: Ints
    at_ms: Ints
    commit: Ints  # the last commit up to `at_ms`; -1: none
    sample: Ints  # the last sample up to `at_ms`; -1: none
    committed: Ints
    lag: Ints
    end: Ints


class LagView(NamedTuple):
    """Commits and end offsets joined: lag over time."""

    series: Series
    samples: Samples
    moments: Moments  # all since some time, while an offset is committed

    def at(self, series: Ints, at: Ints) -> Moments:
        """The last commit and sample of each of these series at these times."""
        commit = self.series.last_commit(series, at)
        return _moments(self.series, self.samples, series, at, commit, self.samples.index_at(self.series.partition_ids[series], at))


def lag_view_of(series: Series, samples: Samples, since_ms: int) -> LagView:
    """A view with the moments since `since_ms`."""
    return LagView(series, samples, _all_moments(series, samples, since_ms))


def lag_views_of(series: Series, samples: Samples, since_ms: int) -> Iterator[LagView]:
    """Views of consecutive subsets of the series, to bound memory."""
    weights = np.diff(np.append(series.heads, len(series.series))) + samples.end(series.partition_ids) - samples.begin(series.partition_ids, np.full(len(series.partition_ids), since_ms))
    number = np.cumsum(weights) // MOMENTS_PER_VIEW
    cuts = [0, *(np.flatnonzero(number[1:] != number[:-1]) + 1).tolist(), len(weights)]
    for low, high in pairwise(cuts):
        yield lag_view_of(series.subset(low, high), samples, since_ms)


def series_and_samples(commits: pa.Table, ends: pa.Table) -> tuple[Series, Samples]:
    """Series and samples from silver `commits` and `end_offsets` in any order."""
    (groups,), names = ranks(commits["group"])
    (of_commits, of_ends), _ = ranks(commits["topic"], ends["topic"])
    partitions = np.concatenate((ints(commits["topic_partition"]), ints(ends["topic_partition"])))
    known, places = distinct(pair(np.concatenate((of_commits, of_ends)), partitions))
    partition_of_commit, partition_of_end = places[: len(of_commits)], places[len(of_commits) :]

    series = groups * max(len(known), 1) + partition_of_commit
    rows = by_key_and_time(series, ints(commits["offset"]))
    series = series[rows]
    first = mark_firsts(series)
    heads = rows[first]
    partition_ids = partition_of_commit[heads]
    with_ends = np.zeros(len(known), np.bool_)
    with_ends[partition_of_end] = True
    is_committed = np.zeros(len(known), np.bool_)
    is_committed[partition_ids] = True
    used = is_committed[partition_of_end]
    return (
        Series(commits, rows, np.cumsum(first) - 1, np.where(with_ends[partition_ids], partition_ids, -1), groups[heads], _names(commits, heads, names)),
        _samples(ends.filter(pa.array(used)), partition_of_end[used]),
    )


def _samples(ends: pa.Table, partition_ids: Ints) -> Samples:
    """Sort samples, and drop those between two samples of a preferred origin."""
    names = ends["origin"].combine_chunks().dictionary_encode()
    origin_codes = np.array([ORIGINS.index(name) for name in names.dictionary.to_pylist()], np.int64)
    origin = origin_codes[np.asarray(names.indices.to_numpy())] if len(ends) else np.empty(0, np.int64)
    at = ints(ends["at_ms"])
    order = by_key_and_time(partition_ids, at) if len(origin_codes) < 2 else np.lexsort((origin, at, partition_ids))
    partition_ids, at, origin = partition_ids[order], at[order], origin[order]
    retained = np.ones(len(partition_ids), np.bool_)
    for place in range(len(ORIGINS) - 1) if len(origin_codes) > 1 else ():
        preferred = retained & (origin == place)
        if not preferred.any():
            continue
        rows = np.flatnonzero(preferred)
        insertion = SortedRows(partition_ids[rows], at[rows]).find(partition_ids, at, "right")
        has_before = (insertion > 0) & (partition_ids[rows][np.maximum(insertion - 1, 0)] == partition_ids)
        has_after = (insertion < len(rows)) & (partition_ids[rows][np.minimum(insertion, len(rows) - 1)] == partition_ids)
        same = has_before & (at[rows][np.maximum(insertion - 1, 0)] == at)
        retained &= ~((origin > place) & has_before & (has_after | same | (place == 0)))
    order, partition_ids, at, origin = order[retained], partition_ids[retained], at[retained], origin[retained]
    before = np.where(mark_firsts(partition_ids), at, np.roll(at, 1))
    unchanged = ints(ends["unchanged_ms"])[order]
    unchanged_until = np.where((unchanged != MISSING) & (origin == 0), np.clip(unchanged, before, at), before)
    return Samples(partition_ids, at, unchanged_until, ints(ends["end_offset"])[order], ints(ends["log_start"])[order], origin)


def _all_moments(series: Series, samples: Samples, since_ms: int) -> Moments:
    """The moments of all commits and samples while an offset is committed: since the first commit, and after a tombstone since the next one."""
    low = samples.begin(series.partition_ids, np.maximum(series.at_ms[series.heads], since_ms))
    count = np.where(series.partition_ids >= 0, np.maximum(samples.end(series.partition_ids) - low, 0), 0)
    owner, number = expanded(count)
    sample = low[owner] + number
    commit = np.flatnonzero(series.at_ms >= since_ms)
    of_series = np.concatenate((owner, series.series[commit]))
    at = np.concatenate((samples.at[sample], series.at_ms[commit]))
    order = by_key_and_time(of_series, at)
    of_series, at = of_series[order], at[order]
    is_commit = order >= len(owner)
    source = np.concatenate((sample, commit))[order]
    every = np.arange(len(series.heads))
    commits_before = series.last_commit(every, np.full(len(every), since_ms - 1))
    has_before = (low > 0) & (value_at(samples.partition_ids, low - 1) == series.partition_ids)
    commits = _filled(of_series, source, is_commit, commits_before)
    sampled = _filled(of_series, source, ~is_commit, np.where(has_before, low - 1, -1))
    last = np.append((of_series[1:] != of_series[:-1]) | (at[1:] != at[:-1]), True) if len(at) else np.empty(0, np.bool_)
    last &= value_at(series.committed, commits) != MISSING
    return _moments(series, samples, of_series[last], at[last], commits[last], sampled[last])


def _filled(keys: Ints, values: Ints, holds: Flags, before: Ints) -> Ints:
    """For each row the last value of its key with `holds` true; `before`: the initial value of each key."""
    index = last_true(holds)
    same_key = (index >= 0) & (value_at(keys, index) == keys)
    return np.where(same_key, value_at(values, index), value_at(before, keys))


def _moments(series: Series, samples: Samples, of_series: Ints, at: Ints, commit: Ints, sample: Ints) -> Moments:
    committed = np.where(commit >= 0, value_at(series.committed, commit), MISSING)
    lag, end = samples.lag_at(sample, at, committed)
    return Moments(of_series, at, commit, sample, committed, lag, end)


def mark_lasts(keys: Ints) -> Flags:
    """Mark the last row of each key, in rows sorted by key."""
    return np.append(mark_firsts(keys)[1:], True) if len(keys) else np.empty(0, np.bool_)


def affected_since(new_commits: pa.Table, new_ends: pa.Table, old_ends: pa.Table) -> int | None:
    """The time since which lag and status may have changed; None: not at all. `old_ends`: samples of the same topics, at least the newest.

    A sample changes the interpolation since the previous sample.
    """
    since = [int(ints(new_commits["append_ms"]).min())] if len(new_commits) else []
    if len(new_ends):
        (new, old), _ = ranks(new_ends["topic"], old_ends["topic"])
        partition_ids = pair(np.concatenate((new, old)), np.concatenate((ints(new_ends["topic_partition"]), ints(old_ends["topic_partition"]))))
        (new, old), _ = ranks(new_ends["origin"], old_ends["origin"])
        at = np.concatenate((ints(new_ends["at_ms"]), ints(old_ends["at_ms"])))
        is_old = np.arange(len(at)) >= len(new_ends)
        # A new sample of a preferred origin also drops samples of other origins since the previous sample of its origin.
        partition_and_origin = pair(np.unique(partition_ids, return_inverse=True)[1], np.concatenate((new, old)))
        since += [_earliest_before(keys, at, is_old) for keys in (partition_ids, partition_and_origin)]
    return min(since) if since else None


def _earliest_before(keys: Ints, at: Ints, is_old: Flags) -> int:
    order = by_key_and_time(keys, at)  # stable: new rows come first among rows with equal times
    keys, at, is_old = keys[order], at[order], is_old[order]
    before = last_true(is_old)
    has_previous = (before >= 0) & (keys[np.maximum(before, 0)] == keys)
    return int(np.where(has_previous, at[np.maximum(before, 0)], at)[~is_old].min())
