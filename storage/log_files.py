"""Read the segments of one log as of one moment, without changes to any file, even while a broker writes the log."""

from __future__ import annotations

from collections.abc import Iterator

from protocol.batch import HEADER_BYTES, BatchHeader, CorruptBatch, read_header, validate
from storage.disk import Disk, File
from storage.errors import DamagedLog
from storage.index import RELATIVE_OFFSET_MAX
from storage.segment import CHUNK_BYTES, segment_bases, segment_name
from storage.swap import SWAP


class _SegmentFile:
    """One segment, with its size when the log was opened. `next_base`: the base offset of the next segment; -1: this is the last one."""

    __slots__ = ("base", "file", "next_base", "path", "size")

    def __init__(self, base: int, next_base: int, path: str, file: File, size: int) -> None:
        self.base = base
        self.next_base = next_base
        self.path = path
        self.file = file
        self.size = size


def _no_exchange_in_progress(disk: Disk, folder: str) -> bool:
    """Whether no compaction is exchanging segments now."""
    return not [name for name in disk.list(folder) if name.endswith(f".log{SWAP}")]


class LogFiles:
    """The open files of a log: its records stay readable if compaction or retention removes the files. Must be closed."""

    def __init__(self, segments: list[_SegmentFile], growing: bool) -> None:
        self.next_offset = segments[-1].base if segments else 0  # after the last batch that was read
        self._segments = segments
        self._growing = growing

    @staticmethod
    def open(disk: Disk, folder: str, growing: bool) -> LogFiles | None:
        """Open the log; None while segments are being exchanged: try again later. Raises OSError.

        `growing`: a broker writes the log, so its last batch may be incomplete.
        """
        segments: list[_SegmentFile] = []
        settled = False
        try:
            bases = segment_bases(disk, folder)
            for base, next_base in zip(bases, [*bases[1:], -1], strict=True):
                path = f"{folder}/{segment_name(base)}.log"
                file = disk.open(path)
                segments.append(_SegmentFile(base, next_base, path, file, 0))
            settled = segment_bases(disk, folder) == bases and _no_exchange_in_progress(disk, folder)
            for segment in segments:
                segment.size = segment.file.size()
        except FileNotFoundError:
            if not disk.exists(folder):
                raise
        finally:
            if not settled:
                for segment in segments:
                    segment.file.close()
        return LogFiles(segments, growing) if settled else None

    @property
    def first_offset(self) -> int:
        """The base offset of the first segment."""
        return self._segments[0].base if self._segments else 0

    @property
    def size(self) -> int:
        return sum([segment.size for segment in self._segments])

    def batches(self) -> Iterator[tuple[int, BatchHeader, bytes]]:
        """Each batch, verified, with the base offset of its segment. Raises DamagedLog and OSError."""
        for segment in self._segments:
            self.next_offset = segment.base
            for header, chunk, at in self._batches_in(segment, True):
                self.next_offset = header.next_offset
                yield segment.base, header, chunk[at : at + header.size]

    def find_end(self) -> int:
        """The offset after the last batch, from the headers in the last segment. Raises DamagedLog and OSError."""
        for segment in self._segments[-1:]:
            self.next_offset = segment.base
            try:
                for header, _, _ in self._batches_in(segment, False):
                    self.next_offset = header.next_offset
            except DamagedLog:
                # After a batch with a wrong length, the next header is read from the wrong place: verify checksums to find that batch.
                for _ in self._batches_in(segment, True):
                    pass
                raise
        return self.next_offset

    def _batches_in(self, segment: _SegmentFile, verify: bool) -> Iterator[tuple[BatchHeader, bytes, int]]:
        growing = self._growing and segment is self._segments[-1]
        next_offset = segment.base
        gap_at = -1  # the previous batch's position if offsets are missing before it
        end_without_gap = 0  # where that batch would end
        size = segment.size
        chunk, chunk_at, at = b"", 0, 0
        try:
            while at < size:
                position = at - chunk_at
                if len(chunk) - position < HEADER_BYTES:
                    chunk, chunk_at, position = segment.file.read(at, min(CHUNK_BYTES, size - at)), at, 0
                    if growing and len(chunk) < HEADER_BYTES:
                        return
                header = read_header(chunk, position)
                if header.size > size - at:
                    if growing:
                        return
                    raise CorruptBatch("a batch is cut short")
                if len(chunk) - position < header.size:
                    chunk, chunk_at, position = segment.file.read(at, max(header.size, min(CHUNK_BYTES, size - at))), at, 0
                if verify:
                    validate(chunk, position, len(chunk))
                if gap_at >= 0 and end_without_gap <= header.base_offset < next_offset:
                    at = gap_at  # no checksum covers a base offset: the previous one is wrong
                    raise CorruptBatch(f"it ends at offset {next_offset - 1}, and the next batch begins at {header.base_offset}")
                if header.base_offset < next_offset or header.last_offset < header.base_offset:
                    raise CorruptBatch(f"offset {header.base_offset} where at least {next_offset} is expected")
                if 0 <= segment.next_base <= header.last_offset:
                    raise CorruptBatch(f"offset {header.last_offset}, and the next segment begins at {segment.next_base}")
                if header.last_offset - segment.base > RELATIVE_OFFSET_MAX:
                    raise CorruptBatch(f"offset {header.last_offset} is too far from the segment's first, {segment.base}")
                yield header, chunk, position
                gap_at = at if header.base_offset > next_offset else -1
                end_without_gap = next_offset + header.next_offset - header.base_offset
                next_offset = header.next_offset
                at += header.size
        except CorruptBatch as error:
            raise DamagedLog(segment.path, at, str(error)) from error

    def close(self) -> None:
        for segment in self._segments:
            segment.file.close()
