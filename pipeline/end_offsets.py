"""Where partitions end: samples from the notes of the broker (kind 8)."""

from __future__ import annotations

import pyarrow as pa

from coordinator.notes import Kind
from pipeline.rows import EndOffset
from pipeline.schema import in_order, table_of
from protocol.errors import ProtocolError
from protocol.messages.coordinator_notes import EndOffsets
from protocol.records import read_note

NOTES = "notes"


def from_notes(events: pa.Table) -> tuple[pa.Table, pa.Table]:
    """`events`: bronze rows of notes. The samples among them, and all the other rows."""
    rows: list[EndOffset] = []
    others: list[bool] = []
    for cluster, value in zip(events["cluster"].to_pylist(), events["value_raw"].to_pylist(), strict=True):
        found = _read(cluster, value)
        rows += found
        others.append(not found)
    return in_order("end_offsets", table_of("end_offsets", rows)), events.filter(pa.array(others, pa.bool_()))


def _read(cluster: str, value: bytes | None) -> list[EndOffset]:
    if value is None or len(value) < 3 or value[2] != Kind.END_OFFSETS:  # behind the version stands the kind
        return []
    try:
        header, body = read_note(value)
    except ProtocolError:
        return []
    if not isinstance(body, EndOffsets):
        return []
    unchanged = getattr(body, "unchanged_ms", -1)
    return [
        EndOffset(cluster, body.topic, one.partition, header.ts, one.end, one.log_start, NOTES, None if unchanged < 0 else unchanged)
        for one in body.partitions
    ]
