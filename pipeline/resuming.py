"""The position up to which a log was read, found again later: the file may have been compacted, dropped or replaced since."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from numpy.typing import NDArray

from pipeline.coverage import Last
from pipeline.inputs import BadInput, LogId, SegmentFile
from protocol.batch import HEADER_BYTES, CorruptBatch, read_header

NOWHERE: Final = -1


class Cursor(NamedTuple):
    next_offset: int
    base: int = NOWHERE  # of the segment of the last batch, and where in it that is
    position: int = NOWHERE
    first: int = NOWHERE  # its offsets, checksum, number of records and newest time
    crc: int = NOWHERE
    records: int = NOWHERE
    max_ms: int = NOWHERE
    last: Last = Last()

    def as_json(self) -> list[Any]:
        return [*self[:-1], list(self.last)]

    @classmethod
    def from_json(cls, values: list[Any]) -> Cursor:
        *numbers, last = values
        return cls._make((*numbers, Last(*last)))


def cursor_behind(segment: SegmentFile, batch: Any, last: Last) -> Cursor:
    position, first, crc, records, max_ms = (int(batch[name]) for name in ("position", "base", "crc", "count", "max_ms"))
    return Cursor(int(batch["last"]) + 1, segment.base, position, first, crc, records, max_ms, last)


def begin_of(segment: SegmentFile, cursor: Cursor) -> int:
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


def not_before(id: LogId, batches: NDArray[Any], cursor: Cursor) -> None:
    """Raises BadInput if this is another log of the same name, whose offsets mean something else."""
    if not len(batches):
        return
    same = batches[batches["base"] == cursor.first]
    if len(same):
        one = same[0]
        another = one["last"] + 1 == cursor.next_offset and one["count"] == cursor.records and one["max_ms"] != cursor.max_ms
    else:
        end = batches[-1]
        another = end["last"] + 1 < cursor.next_offset and end["max_ms"] > cursor.last.ms
    if another:
        raise BadInput(
            f"{id}: was read up to offset {cursor.next_offset}, and now has other records there: it was deleted and made anew; "
            "give another --out, or another name with --cluster"
        )
