"""Stretches of a segment's file that are served as they stand there: found without reading them, read piece by piece."""

from __future__ import annotations

from typing import Protocol

from protocol.batch import CorruptBatch
from storage.errors import DamagedLog
from storage.segment import PART_BYTES, Segment


class Bytes(Protocol):
    """Where an extent is read from: a segment, or what another store has in its place."""

    @property
    def log_path(self) -> str: ...

    def bytes_at(self, at: int, size: int) -> bytes:
        """Raises CorruptBatch where they are not there any more, and OSError."""
        ...

    def hold(self) -> None: ...

    def let_go(self) -> None: ...


class Extent:
    """Whole batches of one segment, from `at` on. Who keeps it beyond the moment holds it, and lets go of it in the end."""

    __slots__ = ("_held", "at", "closed", "segment", "size", "within")

    def __init__(self, segment: Bytes, at: int, size: int, within: int, closed: bool) -> None:
        self.segment = segment
        self.at = at
        self.size = size  # of what is still to be read
        self.within = within  # how much there is within the limit, were batches cut
        self.closed = closed  # nothing more comes behind it in its segment
        self._held = False

    def read(self, bytes_max: int) -> bytes:
        """What comes next; OSError or DamagedLog where the file does not have it any more."""
        size = min(bytes_max, self.size)
        try:
            data = self.segment.bytes_at(self.at, size)
        except CorruptBatch as error:
            raise DamagedLog(self.segment.log_path, self.at, str(error)) from error
        self.at += size
        self.size -= size
        return data

    def hold(self) -> None:
        """Its file may be exchanged or dropped meanwhile."""
        self._held = True
        self.segment.hold()

    def let_go(self) -> None:
        if self._held:
            self._held = False
            self.segment.let_go()


def extent_of(segment: Segment, offset: int, bytes_max: int, end: int, closed: bool, one_at_least: bool) -> Extent | None:
    """The batches from the one that holds `offset` on that end before offset `end`: as many as fit, or some KiB less where
    that is much. None where nothing is, or fits, unless one shall be had in any case.

    Raises OSError, and DamagedLog where no batch can be found.
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
