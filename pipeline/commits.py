"""Commits of many groups, each with its predecessor, and the commits around each group metadata record.

One step processes new records of some groups. The rows do not depend on how the records are divided into steps, nor on the other groups: a step knows
earlier records from its `CommitState`, four small Arrow tables that are stored (`state.py`):

- `tails`: for each group and partition the last ten commits, all of about the last hour, and a sample of the hour before
  (`CommitState.trimmed`), as rows of `commits`. Lag and status are recomputed from these rows, too.
- `waiting`: group metadata records whose next commit may still arrive; `around`: their partitions.
- `homes`: the partition of each group, and the newest time in its records.

An edge is a group metadata record with the commits around it. It waits a day of the group's own time for the first commit after it. `DigestedCommits.edges`
are final rows; `DigestedCommits.open_edges` still wait, and replace the open edges of the previous step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from history.newer import CONSUMER
from pipeline.columns import MISSING, Flags, Ints, flags, ints, mark_firsts, optional, pair, ranks, running_max
from pipeline.edges import AROUND, HOMES, WAITING, GroupClock, SortedCommits, edges_of
from pipeline.schema import schema_of, schema_with_dictionaries
from protocol.messages.consumer_offsets import ConsumerGroupTargetAssignmentMetadataKey

TAIL: Final = 10  # commits: Burrow's window
KEPT_MS: Final = 75 * 60_000  # more than the longest window of lag and status
SLOT_MS: Final = 15_000  # the status rules use the last commit of each slot
WINDOW_MS_MAX: Final = 3_600_000
BEGINNING: Final = -(1 << 62)


@dataclass(frozen=True)
class CommitState:
    """The state between two steps."""

    tails: pa.Table  # rows of `commits`
    waiting: pa.Table
    around: pa.Table
    homes: pa.Table
    kept_from_ms: int = BEGINNING  # `tails` has every commit since then

    @classmethod
    def new(cls) -> CommitState:
        return cls(schema_of("commits").empty_table(), WAITING.empty_table(), AROUND.empty_table(), HOMES.empty_table())

    @property
    def newest_ms(self) -> int:
        newest = pc.max(self.homes["newest_ms"]).as_py()
        return BEGINNING if newest is None else int(newest)

    def trimmed(self, settled_ms: int) -> CommitState:
        """The state without commits that rows after `settled_ms` do not need."""
        keys, _ = _keys(self.tails)
        since = settled_ms - KEPT_MS
        at = running_max(np.cumsum(mark_firsts(keys)) - 1, ints(self.tails["append_ms"]))  # the newest time so far, as clocks may be set back
        from_end = _from_end(keys)
        recent = at >= since
        # Of older commits of each partition of a group, two kinds stay: the last ten, for windows of ten commits, and the last one of each time
        # slot of an hour, for windows of time.
        ten = from_end < _rows_to_keep(keys, from_end, recent)
        hour = _last_of_each_slot(keys, at, recent)
        kept = recent | ((ten | hour) & ~_removed_later(keys, flags(self.tails["tombstone"]) & ~recent))
        return replace(self, tails=self.tails.filter(pa.array(kept)), kept_from_ms=max(self.kept_from_ms, since))


class DigestedCommits(NamedTuple):
    commits: pa.Table  # new rows of `commits`, in table order
    edges: pa.Table  # final rows of `edges`
    open_edges: pa.Table  # rows of `edges` that may still change
    refold: list[str]  # groups with a new record or a changed edge
    state: CommitState


def digest_commits(cluster: str, commits: pa.Table, events: pa.Table, state: CommitState) -> DigestedCommits:
    """`commits`, `events`: the new offset commits, and all other records, in log order; the columns of bronze that are used."""
    new = _as_commits(cluster, commits)
    all_commits = pa.concat_tables([state.tails.cast(new.schema), new]).unify_dictionaries()
    keys, key_columns = _keys(all_commits)
    order = np.argsort(keys, kind="stable")  # stable: tails precede new commits, both in log order
    all_commits = all_commits.take(pa.array(order))
    is_new = order >= len(state.tails)
    keys = keys[order]
    all_commits = _with_predecessors(all_commits, keys, is_new)

    events = events.filter(pc.and_(pc.is_valid(events["group"]), pc.equal(events["log"], "offsets")))
    homes = _homes(state.homes, commits, events)
    group_records = events.filter(pc.or_(pc.equal(events["kind"], "group"), _has_target(events)))
    rows = SortedCommits(all_commits, keys, key_columns[0][order], key_columns[1], is_new)
    clock = GroupClock(homes, state.homes, commits, events)
    edges = edges_of(cluster, rows, group_records, clock, state.waiting, state.around)
    next_state = replace(state, tails=all_commits, waiting=edges.waiting, around=edges.around, homes=homes)
    return DigestedCommits(all_commits if is_new.all() else all_commits.filter(pa.array(is_new)), edges.settled, edges.open, edges.refold, next_state)


def _has_target(events: pa.Table) -> pa.ChunkedArray:
    """The records of consumer groups that stand for a new target: the fold makes group records of them."""
    of_target = pc.equal(events["key_version"], ConsumerGroupTargetAssignmentMetadataKey.VERSIONS[0])
    return pc.and_(pc.and_(pc.equal(events["kind"], CONSUMER), of_target), pc.invert(events["tombstone"]))


def _homes(known: pa.Table, commits: pa.Table, events: pa.Table) -> pa.Table:
    parts = [(known["group"], ints(known["partition"]), ints(known["newest_ms"]))]
    parts += [(records["group"], ints(records["partition"]), ints(records["append_ms"])) for records in (commits, events)]
    of_parts, names = ranks(*(part[0] for part in parts))
    groups, partitions, at = np.concatenate(of_parts), np.concatenate([part[1] for part in parts]), np.concatenate([part[2] for part in parts])
    newest = np.full(len(names), BEGINNING)
    np.maximum.at(newest, groups, at)
    partition = np.full(len(names), -1)
    partition[groups] = partitions  # the last one stays
    seen = np.zeros(len(names), np.bool_)
    seen[groups] = True
    return pa.table([pa.array(names).cast(pa.string()), pa.array(partition), pa.array(newest)], schema=HOMES).filter(pa.array(seen))


def _as_commits(cluster: str, records: pa.Table) -> pa.Table:
    """Rows of `commits` without their predecessors. Names are dictionaries if the records have them so."""
    count = len(records)
    nulls = pa.nulls(count, pa.int64())
    coded = pa.types.is_dictionary(records.schema.field("group").type)
    of_cluster = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), [cluster]) if coded else pa.repeat(cluster, count)
    columns = {"cluster": of_cluster} | {name: records[name] for name in ("group", "topic", "topic_partition", "offset", "append_ms", "committed")}
    columns["commit_ms"] = pc.fill_null(pc.coalesce(records["commit_ms"], records["append_ms"]), 0)
    columns |= {"prev_committed": nulls, "delta": nulls, "gap_ms": nulls, "rewind": pa.repeat(False, count)}
    columns |= {name: records[name] for name in ("tombstone", "metadata", "txn")}
    table = pa.table([columns[name] for name in schema_of("commits").names], names=schema_of("commits").names)
    return table.cast(schema_with_dictionaries("commits", table))


def _keys(commits: pa.Table) -> tuple[Ints, tuple[Ints, pa.Array]]:
    """One number for (group, topic, partition) that sorts the same way; and the index of each row's group among the sorted groups."""
    (groups,), names = ranks(commits["group"])
    (topics,), _ = ranks(commits["topic"])
    return pair(pair(groups, topics), ints(commits["topic_partition"])), (groups, names)


def _with_predecessors(commits: pa.Table, keys: Ints, is_new: Flags) -> pa.Table:
    """Add each commit's predecessor. After a tombstone the next commit has none."""
    committed = ints(commits["committed"])
    at = ints(commits["append_ms"])
    tombstone = flags(commits["tombstone"])
    has_predecessor = ~mark_firsts(keys)
    has_predecessor[1:] &= ~tombstone[:-1]
    predecessor = np.where(has_predecessor, np.roll(committed, 1), MISSING)
    gap = np.where(has_predecessor, at - np.roll(at, 1), MISSING)
    has_delta = (predecessor != MISSING) & (committed != MISSING) & ~tombstone
    delta = np.where(has_delta, committed - predecessor, MISSING)
    rewind = has_delta & (delta < 0)
    old = ~is_new
    if old.any():  # an old commit's predecessor may have been dropped
        predecessor[old] = ints(commits["prev_committed"])[old]
        delta[old] = ints(commits["delta"])[old]
        gap[old] = ints(commits["gap_ms"])[old]
        rewind[old] = flags(commits["rewind"])[old]
    columns = {"prev_committed": optional(predecessor), "delta": optional(delta), "gap_ms": optional(gap), "rewind": pa.array(rewind)}
    for name, column in columns.items():
        commits = commits.set_column(commits.schema.get_field_index(name), commits.schema.field(name), column)
    return commits


def _from_end(keys: Ints) -> Ints:
    """For each row of sorted keys the number of later rows with the same key."""
    first = np.flatnonzero(mark_firsts(keys))
    counts = np.diff(np.append(first, len(keys)))
    return np.repeat(first + counts, counts) - 1 - np.arange(len(keys))


def _rows_to_keep(keys: Ints, from_end: Ints, recent: Flags) -> Ints:
    """For each row: how many of the last rows of its key to keep.

    These are the rows from the oldest recent one on, and up to ten before it; ten if no row is recent.
    """
    first = np.flatnonzero(mark_firsts(keys))
    if not len(first):
        return np.empty(0, np.int64)
    recent_counts = np.maximum.reduceat(np.where(recent, from_end + 1, 0), first)
    return np.repeat(recent_counts + TAIL, np.diff(np.append(first, len(keys))))


def _last_of_each_slot(keys: Ints, at: Ints, recent: Flags) -> Flags:
    """Mark the last row of each time slot before the recent rows, as far back as a window reaches."""
    first = np.flatnonzero(mark_firsts(keys))
    if not len(first):
        return np.empty(0, np.bool_)
    newest = np.maximum.reduceat(np.where(recent, BEGINNING, at), first)
    last_of_slot = np.append(mark_firsts(keys)[1:] | mark_firsts(at // SLOT_MS)[1:], True)
    return last_of_slot & (at >= np.repeat(newest, np.diff(np.append(first, len(keys)))) - WINDOW_MS_MAX)


def _removed_later(keys: Ints, tombstone: Flags) -> Flags:
    """Mark rows at or before a tombstone of the same key."""
    first = np.flatnonzero(mark_firsts(keys))
    if not len(first):
        return np.empty(0, np.bool_)
    last = np.maximum.reduceat(np.where(tombstone, np.arange(len(keys)), -1), first)
    return np.arange(len(keys)) <= np.repeat(last, np.diff(np.append(first, len(keys))))
