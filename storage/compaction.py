"""Compaction of the closed segments of one log: only the newest record of each key stays, at its offset.

It runs in steps over the Disk port: the broker runs it in a child process (cleaner.py), tests run it inline. It does not
touch the old segments: the new ones get other file names until the log's owner exchanges them (swap.py).

The first pass collects the newest offset of each key from the dirty part of the log. The second pass copies all segments
without the records that have a newer one. As in Kafka, a tombstone stays for a while, so that slow readers see it: the
first cleaning sets the delete horizon of its batch, and the first cleaning after that horizon removes the tombstone.
Control and transactional batches are copied unchanged, and their records do not replace older ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final

import google_crc32c

from protocol.batch import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_FROM,
    DELETE_HORIZON,
    HEADER_BYTES,
    LENGTH_FROM,
    MAGIC,
    TRANSACTIONAL,
    CorruptBatch,
    Record,
    read_header,
    records,
    rewrite,
    validate,
)
from protocol.batch_record import read_keys
from storage.checking import check
from storage.disk import Disk
from storage.errors import DamagedLog
from storage.handles import Handles
from storage.index import RELATIVE_OFFSET_MAX
from storage.segment import CHUNK_BYTES, Segment
from storage.swap import CLEANED, Cleaned, Closed

KEY_COST_BYTES: Final = 180  # memory for a key in the map, besides its bytes: object, offset, share of the table

# Base offset, length, magic, checksum, attributes, last offset delta, producer id, record count.
_HEAD: Final = Struct(">qi4xbIhi16xq6xi")
_crc32c: Final = google_crc32c.value


class Compaction:
    """One cleaning of one log. After `steps`, `cleaned` has the segments to exchange.

    `clean_to` is then the offset up to which each key has one record: `end`, or less if the map of keys was full.
    """

    def __init__(
        self,
        disk: Disk,
        folder: str,
        segments: list[Closed],
        end: int,
        *,
        first_dirty: int,
        now: int,
        delete_retention_ms: int,
        segment_bytes: int,
        map_bytes_max: int,
        token: str = "0",
        producers: dict[int, int] | None = None,
    ) -> None:
        """`segments` are the log's first ones without a gap, up to offset `end`.

        `now` below 0: the clock is not trusted, so no tombstone is removed and no horizon is set.

        `producers`: base offset of the last batch of each active producer. The header of that batch is kept, since an opening
        reads the producer's sequence from it. None: every producer found counts as active.
        """
        self.cleaned: list[Cleaned] = []
        self.clean_to = end
        self.bytes_before = sum(segment.size for segment in segments)
        self.bytes_after = 0
        self._handles = Handles(disk, 8)
        self._folder = folder
        self._segments = segments
        self._end = end
        self._first_dirty = first_dirty
        self._now = now
        self._horizon = now + delete_retention_ms if now >= 0 else -1
        self._segment_bytes = segment_bytes
        self._map_bytes_max = map_bytes_max
        self._suffix = f".{token}{CLEANED}"
        self._newest: dict[bytes, int] = {}
        self._key_bytes = 0
        self._living = producers
        self._producers: dict[int, int] = {}  # base offset of each producer's last batch read so far
        self._gathered_to = first_dirty
        self._last = -1  # offset of the last batch that was filtered
        self._output: Segment | None = None
        self._out = bytearray()  # bytes to be written to it
        self._replaces: list[int] = []
        self._changes = 0
        self._emptied = b""  # the header of the last filtered batch if it was dropped

    def steps(self) -> Iterator[None]:
        """Run the cleaning. Raises DamagedLog and OSError."""
        try:
            yield from self._gather()
            yield from self._write()
            if self.cleaned:
                self._handles.disk.sync_folder(self._folder)
        finally:
            self._handles.close()

    def _read(self, source: Closed, take: Callable[[bytes], int]) -> Iterator[None]:
        """Pass the segment to `take` in chunks; `take` returns how many bytes of a chunk were whole batches."""
        segment = Segment(self._handles, self._folder, source.base)
        at = 0
        size = CHUNK_BYTES
        try:
            while at < source.size:
                chunk = segment.file.read(at, min(size, source.size - at))
                used = take(chunk)
                size = CHUNK_BYTES
                if not used:
                    size = read_header(chunk, 0).size
                    if size > source.size - at or len(chunk) >= size:
                        raise CorruptBatch("a batch is cut short")
                at += used
                yield
        except CorruptBatch as error:
            raise DamagedLog(segment.log_path, at, str(error)) from error
        finally:
            segment.close()

    # First pass: the newest offset of each key.

    def _gather(self) -> Iterator[None]:
        for source, behind in self._sources():
            if behind > self._first_dirty:
                for _ in self._read(source, self._gather_chunk):
                    yield
                    if len(self._newest) * KEY_COST_BYTES + self._key_bytes > self._map_bytes_max:
                        self.clean_to = self._gathered_to
                        return

    def _sources(self) -> Iterator[tuple[Closed, int]]:
        """Each segment with its end offset."""
        ends = [*[segment.base for segment in self._segments], self._end]
        yield from zip(self._segments, ends[1:], strict=True)

    def _gather_chunk(self, chunk: bytes) -> int:
        """Collect keys. Checksums are verified in the second pass."""
        unpack = _HEAD.unpack_from
        first_dirty = self._first_dirty
        end = len(chunk)
        at = 0
        while end - at >= HEADER_BYTES:
            base, length, magic, _, attributes, delta, producer, count = unpack(chunk, at)
            after = at + LENGTH_FROM + length
            if magic != MAGIC or after < at + HEADER_BYTES:
                read_header(chunk, at)  # says what is wrong
            if after > end:
                break
            self._gathered_to = base + delta + 1
            self._producers[producer] = base  # -1, no producer, is never looked up
            if base + delta >= first_dirty and not attributes & (CONTROL | TRANSACTIONAL):
                if not attributes & COMPRESSION_MASK:
                    for number, key, _ in _keys(chunk, at, after, count):
                        if key is not None:
                            self._note(key, base + number)
                else:
                    for record in records(chunk, at):
                        if record.key is not None:
                            self._note(record.key, record.offset)
            at = after
        return at

    def _note(self, key: bytes, offset: int) -> None:
        if key not in self._newest:
            self._key_bytes += len(key)
        self._newest[key] = offset

    # Second pass: copy the records that stay.

    def _write(self) -> Iterator[None]:
        for source, behind in self._sources():
            output = self._output
            if output is not None and (
                output.size + len(self._out) + source.size > self._segment_bytes or behind - output.base > RELATIVE_OFFSET_MAX
            ):
                self._finish(output)
                output = None
            if output is None:
                self._begin(source.base)
            self._replaces.append(source.base)
            yield from self._read(source, self._filter_chunk)
        if self._output is not None:
            self._finish(self._output)

    def _begin(self, base: int) -> None:
        self._output = Segment(self._handles, self._folder, base, self._suffix)
        self._handles.file(self._output.log_path, create=True).truncate(0)
        self._replaces = []
        self._changes = 0
        self._emptied = b""

    def _filter_chunk(self, chunk: bytes) -> int:
        unpack = _HEAD.unpack_from
        newest = self._newest
        clean_to = self.clean_to
        out = self._out
        end = len(chunk)
        at = 0
        copied = 0  # bytes before it are dropped or in `out`
        while end - at >= HEADER_BYTES:
            base, length, magic, crc, attributes, delta, producer, count = unpack(chunk, at)
            after = at + LENGTH_FROM + length
            if magic != MAGIC or after < at + HEADER_BYTES:
                read_header(chunk, at)  # says what is wrong
            if after > end:
                break
            if _crc32c(chunk[at + CRC_FROM : after]) != crc or delta < 0 or not 0 <= count <= delta + 1:
                validate(chunk, at, after)
            if base <= self._last:
                raise CorruptBatch(f"offset {base} behind {self._last}")
            self._last = base + delta
            instead: bytes | None = None  # replaces the batch; b"" drops it
            if base < clean_to and not attributes & (CONTROL | TRANSACTIONAL):
                newer = dead = 0
                if not attributes & COMPRESSION_MASK:
                    for number, key, tombstone in _keys(chunk, at, after, count):
                        if key is None or newest.get(key, -1) > base + number:
                            newer += 1
                        elif tombstone:
                            dead += 1
                else:
                    dead = count
                if newer == count and not self._is_last(producer, base):
                    instead = b""
                elif newer or dead:
                    instead = self._rewritten(chunk, at)
            self._emptied = b""
            if instead is not None:
                out += chunk[copied:at]
                out += instead
                copied = after
                self._changes += 1
                if not instead:
                    self._emptied = chunk[at : at + HEADER_BYTES]
            at = after
        out += chunk[copied:at]
        if len(out) >= CHUNK_BYTES:
            self._put()
        return at

    def _rewritten(self, chunk: bytes, at: int) -> bytes | None:
        """The batch without dropped records; None if it does not change."""
        header = read_header(chunk, at)
        horizon = -1 if not header.attributes & DELETE_HORIZON else header.base_timestamp
        expired = 0 <= horizon <= self._now
        found = records(chunk, at)
        kept: list[Record] = []
        for record in found:
            # Records without a key are dropped, as in Kafka.
            if record.key is None or self._newest.get(record.key, -1) > record.offset:
                continue
            if record.value is not None:
                kept.append(record)
            elif not expired:
                kept.append(record)
                horizon = self._horizon  # used if the batch has none yet
        if not kept:
            if not self._is_last(header.producer_id, header.base_offset):
                return b""
            return rewrite(header, []) if found else None
        if len(kept) == len(found) and (horizon < 0 or header.attributes & DELETE_HORIZON):
            return None
        return rewrite(header, kept, horizon)

    def _is_last(self, producer: int, base_offset: int) -> bool:
        """Whether it is the last batch of an active producer, whose header must stay."""
        if producer < 0:
            return False
        if self._living is not None:
            return self._living.get(producer, -1) == base_offset
        return self._producers.get(producer, -1) <= base_offset

    def _put(self) -> None:
        assert self._output is not None
        self._handles.file(self._output.log_path).write(self._output.size, self._out)
        self._output.size += len(self._out)
        self._out.clear()

    def _finish(self, output: Segment) -> None:
        if self._emptied:
            # The new segment must end where the old ones did: after a crash that tells which ones it replaces.
            header = read_header(self._emptied, 0)
            self._out += rewrite(header, [])
            if not header.record_count:
                self._changes -= 1
        self._put()
        if not self._changes and len(self._replaces) == 1:
            self.bytes_after += output.size
            output.close()
            self._handles.disk.remove(output.log_path)
            return
        written = Segment(self._handles, self._folder, output.base, self._suffix)
        if reason := check(written, from_start=True):
            raise written.damaged_at(reason)
        written.save_index()
        written.file.sync()
        written.close()
        self.bytes_after += written.size
        self.cleaned.append(Cleaned(written.base, written.size, written.next_offset, tuple(self._replaces)))


def _keys(chunk: bytes, at: int, after: int, count: int) -> list[tuple[int, bytes | None, bool]]:
    try:
        return read_keys(chunk, at + HEADER_BYTES, after, count)
    except IndexError:
        raise CorruptBatch("a record is cut short") from None
