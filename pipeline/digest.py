"""First part of a build: converts new records of one bucket into silver commits and edges, and events to fold.

A bucket is one partition of __consumer_offsets and __coordinator_notes, which contains all records of its groups. Records are read in
slices, in offset order, to bound memory; the result does not depend on the slices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.commits import CommitState, digest_commits
from pipeline.end_offsets import from_notes
from pipeline.schema import joined
from pipeline.warehouse import File, Warehouse

SLICE_RECORDS: Final = 300_000
EVENT_KINDS: Final = pa.array(["group", "note"])
STATE: Final = ("tails", "waiting", "around")  # the state of `commits.py`
REPLACED: Final = ("edges_open", *STATE)  # tables with one file per bucket


class DigestTask(NamedTuple):
    warehouse: str
    run: int
    bucket: str
    records: tuple[File, ...]  # new files of bronze
    state: Mapping[str, File]


class Digested(NamedTuple):
    bucket: str
    files: list[File]
    groups: list[str]  # to fold again
    all_groups_changed: bool  # whether a new event concerns all groups of the partition
    newest_ms: int


def digest_records(task: DigestTask) -> Digested:
    """Write the tables that follow from the new records of one bucket, and return the files and the groups to fold again.

    Events are group records, notes, and the first record of each coordinator epoch.
    """
    warehouse = Warehouse(Path(task.warehouse))
    state = CommitState.of({name: warehouse.load(task.state[name]) for name in STATE}) if task.state else CommitState.new()
    result = Digested(task.bucket, [], [], False, -1)
    groups: set[str] = set()
    open_edges: pa.Table | None = None
    all_groups_changed, newest = False, -1
    write = Writer(warehouse, task.run, task.bucket)
    for log, records in slices(warehouse, task.records):
        newest = max(newest, pc.max(records["append_ms"]).as_py())
        events = records.filter(pc.is_in(records["kind"], EVENT_KINDS))
        if log == "offsets":
            stepped = digest_commits(records, state)
            # Later measurements and the next run need these commits.
            state, open_edges = stepped.state.trimmed(stepped.state.log_ms), stepped.open_edges
            write.add("commits", stepped.commits)
            write.add("edges", stepped.edges)
            groups.update(stepped.refold)
            write.add("events", stepped.epochs.filter(pc.invert(pc.is_in(stepped.epochs["kind"], EVENT_KINDS))))
        else:
            ends, events = from_notes(events)
            write.add("end_offsets", ends)
            all_groups_changed = all_groups_changed or bool(pc.any(pc.equal(events["group"], "")).as_py())
        groups.update(events["group"].unique().drop_null().to_pylist())
        write.add("events", events)
    if open_edges is not None:
        write.add("edges_open", open_edges)
        for name, table in state.tables().items():
            write.add(name, table, empty=True)
    groups.discard("")
    return result._replace(files=write.files, groups=sorted(groups), all_groups_changed=all_groups_changed, newest_ms=newest)


class Writer:
    """Writes the files of one task."""

    def __init__(self, warehouse: Warehouse, run: int, bucket: str) -> None:
        self._warehouse, self._run, self._bucket = warehouse, run, bucket
        self.files: list[File] = []

    def add(self, table: str, content: pa.Table, *, empty: bool = False) -> None:
        if content.num_rows or empty:
            self.files.append(self._warehouse.write(table, self._run, self._bucket, content))


def slices(warehouse: Warehouse, files: Sequence[File]) -> Iterator[tuple[str, pa.Table]]:
    """Records in log order, some hundred thousand at a time. Each file contains an ordered range of one log."""
    for log in ("offsets", "notes"):
        pending: list[pa.RecordBatch] = []
        for reader in _in_order(warehouse, files, log):
            for batch in reader.iter_batches(batch_size=SLICE_RECORDS):
                pending.append(batch)
                if sum(waiting.num_rows for waiting in pending) >= SLICE_RECORDS:
                    yield log, joined("records", [pa.Table.from_batches(pending)])
                    pending = []
        if pending:
            yield log, joined("records", [pa.Table.from_batches(pending)])


def _in_order(warehouse: Warehouse, files: Sequence[File], log: str) -> list[pq.ParquetFile]:
    """Readers of the log's files, sorted by lowest offset, which is in the Parquet footer."""
    readers = []
    for file in files:
        reader = pq.ParquetFile(warehouse.folder / file.path)
        if file.rows and _lowest(reader, "log") == log:
            readers.append((_lowest(reader, "offset"), reader))
    return [reader for _, reader in sorted(readers, key=lambda entry: int(entry[0]))]  # type: ignore[call-overload]


def _lowest(reader: pq.ParquetFile, column: str) -> object:
    at = reader.schema_arrow.get_field_index(column)
    return min(reader.metadata.row_group(group).column(at).statistics.min for group in range(reader.metadata.num_row_groups))
