"""Find records by timestamp: the first at or after a time, the newest of all, the first of a segment.

A search may read whole segments, if an index is wrong or if a segment's newest records are before the start of the log. So a search
runs in steps of bounded work, between which the event loop can run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from protocol.batch import HEADER_BYTES, LENGTH_FROM, MAGIC, CorruptBatch, read_header
from protocol.batch_times import UnpackedBatch
from storage.errors import DamagedLog
from storage.segment import LOOKUP_BYTES, Segment

UNKNOWN: Final = -2  # a timestamp not read yet; -1 is a batch without timestamp
ANY_TIME: Final = -(1 << 63)
STEP_READS: Final = 8  # reads of LOOKUP_BYTES in one step
STEP_BYTES: Final = STEP_READS * LOOKUP_BYTES
STEP_RECORDS: Final = 2_000

_HEADER: Final = Struct(">qi4xb6xi8xq")  # base offset, length, magic, last offset delta, max timestamp


class FoundRecord(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


# What a step of a search yields: a record, nothing yet, or a batch of which the caller may call `run` in another thread before the next step.
SearchStep = FoundRecord | UnpackedBatch | None


class _BatchCursor:
    """Walks over the batches of a segment up to `end`, which is fixed when the search starts. `at`: the position of the current batch, or the end."""

    __slots__ = ("_chunk", "_chunk_at", "_end", "_segment", "at", "max_timestamp", "size")

    def __init__(self, segment: Segment, at: int, end: int) -> None:
        self._segment = segment
        self._end = end
        self._chunk = b""
        self._chunk_at = at
        self.at = at
        self.size = 0  # size and newest timestamp of the batch at `at`, after `advance`
        self.max_timestamp = 0

    @property
    def ended(self) -> bool:
        return self.at >= self._end

    def advance(self, offset: int, timestamp: int) -> bool:
        """Move to the first batch, from the current one on, that ends at or after `offset` and, by its header, has a time at or after `timestamp`.

        False: there is no such batch, or the step is over and the search continues with the next call.
        """
        unpack = _HEADER.unpack_from
        base: int
        length: int
        magic: int
        delta: int
        latest: int
        reads = 0
        at = self.at
        end = self._end
        chunk = self._chunk
        where = at - self._chunk_at
        while at < end:
            if len(chunk) - where < HEADER_BYTES:
                if reads == STEP_READS:
                    break
                reads += 1
                self.at = at
                self._chunk = chunk = self._segment.bytes_at(at, min(LOOKUP_BYTES, end - at))
                self._chunk_at = at
                where = 0
                if len(chunk) < HEADER_BYTES:
                    raise CorruptBatch("a batch header is cut short")
            base, length, magic, delta, latest = unpack(chunk, where)
            size = LENGTH_FROM + length
            if magic != MAGIC or size < HEADER_BYTES or size > end - at:
                self.at = at
                read_header(chunk, where)  # raises with the reason
                raise CorruptBatch("a batch is cut short")
            if latest >= timestamp and base + delta >= offset:
                self.at, self.size, self.max_timestamp = at, size, latest
                return True
            at += size
            where += size
        self.at = at
        return False

    def batch(self) -> bytes:
        return self._segment.bytes_at(self.at, self.size)

    def skip_batch(self) -> None:
        """Move to the end of the current batch."""
        self.at += self.size


def find_time(segments: Sequence[Segment], timestamp: int, from_offset: int) -> Iterator[SearchStep]:
    """Search for the first record at or after `timestamp`, from `from_offset` on; the record is yielded last, if any."""
    for segment in segments:
        if segment.max_timestamp >= timestamp:
            for found in _find_in(segment, timestamp, from_offset):
                yield found
                if isinstance(found, FoundRecord):
                    return


def latest(segments: Sequence[Segment], from_offset: int) -> Iterator[SearchStep]:
    """Search for the first record with the newest timestamp, from `from_offset` on; the record is yielded last, if any."""
    best: FoundRecord | None = None
    for segment in segments:
        newest = segment.max_timestamp
        if best is not None and newest <= best.timestamp:
            continue
        found: FoundRecord | None = None
        if segment.max_timestamp_offset >= from_offset:
            for step in _find_in(segment, newest, from_offset):
                if isinstance(step, FoundRecord):
                    found = step
                else:
                    yield step
        if found is None:  # the indexed record was deleted or compacted away
            for step in _latest_in(segment, from_offset, best):
                if isinstance(step, FoundRecord):
                    found = step
                else:
                    yield step
        if found is not None:
            best = found
    if best is not None:
        yield best


def _find_in(segment: Segment, timestamp: int, from_offset: int) -> Iterator[SearchStep]:
    end = segment.size
    cursor = _BatchCursor(segment, 0, end)
    try:
        earlier, offset = segment.index.time_before(timestamp)
        if earlier >= 0:
            # All records before this offset are earlier than `timestamp`, if the index entry matches the batch at its position.
            cursor = _BatchCursor(segment, segment.search_position(offset), end)
            while not cursor.ended and not cursor.advance(offset, ANY_TIME):
                yield None
            if cursor.ended or cursor.max_timestamp != earlier:
                cursor = _BatchCursor(segment, 0, end)
        if from_offset > segment.base:
            near = segment.search_position(from_offset)
            if near > cursor.at:
                cursor = _BatchCursor(segment, near, end)
        while not cursor.ended:
            if not cursor.advance(from_offset, timestamp):
                yield None
                continue
            for found in first_in_batch(cursor.batch(), timestamp, from_offset):
                yield found
                if isinstance(found, FoundRecord):
                    return
            cursor.skip_batch()
            yield None
    except CorruptBatch as error:
        raise DamagedLog(segment.log_path, cursor.at, str(error)) from error


def first_in_batch(batch: bytes, timestamp: int, from_offset: int) -> Iterator[SearchStep]:
    """Search for the first record at or after `timestamp`, from `from_offset` on, in one batch; the record is yielded last, if any."""
    unpacked = UnpackedBatch(batch)
    if unpacked.is_large:
        yield unpacked
    for seen, (at, offset) in enumerate(unpacked.times(), 1):
        if at >= timestamp and offset >= from_offset:
            yield FoundRecord(at, offset, read_header(batch, 0).leader_epoch)
            return
        if seen % STEP_RECORDS == 0:
            yield None


def _latest_in(segment: Segment, from_offset: int, best: FoundRecord | None) -> Iterator[SearchStep]:
    """Read the segment from `from_offset` on; yields None after each step, and last the newest record, if it is later than `best`."""
    cursor = _BatchCursor(segment, segment.search_position(from_offset) if from_offset > segment.base else 0, segment.size)
    found: FoundRecord | None = None
    newest = best.timestamp if best is not None else ANY_TIME
    try:
        while not cursor.ended:
            if not cursor.advance(from_offset, newest + 1):
                yield None
                continue
            batch = cursor.batch()
            unpacked = UnpackedBatch(batch)
            if unpacked.is_large:
                yield unpacked
            for number, (at, offset) in enumerate(unpacked.times(), 1):
                if offset >= from_offset and at > newest:
                    newest = at
                    found = FoundRecord(at, offset, read_header(batch, 0).leader_epoch)
                if number % STEP_RECORDS == 0:
                    yield None
            cursor.skip_batch()
            yield None
    except CorruptBatch as error:
        raise DamagedLog(segment.log_path, cursor.at, str(error)) from error
    if found is not None:
        yield found


def first_timestamp(segment: Segment) -> int:
    """The first batch's timestamp, from which Kafka counts a segment's age; -1 for none."""
    if segment.first_timestamp == UNKNOWN:
        if not segment.size:
            return -1
        header = segment.header_at(0)
        segment.first_timestamp = header.max_timestamp if header is not None else -1
    return segment.first_timestamp
