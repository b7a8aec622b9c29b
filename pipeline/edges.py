"""Silver `edges`: for each group metadata record, and each partition of the group, the last commit before it and the first one after it.

From these commits `history/stalls.py` derives how long partitions were not consumed in a rebalance.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns import (
    MISSING,
    Flags,
    Ints,
    expanded,
    flags,
    ints,
    last_true,
    locate,
    mark_firsts,
    next_true,
    pair,
    ranks,
    running_max,
)
from pipeline.schema import in_order, schema_of

WAIT_MS: Final = 24 * 3_600_000  # how long an edge waits for its next commits, in the time of the group's records
GAPS: Final = 10
NONE: Final = -1  # in lists of edges
NEVER: Final = 1 << 62

WAITING: Final = pa.schema(
    [("group", pa.string()), ("offset", pa.int64()), ("until_ms", pa.int64()), ("next_offset", pa.int64())]
)
AROUND: Final = pa.schema(
    [
        ("group", pa.string()),
        ("offset", pa.int64()),
        ("topic", pa.string()),
        ("topic_partition", pa.int64()),
        ("last_before_ms", pa.int64()),
        ("first_after_ms", pa.int64()),
        ("usual_gap_ms", pa.int64()),
    ]
)
HOMES: Final = pa.schema([("group", pa.string()), ("partition", pa.int64()), ("newest_ms", pa.int64())])


class SortedCommits(NamedTuple):
    """Known and new commits, sorted by key and offset."""

    commits: pa.Table
    keys: Ints
    groups: Ints  # indexes into `names`
    names: pa.Array
    is_new: Flags


class Edges(NamedTuple):
    settled: pa.Table
    open: pa.Table
    refold: list[str]
    waiting: pa.Table
    around: pa.Table


class GroupClock:
    """The newest time in the records of a group: clocks are set back, but this time is not."""

    def __init__(self, homes: pa.Table, before: pa.Table, *records: pa.Table) -> None:
        """`homes`: of all records; `before`: without these records."""
        self._homes, self._before, self._records = homes, before, records

    def newest(self, groups: pa.ChunkedArray) -> Ints:
        place = pc.index_in(groups, self._homes["group"])
        return np.asarray(ints(self._homes["newest_ms"].take(place.fill_null(0)))) if len(self._homes) else np.full(len(groups), -NEVER)

    def at(self, groups: pa.Array, offsets: Ints) -> Ints:
        """The time of each group up to its record at that offset, which is one of the new records."""
        wanted = pc.unique(groups)
        parts = [self._before.filter(pc.is_in(self._before["group"], wanted)), *(each.filter(pc.is_in(each["group"], wanted)) for each in self._records)]
        of_parts, _ = ranks(*(part["group"] for part in parts), pa.chunked_array([groups]))
        times = [ints(parts[0]["newest_ms"]), *(ints(part["append_ms"]) for part in parts[1:])]
        places = [np.full(len(parts[0]), NONE), *(ints(part["offset"]) for part in parts[1:])]
        group, at, place = np.concatenate(of_parts[:-1]), np.concatenate(times), np.concatenate(places)
        order = np.lexsort((place, group))
        group, place = group[order], place[order]
        newest = running_max(group, at[order])
        return newest[locate(group, place, of_parts[-1], offsets, "right") - 1]


def edges_of(cluster: str, rows: SortedCommits, group_records: pa.Table, clock: GroupClock, waiting: pa.Table, around: pa.Table) -> Edges:
    """`group_records`: new group metadata records."""
    edge_records, is_new = _edge_records(group_records, waiting)
    if not len(edge_records):
        empty = schema_of("edges").empty_table()
        return Edges(empty, empty, [], edge_records, around)
    edge_rows = _commits_around(rows, edge_records, is_new, clock, around)
    edge_rows = _merged(edge_rows, around)
    edge_of_row, group_of_edge = _edges_of_rows(edge_records, edge_rows)
    waits = np.zeros(len(edge_records), np.bool_)
    np.logical_or.at(waits, edge_of_row, ints(edge_rows["first_after_ms"]) == NONE)
    newest = clock.newest(edge_records["group"])
    is_open = (waits | (ints(edge_records["next_offset"]) == MISSING)) & (ints(edge_records["until_ms"]) >= newest)
    edges = _as_edges(cluster, edge_records, edge_rows, edge_of_row)
    refold = np.unique(np.concatenate((group_of_edge[is_new], group_of_edge[edge_of_row[ints(edge_rows["changed"]) == 1]])))
    names = pc.unique(edge_records["group"]).sort()
    return Edges(
        edges.filter(pa.array(~is_open)),
        edges.filter(pa.array(is_open)),
        [names[int(place)].as_py() for place in refold],
        edge_records.filter(pa.array(is_open)),
        edge_rows.select(AROUND.names).filter(pa.array(is_open[edge_of_row])).cast(AROUND),
    )


def _edge_records(group_records: pa.Table, waiting: pa.Table) -> tuple[pa.Table, Flags]:
    """Known and new edges by group and offset, with the offset of the group's next record if known."""
    until = pa.array(ints(group_records["append_ms"]) + WAIT_MS)
    new = pa.table([group_records["group"], group_records["offset"], until, pa.nulls(len(group_records), pa.int64())], schema=WAITING)
    edge_records = pa.concat_tables([waiting, new])
    (groups,), _ = ranks(edge_records["group"])
    order = np.lexsort((ints(edge_records["offset"]), groups))
    edge_records, groups = edge_records.take(pa.array(order)), groups[order]
    own = ints(edge_records["offset"])
    following = np.where(np.append(mark_firsts(groups)[1:], True), MISSING, np.roll(own, -1))
    known = ints(edge_records["next_offset"])
    following = np.where(known != MISSING, known, following)
    place = edge_records.schema.get_field_index("next_offset")
    return edge_records.set_column(place, "next_offset", pa.array(following, mask=following == MISSING)), order >= len(waiting)


def _in_time(edge_records: pa.Table, edge: Ints, offsets: Ints, clock: GroupClock) -> Flags:
    """For each commit at these offsets, and its edge, whether the edge still waited for it."""
    until = ints(edge_records["until_ms"])
    in_time = np.ones(len(edge), np.bool_)
    late = np.flatnonzero((clock.newest(edge_records["group"]) > until)[edge])  # perhaps: the group has records after that time
    if len(late):
        groups = edge_records["group"].take(pa.array(edge[late])).combine_chunks()
        in_time[late] = clock.at(groups, offsets[late]) <= until[edge[late]]
    return in_time


def _commits_around(rows: SortedCommits, edge_records: pa.Table, is_new: Flags, clock: GroupClock, around: pa.Table) -> pa.Table:
    """The commits around each edge: of a new edge among all commits, of a known edge only among new commits."""
    commits, keys = rows.commits, rows.keys
    first_rows = np.flatnonzero(mark_firsts(keys))
    key_groups = rows.groups[first_rows]  # rising
    dense = np.cumsum(mark_firsts(keys)) - 1
    offsets, at, live = ints(commits["offset"]), ints(commits["append_ms"]), ~flags(commits["tombstone"])
    has_new = np.zeros(len(first_rows), np.bool_)
    has_new[dense[rows.is_new]] = True

    place = pc.index_in(edge_records["group"], pa.array(rows.names)).combine_chunks()
    group = ints(pa.chunked_array([pc.fill_null(place, -1).cast(pa.int64())]))
    low, high = np.searchsorted(key_groups, group, "left"), np.searchsorted(key_groups, group, "right")
    edge, number = expanded(high - low)
    key = low[edge] + number
    selected = is_new[edge] | has_new[key]
    edge, key = edge[selected], key[selected]

    own, following = ints(edge_records["offset"])[edge], ints(edge_records["next_offset"])[edge]
    following_row = locate(dense, offsets, key, own, "right")  # the first row after the edge's record, perhaps of another key
    before = following_row - 1
    has_before = (before >= 0) & (dense[before] == key) & live[before] if len(dense) else np.zeros(len(key), np.bool_)
    live_from = np.append(next_true(live), len(dense))
    after = live_from[following_row]
    after_index = np.minimum(after, max(len(dense) - 1, 0))
    has_after = (after < len(dense)) & (dense[after_index] == key) if len(dense) else np.zeros(len(key), np.bool_)
    has_after[has_after] = _in_time(edge_records, edge[has_after], offsets[after_index[has_after]], clock)
    immediately_after = has_after & ((following == MISSING) | (offsets[after_index] < following))
    retained = np.where(is_new[edge], has_before | immediately_after, has_after)

    edge, key, before, after_index = edge[retained], key[retained], before[retained], after_index[retained]
    has_before, has_after, immediately_after = has_before[retained], has_after[retained], immediately_after[retained]
    has_before &= is_new[edge]  # known edges have this commit already
    last = np.where(has_before, at[before], NONE)
    first = np.where(has_after, at[after_index], NONE)
    gap = np.full(len(edge), NONE)
    gap[has_before] = _usual_gaps(rows, before[has_before])
    names = commits.take(pa.array(first_rows[key]))
    fills_only = ~is_new[edge] & ~immediately_after  # completes only partitions that the edge has already
    return pa.table(
        {
            "group": names["group"],
            "offset": pa.array(own[retained]),
            "topic": names["topic"],
            "topic_partition": names["topic_partition"],
            "last_before_ms": pa.array(last),
            "first_after_ms": pa.array(first),
            "usual_gap_ms": pa.array(gap),
            "changed": pa.array(np.ones(len(edge), np.int64)),
            "adds": pa.array((~fills_only).astype(np.int64)),
        }
    )


def _usual_gaps(rows: SortedCommits, at: Ints) -> Ints:
    """The median of the last ten gaps up to each of these rows."""
    distinct, back = np.unique(at, return_inverse=True)
    gaps = ints(rows.commits["gap_ms"])
    # A commit without a gap begins a sequence: it is the first of its key, or the first after a tombstone.
    began = last_true(gaps == MISSING)
    index = distinct[:, None] - np.arange(GAPS)[None, :]
    known = index > began[distinct][:, None]
    values = np.sort(np.where(known, gaps[np.maximum(index, 0)], NEVER), axis=1)
    count = known.sum(axis=1)
    line = np.arange(len(distinct))
    middle = (values[line, np.maximum(count - 1, 0) // 2] + values[line, np.minimum(count // 2, GAPS - 1)]) // 2
    return np.where(count > 0, middle, NONE)[back]


def _merged(around_rows: pa.Table, around: pa.Table) -> pa.Table:
    """Merge known and new rows into one row for each partition of each edge."""
    count = len(around)
    zeros = pa.array(np.zeros(count, np.int64))
    known_rows = around.append_column("changed", zeros).append_column("adds", pa.array(np.ones(count, np.int64)))
    merged = pa.concat_tables([known_rows, around_rows.cast(known_rows.schema)])
    (groups,), _ = ranks(merged["group"])
    (topics,), _ = ranks(merged["topic"])
    partition, offset = ints(merged["topic_partition"]), ints(merged["offset"])
    order = np.lexsort((np.arange(len(merged)), partition, topics, offset, groups))
    merged = merged.take(pa.array(order))
    edge = pair(groups, offset)[order]
    key = pair(topics, partition)[order]
    first = mark_firsts(edge) | mark_firsts(key)
    known = ints(merged["first_after_ms"])
    following = np.append(known[1:], NONE)
    has_update = np.append(~first[1:], False)
    fills = has_update & (known == NONE) & (following != NONE)
    stays = first & (ints(merged["adds"]) == 1)
    merged = merged.set_column(merged.schema.get_field_index("first_after_ms"), "first_after_ms", pa.array(np.where(fills, following, known)))
    changed = ints(merged["changed"]) | fills
    merged = merged.set_column(merged.schema.get_field_index("changed"), "changed", pa.array(changed.astype(np.int64)))
    return merged.filter(pa.array(stays)).drop_columns(["adds"])


def _edges_of_rows(edge_records: pa.Table, around_rows: pa.Table) -> tuple[Ints, Ints]:
    """For each row of `around_rows` its index in `edge_records`, and for each edge the index of its group among the sorted groups."""
    (group_of_row, group_of_edge), _ = ranks(around_rows["group"], edge_records["group"])
    return locate(group_of_edge, ints(edge_records["offset"]), group_of_row, ints(around_rows["offset"]), "left"), group_of_edge


def _as_edges(cluster: str, edge_records: pa.Table, around_rows: pa.Table, edge_of_row: Ints) -> pa.Table:
    ends = np.searchsorted(edge_of_row, np.arange(len(edge_records) + 1))  # rows are in the order of the edges
    offsets = pa.array(ends.astype(np.int32))
    names = pc.binary_join_element_wise(around_rows["topic"], around_rows["topic_partition"].cast(pa.string()), "-").combine_chunks()
    lists = {"partitions": names} | {
        name: around_rows[name].combine_chunks() for name in ("last_before_ms", "first_after_ms", "usual_gap_ms")
    }
    columns = {"cluster": pa.repeat(cluster, len(edge_records)), "group": edge_records["group"], "offset": edge_records["offset"]}
    columns |= {name: pa.ListArray.from_arrays(offsets, values) for name, values in lists.items()}
    schema = schema_of("edges")
    return in_order("edges", pa.table([columns[name] for name in schema.names], names=schema.names))
