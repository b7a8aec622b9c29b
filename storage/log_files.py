"""Read the segments of one log as of one moment, without changes to any file, even while a broker writes the log."""

from __future__ import annotations

from collections.abc import Iterator

from protocol.batch import HEADER_BYTES, BatchHeader, CorruptBatch, read_header, validate
from storage.disk import Disk, File
from storage.errors import DamagedLog
from storage.segment import CHUNK_BYTES, segment_bases, segment_name
from storage.swap import SWAP


class _Part:
    """One segment, with its size when the log was opened."""

    __slots__ = ("base", "file", "path", "size")

    def __init__(self, base: int, path: str, file: File, size: int) -> None:
        self.base = base
        self.path = path
        self.file = file
        self.size = size


def _no_exchange_in_progress(disk: Disk, folder: str) -> bool:
    """Whether no compaction is exchanging segments now."""
    return not [name for name in disk.list(folder) if name.endswith(f".log{SWAP}")]


class LogFiles:
    """The open files of a log: its records stay readable if compaction or retention removes the files. Must be closed."""

    def __init__(self, parts: list[_Part], growing: bool) -> None:
        self.next_offset = parts[-1].base if parts else 0  # after the last batch that was read
        self._parts = parts
        self._growing = growing

    @staticmethod
    def open(disk: Disk, folder: str, growing: bool) -> LogFiles | None:
        """Open the log; None while segments are being exchanged: try again later. Raises OSError.

        `growing`: a broker writes the log, so its last batch may be incomplete.
        """
        parts: list[_Part] = []
        settled = False
        try:
            bases = segment_bases(disk, folder)
            for base in bases:
                path = f"{folder}/{segment_name(base)}.log"
                file = disk.open(path)
                parts.append(_Part(base, path, file, 0))
            settled = segment_bases(disk, folder) == bases and _no_exchange_in_progress(disk, folder)
            for part in parts:
                part.size = part.file.size()
        except FileNotFoundError:
            if not disk.exists(folder):
                raise
        finally:
            if not settled:
                for part in parts:
                    part.file.close()
        return LogFiles(parts, growing) if settled else None

    @property
    def first_offset(self) -> int:
        """The base offset of the first segment."""
        return self._parts[0].base if self._parts else 0

    @property
    def size(self) -> int:
        return sum([part.size for part in self._parts])

    def batches(self) -> Iterator[tuple[int, BatchHeader, bytes]]:
        """Each batch, verified, with the base offset of its segment. Raises DamagedLog and OSError."""
        self.next_offset = self.first_offset
        for part in self._parts:
            if part.base < self.next_offset:
                raise DamagedLog(part.path, 0, f"it begins at offset {part.base}, and the previous segment ends at {self.next_offset}")
            self.next_offset = part.base
            for header, chunk, at in self._batches_in(part, True):
                self.next_offset = header.next_offset
                yield part.base, header, chunk[at : at + header.size]

    def find_end(self) -> int:
        """The offset after the last batch, from the headers in the last segment."""
        for part in self._parts[-1:]:
            self.next_offset = part.base
            for header, _, _ in self._batches_in(part, False):
                self.next_offset = header.next_offset
        return self.next_offset

    def _batches_in(self, part: _Part, verify: bool) -> Iterator[tuple[BatchHeader, bytes, int]]:
        growing = self._growing and part is self._parts[-1]
        next_offset = part.base
        size = part.size
        chunk, chunk_at, at = b"", 0, 0
        try:
            while at < size:
                position = at - chunk_at
                if len(chunk) - position < HEADER_BYTES:
                    chunk, chunk_at, position = part.file.read(at, min(CHUNK_BYTES, size - at)), at, 0
                    if growing and len(chunk) < HEADER_BYTES:
                        return
                header = read_header(chunk, position)
                if header.size > size - at:
                    if growing:
                        return
                    raise CorruptBatch("a batch is cut short")
                if len(chunk) - position < header.size:
                    chunk, chunk_at, position = part.file.read(at, max(header.size, min(CHUNK_BYTES, size - at))), at, 0
                if verify:
                    validate(chunk, position, len(chunk))
                if header.base_offset < next_offset or header.last_offset < header.base_offset:
                    raise CorruptBatch(f"offset {header.base_offset} where at least {next_offset} is expected")
                yield header, chunk, position
                next_offset = header.next_offset
                at += header.size
        except CorruptBatch as error:
            raise DamagedLog(part.path, at, str(error)) from error

    def close(self) -> None:
        for part in self._parts:
            part.file.close()
