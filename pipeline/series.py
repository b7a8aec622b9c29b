"""Committed offsets and end offsets of the same partitions over time, and where either was at any moment.

A series is one (group, topic, partition); a part is one (topic, partition) of which end offsets are known. What is not known is
MISSING, never 0. Between two samples an end offset is a straight line, but for the time over which the note of the later one says
that nothing had changed. After the last sample a note holds for good, for a broker writes the next one when something changes;
any other sample holds for `HOLD_MS`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.columns import MISSING, Flags, Ints, expanded, firsts, flags, ints, last_seen, locate, pair, ranks, rising

ORIGINS: Final = ("notes", "live", "segments", "checkpoint")  # what comes first counts
HOLD_MS: Final = 5 * 60_000
# A commit may be ahead of the last sample by what was written since: no lag. Later than this it says that the sample is too old.
AHEAD_MS: Final = 60_000
FOR_EVER: Final = 1 << 62
LOOKBACK_MS: Final = 61 * 60_000  # so far before a moment its lag is made of


def picked(values: Ints, index: Ints) -> Ints:
    """Where there is no such row, some other: whoever asks does not look at it."""
    return values[np.clip(index, 0, len(values) - 1)] if len(values) else np.full(len(index), MISSING)


class Samples(NamedTuple):
    """Sorted by part and time."""

    parts: Ints
    at: Ints
    held: Ints  # the end of the sample before held until then
    ends: Ints
    log_start: Ints
    origin: Ints  # place in ORIGINS

    def index_at(self, part: Ints, at: Ints) -> Ints:
        """The last sample up to that moment; -1: none."""
        index = locate(self.parts, self.at, part, at, "right") - 1
        return np.where((index >= 0) & (picked(self.parts, index) == part), index, -1)

    def sampled_at(self, part: Ints, at: Ints) -> Ints:
        """As it was last seen."""
        index = self.index_at(part, at)
        return np.where(index >= 0, picked(self.ends, index), MISSING)

    def end_at(self, part: Ints, at: Ints) -> tuple[Ints, Ints]:
        """The end, and for how long the sample that it is from has been the last one (0: another follows)."""
        index = self.index_at(part, at)
        following = index + 1
        has_next = (following < len(self.parts)) & (picked(self.parts, following) == part) & (index >= 0)
        low, high = picked(self.ends, index), picked(self.ends, following)
        since, until = picked(self.held, following), picked(self.at, following)
        share = np.clip((at - since) / np.maximum(until - since, 1), 0.0, 1.0)
        line = low + np.floor((high - low) * share).astype(np.int64)
        end = np.where(has_next & (high > low), line, low)  # one that falls is of another topic of that name: it jumps
        age = np.where(has_next, 0, at - picked(self.at, index))
        known = (index >= 0) & ((age <= HOLD_MS) | (picked(self.origin, index) == 0))
        return np.where(known, end, MISSING), age

    def lag_at(self, part: Ints, at: Ints, committed: Ints) -> tuple[Ints, Ints]:
        """Lag and end; both MISSING where that is not known."""
        end, age = self.end_at(part, at)
        known = (end != MISSING) & (committed != MISSING) & ((committed <= end) | (age <= AHEAD_MS))
        return np.where(known, np.maximum(end - committed, 0), MISSING), np.where(known, end, MISSING)

    def passed_at(self, part: Ints, committed: Ints) -> tuple[Ints, Flags]:
        """When the end was last at `committed`; or the first sample's time, where it was beyond that already (the flag)."""
        top = rising(self.parts, self.ends)
        index = locate(self.parts, top, part, committed, "right")
        found = (index < len(self.parts)) & (picked(self.parts, index) == part)
        is_first = found & ((index == 0) | (picked(self.parts, index - 1) != part))
        low, high = picked(top, index - 1), picked(top, index)
        since, until = picked(self.held, index), picked(self.at, index)
        share = (committed - low) / np.maximum(high - low, 1)
        moment = since + np.floor((until - since) * np.clip(share, 0.0, 1.0)).astype(np.int64)
        return np.where(found, np.where(is_first, until, moment), MISSING), is_first

    def origin_at(self, part: Ints, at: Ints) -> Ints:
        """Of the last sample up to that moment; MISSING: there is none."""
        index = self.index_at(part, at)
        return np.where(index >= 0, picked(self.origin, index), MISSING)

    def log_start_at(self, part: Ints, at: Ints) -> Ints:
        index = self.index_at(part, at)
        return np.where(index >= 0, picked(self.log_start, index), MISSING)


class Series(NamedTuple):
    """Commits sorted by series and log order, and what the series are."""

    commits: pa.Table
    series: Ints  # of each commit
    at: Ints  # never falls within a series, though clocks do
    committed: Ints  # MISSING: removed
    heads: Ints  # the first commit of each series
    parts: Ints  # of each series; -1: no end offsets

    def last_commit(self, series: Ints, at: Ints) -> Ints:
        """The last commit of that series up to that moment, -1: none."""
        index = locate(self.series, self.at, series, at, "right") - 1
        mine = self.series[np.maximum(index, 0)] == series if len(self.series) else np.zeros(len(index), np.bool_)
        return np.where((index >= 0) & mine, index, -1)

    def named(self, series: Ints, *columns: str) -> list[pa.ChunkedArray]:
        rows = self.commits.select(columns).take(pa.array(self.heads[series]))
        return [rows[name] for name in columns]


class Moments(NamedTuple):
    """Every moment at which something was said of a series, a commit or an end offset, sorted by series and time."""

    series: Ints
    at: Ints
    committed: Ints
    lag: Ints
    end: Ints


def connect(commits: pa.Table, ends: pa.Table) -> tuple[Series, Samples]:
    """Silver `commits` and `end_offsets`, in any order."""
    (groups,), _ = ranks(commits["group"])
    (of_commits, of_ends), _ = ranks(commits["topic"], ends["topic"])
    partitions = np.concatenate((ints(commits["topic_partition"]), ints(ends["topic_partition"])))
    both = pair(np.concatenate((of_commits, of_ends)), partitions)
    known, places = np.unique(both, return_inverse=True)
    part_of_commit, part_of_end = places[: len(of_commits)], places[len(of_commits) :]

    series = groups * max(len(known), 1) + part_of_commit
    order = np.lexsort((ints(commits["offset"]), series))
    commits, series = commits.take(pa.array(order)), series[order]
    first = firsts(series)
    dense = np.cumsum(first) - 1
    heads = np.flatnonzero(first)
    parts = part_of_commit[order][heads]
    with_ends = np.zeros(len(known), np.bool_)
    with_ends[part_of_end] = True
    parts = np.where(with_ends[parts], parts, -1) if len(parts) else parts
    committed = np.where(flags(commits["tombstone"]), MISSING, ints(commits["committed"]))
    wanted = np.zeros(len(known), np.bool_)
    wanted[parts[parts >= 0]] = True
    used = wanted[part_of_end]
    return (
        Series(commits, dense, rising(dense, ints(commits["append_ms"])), committed, heads, parts),
        _samples(ends.filter(pa.array(used)), part_of_end[used]),
    )


def _samples(ends: pa.Table, parts: Ints) -> Samples:
    """Where a better origin has samples before and after, those of others do not count."""
    names = ends["origin"].combine_chunks().dictionary_encode()
    coded = np.array([ORIGINS.index(name) for name in names.dictionary.to_pylist()], np.int64)
    origin = coded[np.asarray(names.indices.to_numpy(), np.int64)] if len(ends) else np.empty(0, np.int64)
    at = ints(ends["at_ms"])
    order = np.lexsort((origin, at, parts))
    ends, parts, at, origin = ends.take(pa.array(order)), parts[order], at[order], origin[order]
    counts = np.ones(len(parts), np.bool_)
    for place in range(len(ORIGINS) - 1):
        better = counts & (origin == place)
        if not better.any():
            continue
        rows = np.flatnonzero(better)
        behind = locate(parts[rows], at[rows], parts, at, "right")
        has_before = (behind > 0) & (parts[rows][np.maximum(behind - 1, 0)] == parts)
        has_after = (behind < len(rows)) & (parts[rows][np.minimum(behind, len(rows) - 1)] == parts)
        same = has_before & (at[rows][np.maximum(behind - 1, 0)] == at)
        counts &= ~((origin > place) & has_before & (has_after | same | (place == 0)))
    ends, parts, at, origin = ends.filter(pa.array(counts)), parts[counts], at[counts], origin[counts]
    before = np.where(firsts(parts), at, np.roll(at, 1))
    unchanged = ints(ends["unchanged_ms"])
    held = np.where((unchanged != MISSING) & (origin == 0), np.clip(unchanged, before, at), before)
    return Samples(parts, at, held, ints(ends["end_offset"]), ints(ends["log_start"]), origin)


def moments(series: Series, samples: Samples, since_ms: int) -> Moments:
    """From `since_ms` on. A series begins with its first commit, and after a removal with the next one."""
    low = locate(samples.parts, samples.at, series.parts, np.maximum(series.at[series.heads], since_ms), "left")
    high = np.searchsorted(samples.parts, series.parts, "right") if len(samples.parts) else np.zeros(len(series.parts), np.int64)
    owner, number = expanded(np.where(series.parts >= 0, np.maximum(high - low, 0), 0))
    sample = low[owner] + number
    recent = series.at >= since_ms
    all_series = np.concatenate((owner, series.series[recent]))
    all_at = np.concatenate((samples.at[sample], series.at[recent]))
    order = np.lexsort((all_at, all_series))
    all_series, all_at = all_series[order], all_at[order]
    last = np.append((all_series[1:] != all_series[:-1]) | (all_at[1:] != all_at[:-1]), True) if len(order) else np.empty(0, np.bool_)
    all_series, all_at = all_series[last], all_at[last]
    index = series.last_commit(all_series, all_at)
    committed = np.where(index >= 0, series.committed[np.maximum(index, 0)], MISSING) if len(index) else index
    live = committed != MISSING
    all_series, all_at, committed = all_series[live], all_at[live], committed[live]
    lag, end = samples.lag_at(series.parts[all_series], all_at, committed)
    return Moments(all_series, all_at, committed, lag, end)


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
        # Samples of other origins may not count any more since the last one of the same.
        part_and_origin = pair(np.unique(part, return_inverse=True)[1], np.concatenate((new, old)))
        since += [_earliest_before(keys, at, is_old) for keys in (part, part_and_origin)]
    return min(since) if since else None


def _earliest_before(keys: Ints, at: Ints, is_old: Flags) -> int:
    order = np.lexsort((is_old, at, keys))
    keys, at, is_old = keys[order], at[order], is_old[order]
    before = last_seen(is_old)
    own = (before >= 0) & (keys[np.maximum(before, 0)] == keys)
    return int(np.where(own, at[np.maximum(before, 0)], at)[~is_old].min())
