"""Compaction of the closed segments of one log: retain only the newest record of each key, at its offset.

It runs in steps over the Disk port: the broker runs it in a child process (cleaner.py), tests run it inline. It does not
touch the old segments: the new segments have other file names until the log's owner exchanges them (swap.py).

The first pass collects the newest offset of each key from the dirty part of the log. The second pass copies all segments
without the records whose key has a newer record (newest_records.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from protocol.batch import CorruptBatch, read_header, rewrite
from storage.checking import check
from storage.disk import Disk
from storage.errors import DamagedLog
from storage.handles import Handles
from storage.index import RELATIVE_OFFSET_MAX
from storage.newest_records import NewestRecords
from storage.segment import CHUNK_BYTES, Segment
from storage.swap import CLEANED, CleanedSegment, ClosedSegment


class Compaction:
    """One cleaning of one log. After `steps`, `cleaned` has the segments to exchange.

    `clean_to` is then the offset up to which each key has one record: `end`, or less if the map of keys was full.
    """

    def __init__(
        self,
        disk: Disk,
        folder: str,
        segments: list[ClosedSegment],
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
        """`segments`: the log's first segments, without a gap, up to offset `end`.

        `now` below 0: the clock is not trusted, so no tombstone is removed and no batch gets a delete horizon.

        `producers`: base offset of the last batch of each active producer. The header of that batch is kept, since an opening
        reads the producer's sequence from it. None: every producer in the segments counts as active.
        """
        self.cleaned: list[CleanedSegment] = []
        self.bytes_before = sum(segment.size for segment in segments)
        self.bytes_after = 0
        self._handles = Handles(disk, 8)
        self._folder = folder
        self._segments = segments
        self._end = end
        self._first_dirty = first_dirty
        self._segment_bytes = segment_bytes
        self._suffix = f".{token}{CLEANED}"
        self._newest = NewestRecords(
            end, first_dirty=first_dirty, now=now, delete_retention_ms=delete_retention_ms, map_bytes_max=map_bytes_max, producers=producers
        )
        self._output: Segment | None = None
        self._pending = bytearray()  # bytes not written to the output yet
        self._replaces: list[int] = []

    @property
    def clean_to(self) -> int:
        return self._newest.clean_to

    def steps(self) -> Iterator[None]:
        """Run the cleaning. Raises DamagedLog and OSError."""
        try:
            yield from self._gather()
            yield from self._write()
            if self.cleaned:
                self._handles.disk.sync_folder(self._folder)
        finally:
            self._handles.close()

    def _read(self, source: ClosedSegment, consume: Callable[[bytes], int]) -> Iterator[None]:
        """Pass the segment to `consume` in chunks; `consume` returns the size of the whole batches in a chunk."""
        segment = Segment(self._handles, self._folder, source.base)
        at = 0
        size = CHUNK_BYTES
        try:
            while at < source.size:
                chunk = segment.file.read(at, min(size, source.size - at))
                used = consume(chunk)
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
        for source, end in self._sources():
            if end > self._first_dirty:
                for _ in self._read(source, self._newest.gather):
                    yield
                    if self._newest.is_full():
                        return

    def _sources(self) -> Iterator[tuple[ClosedSegment, int]]:
        """Each segment with its end offset."""
        ends = [*[segment.base for segment in self._segments], self._end]
        yield from zip(self._segments, ends[1:], strict=True)

    # Second pass: copy the retained records.

    def _write(self) -> Iterator[None]:
        for source, end in self._sources():
            output = self._output
            if output is not None and (
                output.size + len(self._pending) + source.size > self._segment_bytes or end - output.base > RELATIVE_OFFSET_MAX
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
        self._newest.changes = 0
        self._newest.last_dropped_header = b""

    def _filter_chunk(self, chunk: bytes) -> int:
        used = self._newest.filter(chunk, self._pending)
        if len(self._pending) >= CHUNK_BYTES:
            self._flush_output()
        return used

    def _flush_output(self) -> None:
        assert self._output is not None
        self._handles.file(self._output.log_path).write(self._output.size, self._pending)
        self._output.size += len(self._pending)
        self._pending.clear()

    def _finish(self, output: Segment) -> None:
        newest = self._newest
        if newest.last_dropped_header:
            # The new segment must end at the same offset as the segments that it replaces: an opening after a crash relies on that.
            header = read_header(newest.last_dropped_header, 0)
            self._pending += rewrite(header, [])
            if not header.record_count:
                newest.changes -= 1
        self._flush_output()
        if not newest.changes and len(self._replaces) == 1:
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
        self.cleaned.append(CleanedSegment(written.base, written.size, written.next_offset, tuple(self._replaces)))
