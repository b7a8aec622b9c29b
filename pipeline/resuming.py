"""Cursors: the position up to which a log was read, to continue there although files may have been compacted or replaced since."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from numpy.typing import NDArray

from pipeline.coverage import CoverageState
from pipeline.inputs import BadInput, LogId, SegmentFile
from pipeline.transactions import OpenTransaction
from protocol.batch import HEADER_BYTES, CorruptBatch, read_header

NOWHERE: Final = -1


class Cursor(NamedTuple):
    next_offset: int
    base: int = NOWHERE  # of the segment with the last batch
    position: int = NOWHERE
    first: int = NOWHERE  # the last batch's base offset, checksum, number of records and newest time
    crc: int = NOWHERE
    records: int = NOWHERE
    max_ms: int = NOWHERE
    last: CoverageState = CoverageState()
    open: tuple[OpenTransaction, ...] = ()  # transactions whose records wait for their end

    def as_json(self) -> list[Any]:
        return [*self[:NUMBERS], list(self.last), *map(list, self.open)]

    @classmethod
    def from_json(cls, values: list[Any]) -> Cursor:
        last, *transactions = values[NUMBERS:]
        return cls._make((*values[:NUMBERS], CoverageState(*last), tuple(OpenTransaction(*transaction) for transaction in transactions)))


NUMBERS: Final = Cursor._fields.index("last")


def cursor_after(segment: SegmentFile, batch: Any, last: CoverageState, transactions: tuple[OpenTransaction, ...]) -> Cursor:
    position, first, crc, records, max_ms = (int(batch[name]) for name in ("position", "base", "crc", "count", "max_ms"))
    return Cursor(int(batch["last"]) + 1, segment.base, position, first, crc, records, max_ms, last, transactions)


def position_after(segment: SegmentFile, cursor: Cursor) -> int:
    """The position in the segment to continue from: after the last batch if it is unchanged, else the start."""
    if segment.base != cursor.base or cursor.position < 0:
        return 0
    try:
        header = read_header(segment.file.read(cursor.position, HEADER_BYTES), 0)
    except CorruptBatch:
        return 0
    end = cursor.position + header.size
    if (header.base_offset, header.crc, header.next_offset) != (cursor.first, cursor.crc, cursor.next_offset) or end > segment.size:
        return 0
    return end


def check_same_log(id: LogId, batches: NDArray[Any], cursor: Cursor) -> None:
    """Raise BadInput if this is another log with the same name."""
    if not len(batches):
        return
    batches_at_cursor = batches[batches["base"] == cursor.first]
    if len(batches_at_cursor):
        batch = batches_at_cursor[0]
        is_other_log = batch["last"] + 1 == cursor.next_offset and batch["count"] == cursor.records and batch["max_ms"] != cursor.max_ms
    else:
        end = batches[-1]
        is_other_log = end["last"] + 1 < cursor.next_offset and end["max_ms"] > cursor.last.ms
    if is_other_log:
        raise BadInput(
            f"{id}: was read up to offset {cursor.next_offset}, and now has other records there: it was deleted and created again; "
            "use another --out, or another name with --cluster"
        )
