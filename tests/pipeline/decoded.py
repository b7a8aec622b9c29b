"""All records of logs as they are decoded, and their comparison with tables, which keep offset commits as rows of `commits`, with fewer columns."""

from __future__ import annotations

import pyarrow as pa

from pipeline.end_offsets import from_notes
from pipeline.inputs import Inputs
from pipeline.packing import SplitPart, records_in
from pipeline.rows import Commit
from pipeline.rows import Record as Row
from pipeline.schema import in_order, rows_of, table_of
from pipeline.splits import Split, plan
from pipeline.tables import Tables
from pipeline.wire_reading import WireSplit, plan_wire


def decoded(inputs: Inputs) -> list[Row]:
    """The records of the logs but for those of open transactions, in log order."""
    planned = plan(inputs, {})
    splits: list[Split | WireSplit] = [*planned.splits, *plan_wire(inputs, planned.cursors)]
    parts = [SplitPart(split) for split in splits if isinstance(split, WireSplit) or not split.waits]
    rows = [row for part in parts for batch in records_in(inputs, part) for row in rows_of(Row, pa.Table.from_batches([batch]))]
    return sorted(rows, key=lambda row: row[:4])


def check_stored(made: Tables, rows: list[Row]) -> None:
    """The tables have exactly these records."""
    notes = table_of("records", [row for row in rows if row.log == "notes"])
    ends, other_notes = from_notes(notes)
    expected = [*rows_of(Row, other_notes), *(row for row in rows if row.log == "offsets" and row.kind != "offset")]
    assert [row[:-2] for row in rows_of(Row, made.read("records"))] == [row[:-2] for row in sorted(expected, key=lambda row: row[:4])]
    stored_ends = made.read("end_offsets", only={"origin": "notes"})
    assert stored_ends.equals(in_order("end_offsets", ends))
    ours = [_commit(row) for row in rows_of(Commit, made.read("commits"))]
    assert sorted(ours) == sorted(_commit(row) for row in rows if row.kind == "offset")


def _commit(row: Row | Commit) -> tuple[object, ...]:
    """What both kinds of rows have; a removed offset has no time of its own."""
    at_ms = -1 if row.tombstone else row.commit_ms
    committed = -1 if row.committed is None else row.committed
    return row.cluster, row.group, row.topic, row.topic_partition, row.offset, row.append_ms, row.tombstone, row.txn, at_ms, committed, row.metadata or ""
