"""Compaction of the closed segments of one log: of each key the newest record stays, at its offset.

It is done in steps over the Disk port, so that a simulator can run it inline; a broker runs it in a process of its own
(cleaner.py). What it reads it leaves alone: the new segments stand beside the old ones under names of their own, until
the log's owner exchanges them (swap.py).

First the offsets of the newest records are gathered from what no cleaning has seen yet; then everything is read again
and written without the records that have a newer one. As in Kafka a tombstone stays for a while, so that readers who are
behind meet it: the batch is given a delete horizon by the first cleaning, and the tombstone goes with the first cleaning
behind that. Control batches and what transactions wrote stay as they are, and stand for nobody's newest record.
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

KEY_COST_BYTES: Final = 180  # of a key in the map, beside its own bytes: object, offset, its share of the table

# Base offset, length, magic, checksum, attributes, last offset delta, producer id, record count.
_HEAD: Final = Struct(">qi4xbIhi16xq6xi")
_crc32c: Final = google_crc32c.value


class Compaction:
    """One cleaning of one log. When `steps` has ended, `cleaned` has what is to be exchanged.

    `clean_to` then is the offset up to which no key has two records any more: the end of what was given, or less where
    the map of keys was full.
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
        """`segments` from the log's first one on, without a gap; the one behind them begins at `end`.

        `now` below 0: the clock is not to be trusted, so no tombstone goes and none is given a horizon.

        `producers`: of those that live, where the last batch of each begins. Its head stays, so that who opens the log knows
        what they have sent; without this the last batch of each is taken for such a one.
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
        self._producers: dict[int, int] = {}  # where the last batch of each begins, as far as was read
        self._gathered_to = first_dirty
        self._last = -1  # offset of the last batch that was filtered
        self._output: Segment | None = None
        self._out = bytearray()  # what is still to be written there
        self._replaces: list[int] = []
        self._changes = 0
        self._emptied = b""  # the header of the batch filtered last, where nothing of it stayed

    def steps(self) -> Iterator[None]:
        """Raises DamagedLog for bytes that are not as they were written, OSError as the disk does."""
        try:
            yield from self._gather()
            yield from self._write()
            if self.cleaned:
                self._handles.disk.sync_folder(self._folder)
        finally:
            self._handles.close()

    def _read(self, source: Closed, take: Callable[[bytes], int]) -> Iterator[None]:
        """Hand the segment over, a chunk at a time; `take` says how many of the bytes were whole batches."""
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

    # Which record of a key is the newest.

    def _gather(self) -> Iterator[None]:
        for source, behind in self._sources():
            if behind > self._first_dirty:
                for _ in self._read(source, self._gather_chunk):
                    yield
                    if len(self._newest) * KEY_COST_BYTES + self._key_bytes > self._map_bytes_max:
                        self.clean_to = self._gathered_to
                        return

    def _sources(self) -> Iterator[tuple[Closed, int]]:
        """Each segment with the offset at which the one behind it begins."""
        ends = [*[segment.base for segment in self._segments], self._end]
        yield from zip(self._segments, ends[1:], strict=True)

    def _gather_chunk(self, chunk: bytes) -> int:
        """What is wrong shows when it is read again; here it must not do harm."""
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
            self._producers[producer] = base  # nobody asks for -1, which is none
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

    # Writing what stays.

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
        copied = 0  # what is before it was dropped, or is in `out`
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
            instead: bytes | None = None  # of the batch; b"" for nothing
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
        """What takes the place of the batch; None where it stays as it is."""
        header = read_header(chunk, at)
        horizon = -1 if not header.attributes & DELETE_HORIZON else header.base_timestamp
        expired = 0 <= horizon <= self._now
        found = records(chunk, at)
        kept: list[Record] = []
        for record in found:
            # A record without a key stands for nothing; Kafka drops it as well.
            if record.key is None or self._newest.get(record.key, -1) > record.offset:
                continue
            if record.value is not None:
                kept.append(record)
            elif not expired:
                kept.append(record)
                horizon = self._horizon  # where the batch has none yet
        if not kept:
            if not self._is_last(header.producer_id, header.base_offset):
                return b""
            return rewrite(header, []) if found else None
        if len(kept) == len(found) and (horizon < 0 or header.attributes & DELETE_HORIZON):
            return None
        return rewrite(header, kept, horizon)

    def _is_last(self, producer: int, base_offset: int) -> bool:
        """What a producer has sent is known from its last batch."""
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
            # The segment ends where the old ones did: so it is known, after a crash too, which ones it replaces.
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
