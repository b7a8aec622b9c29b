"""Extents: byte ranges of a segment's file that a fetch returns unchanged; located without reading, read in pieces."""

from __future__ import annotations

from typing import Protocol

from protocol.batch import CorruptBatch
from storage.errors import DamagedLog
from storage.segment import PART_BYTES, Segment


class Bytes(Protocol):
    """The source of an extent: a segment, or its counterpart in another store."""

    @property
    def log_path(self) -> str: ...

    def bytes_at(self, at: int, size: int) -> bytes:
        """Raises CorruptBatch if the bytes are gone, and OSError."""
        ...

    @property
    def descriptor(self) -> int:
        """Of the open file, valid at once only; -1: there is none. Raises OSError."""
        ...

    def hold(self) -> None: ...

    def let_go(self) -> None: ...


class Extent:
    """Whole batches of one segment, from position `at` on. To keep it across calls, `hold` it and `let_go` at the end."""

    __slots__ = ("_held", "at", "closed", "segment", "size", "within")

    def __init__(self, segment: Bytes, at: int, size: int, within: int, closed: bool) -> None:
        self.segment = segment
        self.at = at
        self.size = size  # bytes left to read
        self.within = within  # bytes within the limit, a partial last batch included
        self.closed = closed  # its segment does not grow any more
        self._held = False

    def read(self, bytes_max: int) -> bytes:
        """Read the next bytes; raises OSError or DamagedLog if the file has lost them."""
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

    def hold(self) -> None:
        """Keep the file readable while it is replaced or deleted."""
        self._held = True
        self.segment.hold()

    def let_go(self) -> None:
        if self._held:
            self._held = False
            self.segment.let_go()


def extent_of(segment: Segment, offset: int, bytes_max: int, end: int, closed: bool, one_at_least: bool) -> Extent | None:
    """The whole batches from the one with `offset` on that end before offset `end` and fit into `bytes_max`.

    A large extent may be some KiB short, so that it ends at an index entry. None if no batch is there or fits; with
    `one_at_least` the first batch always fits. Raises OSError, and DamagedLog if no batch can be found.
    """
    begin = segment.position_from(offset)
    stop = segment.position_from(end)
    if begin >= stop:
        return None
    limit = begin + bytes_max
    if limit >= stop:
        segment.remember(min(end, segment.next_offset), stop)
        return Extent(segment, begin, stop - begin, stop - begin, closed)
    if bytes_max >= PART_BYTES:
        position, last_offset = segment.index.before(limit)
        if position > begin:
            header = segment.header_at(position)
            if header is not None and header.last_offset == last_offset:
                segment.remember(header.base_offset, position)
                return Extent(segment, begin, position - begin, bytes_max, closed)
    at, behind = begin, offset
    while True:
        header = segment.header_at(at)
        if header is None or header.size > stop - at:
            raise DamagedLog(segment.log_path, at, "no batch begins there")
        if at + header.size > limit and (at > begin or not one_at_least):
            break
        at += header.size
        behind = header.next_offset
        if at > limit:
            break
    if at == begin:
        return None
    segment.remember(behind, at)
    return Extent(segment, begin, at - begin, max(bytes_max, at - begin), closed)
