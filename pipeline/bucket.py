"""Second part of a build: computes the tables of each group of one bucket. A group with new events is computed again from all of its events."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.advice import AdviceTables, advise
from pipeline.coverage import merged
from pipeline.episodes import fold_group
from pipeline.events import Events, Raw, events_of
from pipeline.rows import CommitsAround, Coverage, GroupTables
from pipeline.schema import in_order, joined, rows_of, schema_of, table_of
from pipeline.timeouts import Options
from pipeline.warehouse import File, Warehouse

# Each table, with the attribute of GroupTables or AdviceTables that has its rows. A bucket has one file of each table.
FOLDED: Final = {"generations": "generations", "members": "members", "newer_groups": "newer", "notes": "notes", "member_spells": "spells"}
ADVISED: Final = {
    "rebalances": "episodes",
    "replacements": "replacements",
    "gap_samples": "gaps",
    "timeout_curve": "curve",
    "timeout_advice": "advice",
    "deploys": "deploys",
}
BY_GROUP: Final = (*FOLDED, *ADVISED)
# After a group's last event its rows may change for this long without new events: a member has not returned in time, or a storm has ended.
OPEN_MS: Final = 25 * 3_600_000
CODED: Final = ("cluster", "group", "topic", "origin")  # columns with few distinct values, read as dictionaries
COORDINATOR: Final = ""  # the group name in notes about a whole partition


class FoldTask(NamedTuple):
    warehouse: str
    run: int
    bucket: str
    cluster: str
    now_ms: int
    before_ms: int  # now_ms of the previous build; -1: fold every group
    groups: tuple[str, ...]  # with new events
    all_groups_changed: bool  # whether a new event concerns all groups
    files: Mapping[str, tuple[File, ...]]  # of this bucket, by table
    records: int


def build_bucket(task: FoldTask) -> list[File]:
    warehouse = Warehouse(Path(task.warehouse))
    bucket = BucketTables(warehouse, task.files)
    events = bucket.table("events", like="records")
    edges = joined("edges", [bucket.table("edges"), bucket.table("edges_open", like="edges")])
    due = due_groups(task, events)
    folded = fold(task.cluster, events, edges, merged(rows_of(Coverage, bucket.table("coverage"))), task.now_ms, due)
    files = []
    for name in BY_GROUP:
        old = bucket.table(name)
        if due is not None:
            old = old.filter(pc.invert(pc.is_in(old["group"], pa.array(sorted(due), pa.string()))))
        else:
            old = old.slice(0, 0)
        files.append(warehouse.write(name, task.run, task.bucket, in_order(name, joined(name, [old, folded[name]]))))
    return files


def fold(
    cluster: str, events: pa.Table, edges: pa.Table, coverage: Sequence[Coverage], now_ms: int, due: set[str] | None = None
) -> dict[str, pa.Table]:
    """The tables of BY_GROUP for the groups in `due` (None: all). The oracle of the tests also calls this."""
    if due is not None:
        of_due = pc.is_in(events["group"], pa.array(sorted({*due, COORDINATOR}), pa.string()))
        events = events.filter(pc.or_(of_due, pc.equal(events["kind"], "offset")))
    edges_by_group = _by_group(edges)
    parts: dict[str, list[pa.Table]] = {name: [] for name in BY_GROUP}
    for group, group_events in events_of(_raw(events)).items():
        if due is not None and group not in due:
            continue
        folded, advised = tables_of_group(cluster, group, group_events, edges_by_group.get(group, {}), coverage, now_ms)
        for names, tables in ((FOLDED, folded), (ADVISED, advised)):
            for name, attribute in names.items():
                parts[name].append(table_of(name, getattr(tables, attribute)))
    return {name: joined(name, tables) for name, tables in parts.items()}


def tables_of_group(
    cluster: str, group: str, events: Events, edges: Mapping[int, CommitsAround], coverage: Sequence[Coverage], now_ms: int
) -> tuple[GroupTables, AdviceTables]:
    folded = fold_group(cluster, group, events, edges, coverage, now_ms)
    if group == COORDINATOR:
        return folded, AdviceTables([], [], [], [], [], [])
    return folded, advise(cluster, group, folded, now_ms, Options())


def due_groups(task: FoldTask, events: pa.Table) -> set[str] | None:
    """Groups with new events, and groups whose rows may change as time passes. None: all."""
    if task.before_ms < 0 or task.all_groups_changed:
        return None
    recent = events.filter(pc.greater_equal(events["append_ms"], task.before_ms - OPEN_MS))
    return {*task.groups, *recent["group"].unique().drop_null().to_pylist()}


def _raw(events: pa.Table) -> Iterator[Raw]:
    columns = ("log", "partition", "offset", "append_ms", "leader_epoch", "key_raw", "value_raw")
    return map(Raw._make, zip(*(events[name].to_pylist() for name in columns), strict=True))


def _by_group(edges: pa.Table) -> dict[str, dict[int, CommitsAround]]:
    edges_by_group: dict[str, dict[int, CommitsAround]] = {}
    for edge in rows_of(CommitsAround, edges):
        edges_by_group.setdefault(edge.group, {})[edge.offset] = edge
    return edges_by_group


class BucketTables:
    """Loads tables of one bucket from the files in the task."""

    def __init__(self, warehouse: Warehouse, files: Mapping[str, tuple[File, ...]]) -> None:
        self._warehouse, self._files = warehouse, files

    def files(self, name: str) -> tuple[File, ...]:
        return tuple(self._files.get(name, ()))

    def table(self, name: str, *, like: str = "", run: int | None = None) -> pa.Table:
        """Load a table; with `run`, only the files that this run wrote."""
        files = [file for file in self.files(name) if run in (None, file.run)]
        return joined(like or name, [self._warehouse.load(file) for file in files])

    def settled(self, name: str, until_ms: int) -> tuple[File, ...]:
        """The files of a time series table whose rows all end before that time."""
        return tuple(file for file in self.files(name) if file.until_ms is not None and file.until_ms <= until_ms)

    def since(self, name: str, from_ms: int) -> pa.Table:
        """The rows that end at or after that time."""
        settled = self.settled(name, from_ms)
        return joined(name, [self._warehouse.load(file) for file in self.files(name) if file not in settled])

    def new_and_older_rows(self, name: str, topics: Collection[str], run: int) -> tuple[pa.Table, pa.Table]:
        """The rows of these topics, as two tables: written by this run, and older."""
        topic_names = pa.array(sorted(topics), pa.string())
        files = self.files(name)
        fresh, known = (self._rows_of_topics(name, [file for file in files if (file.run == run) is new], topic_names) for new in (True, False))
        return fresh, known

    def _rows_of_topics(self, name: str, files: Sequence[File], topic_names: pa.Array) -> pa.Table:
        tables = (self._warehouse.load(file, CODED) for file in files)
        return pa.concat_tables([dictionary_coded(schema_of(name).empty_table()), *(table.filter(pc.is_in(table["topic"], topic_names)) for table in tables)])

    def dictionary_coded(self, name: str, run: int | None = None) -> pa.Table:
        """Like `table`, with dictionary columns for names."""
        tables = [self._warehouse.load(file, CODED) for file in self.files(name) if run in (None, file.run)]
        return pa.concat_tables([dictionary_coded(schema_of(name).empty_table()), *tables])


def dictionary_coded(table: pa.Table) -> pa.Table:
    fields = [field.with_type(pa.dictionary(pa.int32(), pa.string())) if field.name in CODED else field for field in table.schema]
    return table.cast(pa.schema(fields))
