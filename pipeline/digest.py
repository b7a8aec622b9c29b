"""First part of a build: converts new records of one bucket into silver commits and edges, and events to fold.

A bucket is one partition of __consumer_offsets and __coordinator_notes, which contains all records of its groups. Records are read in
slices, in offset order, to bound memory; the result does not depend on the slices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.commits import CommitState, digest_commits
from pipeline.decode import GROUP, KIND_OF_KEY, NOTE
from pipeline.end_offsets import from_notes
from pipeline.schema import joined
from pipeline.warehouse import File, Warehouse

SLICE_RECORDS: Final = 300_000
EVENT_KINDS: Final = pa.array([GROUP, NOTE, *sorted(set(KIND_OF_KEY.values()))])
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
    """Records in log order, some hundred thousand at a time."""
    for log in ("offsets", "notes"):
        pending: list[pa.RecordBatch] = []
        for batch in _merged(_chains(warehouse, files, log)):
            pending.append(batch)
            if sum(waiting.num_rows for waiting in pending) >= SLICE_RECORDS:
                yield log, joined("records", [pa.Table.from_batches(pending)])
                pending = []
        if pending:
            yield log, joined("records", [pa.Table.from_batches(pending)])


def _chains(warehouse: Warehouse, files: Sequence[File], log: str) -> list[Iterator[pa.RecordBatch]]:
    """The log's records as iterators in log order: usually one. Files with records of transactions overlap others, and are in other iterators."""
    readers = []
    for file in files:
        reader = pq.ParquetFile(warehouse.folder / file.path)
        if file.rows and _bounds(reader, "log")[0] == log:
            readers.append((*_bounds(reader, "offset"), reader))
    chains: list[list[tuple[Any, Any, pq.ParquetFile]]] = []
    for first, last, reader in sorted(readers, key=lambda entry: entry[:2]):
        chain = next((chain for chain in chains if chain[-1][1] < first), None)
        if chain is None:
            chains.append(chain := [])
        chain.append((first, last, reader))
    return [(batch for *_, reader in chain for batch in reader.iter_batches(batch_size=SLICE_RECORDS)) for chain in chains]


def _merged(chains: list[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Merge batches that are in log order."""
    heads = [(batch, chain) for chain in chains if (batch := next(chain, None)) is not None]
    while heads:
        until = min(batch["offset"][-1].as_py() for batch, _ in heads)
        parts, rest = [], []
        for batch, chain in heads:
            count = int(np.searchsorted(batch["offset"].to_numpy(), until, "right"))
            parts.append(batch.slice(0, count))
            remaining = batch.slice(count) if count < batch.num_rows else next(chain, None)
            if remaining is not None:
                rest.append((remaining, chain))
        heads = rest
        yield from parts if len(parts) == 1 else pa.Table.from_batches(parts).sort_by("offset").to_batches()


def _bounds(reader: pq.ParquetFile, column: str) -> tuple[Any, Any]:
    """The lowest and the highest value, which are in the Parquet footer."""
    at = reader.schema_arrow.get_field_index(column)
    statistics = [reader.metadata.row_group(group).column(at).statistics for group in range(reader.metadata.num_row_groups)]
    return min(group.min for group in statistics), max(group.max for group in statistics)
