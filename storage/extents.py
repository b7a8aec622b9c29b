"""Extents: byte ranges of a segment's file that a fetch returns unchanged; located without reading, read in pieces."""

from __future__ import annotations

from typing import Protocol

from protocol.batch import CorruptBatch
from storage.errors import DamagedLog
from storage.segment import LARGE_READ_BYTES, Segment


class ByteSource(Protocol):
    """The source of an extent: a segment, or its counterpart in another store."""

    @property
    def log_path(self) -> str: ...

    def bytes_at(self, at: int, size: int) -> bytes:
        """Read exactly `size` bytes. Raises CorruptBatch if the source has fewer, and OSError."""
        ...

    @property
    def descriptor(self) -> int:
        """Descriptor of the open file, valid until the next call; -1: none. Raises OSError."""
        ...

    def pin(self) -> None: ...

    def unpin(self) -> None: ...


class Extent:
    """Whole batches of one segment, from position `at` on. To keep it across calls, `pin` it, and `unpin` it at the end."""

    __slots__ = ("_pinned", "at", "bytes_within_limit", "closed", "segment", "size")

    def __init__(self, segment: ByteSource, at: int, size: int, bytes_within_limit: int, closed: bool) -> None:
        self.segment = segment
        self.at = at
        self.size = size  # bytes not read yet
        self.bytes_within_limit = bytes_within_limit  # they count for fetch.min.bytes, even if the limit cuts a batch
        self.closed = closed  # its segment no longer grows
        self._pinned = False

    def read(self, bytes_max: int) -> bytes:
        """Read the next bytes. Raises OSError, and DamagedLog if the file is shorter than it was."""
        size = min(bytes_max, self.size)
        try:
            data = self.segment.bytes_at(self.at, size)
        except CorruptBatch as error:
            raise DamagedLog(self.segment.log_path, self.at, str(error)) from error
        self.skip(size)
        return data

    def skip(self, size: int) -> None:
        """Count the next bytes as read."""
        self.at += size
        self.size -= size

    def pin(self) -> None:
        """Keep the file readable while it is replaced or deleted."""
        self._pinned = True
        self.segment.pin()

    def unpin(self) -> None:
        if self._pinned:
            self._pinned = False
            self.segment.unpin()


def extent_of(segment: Segment, offset: int, bytes_max: int, end: int, closed: bool, one_at_least: bool) -> Extent | None:
    """Locate the batches from the one that contains `offset` up to offset `end`, as many as fit into `bytes_max`.

    A large extent may be some KiB smaller, so that it ends at an index entry. None if no batch exists or fits; with
    `one_at_least` the first batch always fits. Raises OSError, and DamagedLog if the segment's structure is damaged.
    """
    begin = segment.position_from(offset)
    stop = segment.position_from(end)
    if begin >= stop:
        return None
    limit = begin + bytes_max
    if limit >= stop:
        segment.cache_position(min(end, segment.next_offset), stop)
        return Extent(segment, begin, stop - begin, stop - begin, closed)
    if bytes_max >= LARGE_READ_BYTES:
        position, last_offset = segment.index.before(limit)
        if position > begin:
            header = segment.header_at(position)
            if header is not None and header.last_offset == last_offset:
                segment.cache_position(header.base_offset, position)
                return Extent(segment, begin, position - begin, bytes_max, closed)
    at, next_offset = begin, offset
    while True:
        header = segment.header_at(at)
        if header is None or header.size > stop - at:
            raise DamagedLog(segment.log_path, at, "no batch begins there")
        if at + header.size > limit and (at > begin or not one_at_least):
            break
        at += header.size
        next_offset = header.next_offset
        if at > limit:
            break
    if at == begin:
        return None
    segment.cache_position(next_offset, at)
    return Extent(segment, begin, at - begin, max(bytes_max, at - begin), closed)
