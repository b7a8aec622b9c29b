"""One segment file: batches one behind the other, named by the offset of its first record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from protocol.batch import HEADER_BYTES, BatchHeader, CorruptBatch, read_header, validate
from storage.errors import DamagedLog
from storage.handles import Handles
from storage.index import Index, read_index

CHUNK_BYTES: Final = 1 << 20
NAME_DIGITS: Final = 20


def segment_name(base: int) -> str:
    return f"{base:0{NAME_DIGITS}d}"


class Segment:
    """A segment as far as it is known to be good: `size` bytes that end before `next_offset`."""

    __slots__ = ("base", "handles", "index", "max_timestamp", "max_timestamp_offset", "next_offset", "path", "size", "unsynced")

    def __init__(self, handles: Handles, folder: str, base: int) -> None:
        self.handles = handles
        self.base = base
        self.path = f"{folder}/{segment_name(base)}"  # without its ending
        self.size = 0
        self.next_offset = base
        self.max_timestamp = -1
        self.max_timestamp_offset = base
        self.index = Index(base)
        self.unsynced = False

    @property
    def log_path(self) -> str:
        return f"{self.path}.log"

    def append(self, batch: bytes | bytearray, header: BatchHeader) -> None:
        """Write one batch behind the others. When that fails the file is as before, or OSError comes from the cutting."""
        file = self.handles.file(self.log_path)
        try:
            file.write(self.size, batch)
        except OSError:
            file.truncate(self.size)
            raise
        self.unsynced = True
        self.note(header)

    def note(self, header: BatchHeader) -> None:
        """Count a batch that stands at the end of the good part."""
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = header.last_offset
        self.index.add(header.last_offset, self.size, self.max_timestamp, self.max_timestamp_offset)
        self.size += header.size
        self.next_offset = header.last_offset + 1

    def check(self, from_start: bool) -> str:
        """Read the file up to its end or the first batch that is none; why it stopped short, or "".

        From the start every checksum is verified. Otherwise, after an orderly stop, headers alone are read, from the
        last place that the index knows.
        """
        length = self.handles.file(self.log_path).size()
        if not from_start:
            self._load_index(length)
        for header, body in self.batches(self.size, length):
            try:
                if from_start:
                    validate(body, 0, len(body))
                if header.base_offset < self.next_offset:
                    return f"offset {header.base_offset} where at least {self.next_offset} must be"
            except CorruptBatch as error:
                return str(error)
            self.note(header)
        return "" if self.size == length else "a batch is cut short"

    def batches(self, at: int, end: int) -> Iterator[tuple[BatchHeader, bytes]]:
        """Header and bytes of each whole batch in the file between two positions; stops where none can be."""
        file = self.handles.file(self.log_path)
        chunk, chunk_at = b"", at
        while end - at >= HEADER_BYTES:
            offset = at - chunk_at
            if len(chunk) - offset < HEADER_BYTES:
                chunk, chunk_at, offset = file.read(at, min(CHUNK_BYTES, end - at)), at, 0
                if len(chunk) < HEADER_BYTES:
                    return
            try:
                header = read_header(chunk, offset)
            except CorruptBatch:
                return
            if header.size < HEADER_BYTES or header.size > end - at:
                return
            if len(chunk) - offset < header.size:
                chunk, chunk_at, offset = file.read(at, max(min(CHUNK_BYTES, end - at), header.size)), at, 0
                if len(chunk) < header.size:
                    return
            yield header, chunk[offset : offset + header.size]
            at += header.size
            file = self.handles.file(self.log_path)

    def chunks(self, offset: int, end: int) -> Iterator[bytes]:
        """Whole batches from the one that holds `offset` on, as far as they end before `end`, about a MiB at a time."""
        parts: list[bytes] = []
        size = 0
        for header, batch in self.batches(self.index.position_of(offset), self.size):
            if header.last_offset < offset:
                continue
            if header.last_offset >= end:
                break
            parts.append(batch)
            size += len(batch)
            if size >= CHUNK_BYTES:
                yield b"".join(parts)
                parts, size = [], 0
        if parts:
            yield b"".join(parts)

    def damaged_at(self, reason: str) -> DamagedLog:
        return DamagedLog(self.log_path, self.size, reason)

    def position_from(self, offset: int) -> int:
        """Where the first batch begins that ends at or behind `offset`; the end of the good part if there is none."""
        at = self.index.position_of(offset)
        for header, _ in self.batches(at, self.size):
            if header.last_offset >= offset:
                return at
            at += header.size
        return at

    def cut(self, position: int) -> None:
        """Forget and remove everything from `position` on; a batch begins there or the file ends."""
        kept = Segment(self.handles, self.path.rpartition("/")[0], self.base)
        for header, _ in self.batches(0, position):
            kept.note(header)
        self.handles.file(self.log_path).truncate(kept.size)
        self.size, self.next_offset, self.index = kept.size, kept.next_offset, kept.index
        self.max_timestamp, self.max_timestamp_offset = kept.max_timestamp, kept.max_timestamp_offset
        self.unsynced = True

    def save_index(self) -> None:
        """Both index files, for Kafka's tools and the next opening."""
        self.index.add_time(self.max_timestamp, self.max_timestamp_offset)
        for ending, data in ((".index", self.index.offset_bytes()), (".timeindex", self.index.time_bytes())):
            path = self.path + ending
            file = self.handles.file(path, create=True)
            file.truncate(0)
            file.write(0, data)
            self.handles.forget(path)

    def _load_index(self, length: int) -> None:
        """Take up the stored index and go on behind the last batch it names."""
        disk = self.handles.disk
        stored = []
        for ending in (".index", ".timeindex"):
            if not disk.exists(self.path + ending):
                return
            file = self.handles.file(self.path + ending)
            stored.append(file.read(0, file.size()))
            self.handles.forget(self.path + ending)
        index = read_index(self.base, stored[0], stored[1], length)
        if index is None or not index.positions:
            return
        header = next((header for header, _ in self.batches(index.positions[-1], length)), None)
        if header is None or header.last_offset - self.base != index.offsets[-1]:
            return
        self.index = index
        self.size = index.positions[-1]
        self.next_offset = header.base_offset
        if index.times:
            self.max_timestamp = index.times[-1]
            self.max_timestamp_offset = self.base + index.time_offsets[-1]

    def close(self) -> None:
        self.handles.forget(self.log_path)
