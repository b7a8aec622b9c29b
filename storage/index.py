"""Where in a segment an offset or a time is: one entry for every few KiB of log, in Kafka's own files.

`.index` has (offset relative to the segment's base, position), `.timeindex` (timestamp, relative offset); both grow
strictly. An index says nothing that the log does not: one that is missing or makes no sense is built again, and the
batch that an entry leads to is looked at before it is believed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from struct import Struct
from typing import Final

_OFFSET: Final = Struct(">ii")
_TIME: Final = Struct(">qi")

INTERVAL_BYTES: Final = 4096  # Kafka's index.interval.bytes
BATCH_BYTES_MIN: Final = 61


class Index:
    """Both indexes of one segment, in memory; small: 32 bytes for every 4 KiB of log."""

    __slots__ = ("_at_last", "base", "offsets", "positions", "time_offsets", "times")

    def __init__(self, base: int) -> None:
        self.base = base
        self.offsets = array("q")  # relative to the base: the last one of the batch that begins at the position
        self.positions = array("q")
        self.times = array("q")
        self.time_offsets = array("q")
        self._at_last = 0  # position from which the next interval counts

    def add(self, offset: int, position: int, timestamp: int, timestamp_offset: int) -> None:
        """A batch ends in `offset` and begins at `position`; `timestamp` is the largest so far, found at its offset."""
        if position - self._at_last < INTERVAL_BYTES:
            return
        self._at_last = position
        self.offsets.append(offset - self.base)
        self.positions.append(position)
        self.add_time(timestamp, timestamp_offset)

    def add_time(self, timestamp: int, offset: int) -> None:
        if timestamp > 0 and (not self.times or timestamp > self.times[-1]):
            self.times.append(timestamp)
            self.time_offsets.append(offset - self.base)

    def entry_for(self, offset: int) -> tuple[int, int]:
        """Where to begin reading for `offset`, not behind its batch, and the last offset of the batch there; (0, -1) if unknown."""
        found = bisect_right(self.offsets, offset - self.base) - 1
        return (self.positions[found], self.base + self.offsets[found]) if found >= 0 else (0, -1)

    def before(self, position: int) -> tuple[int, int]:
        """The last batch that is named and begins at `position` or before, and its last offset; (0, -1) if unknown."""
        found = bisect_right(self.positions, position) - 1
        return (self.positions[found], self.base + self.offsets[found]) if found >= 0 else (0, -1)

    def time_before(self, timestamp: int) -> tuple[int, int]:
        """The last entry that is earlier than `timestamp`, so nothing before its offset is as late; (-1, base) for none."""
        found = bisect_right(self.times, timestamp - 1) - 1
        return (self.times[found], self.base + self.time_offsets[found]) if found >= 0 else (-1, self.base)

    def cut(self, position: int) -> None:
        """The log ends before `position` now; what is not before the last entry that stays has to be noted again."""
        while self.positions and self.positions[-1] >= position:
            self.positions.pop()
            self.offsets.pop()
        last = self.offsets[-1] if self.offsets else -1
        while self.time_offsets and self.time_offsets[-1] > last:
            self.time_offsets.pop()
            self.times.pop()
        self._at_last = self.positions[-1] if self.positions else 0

    def offset_bytes(self) -> bytes:
        return b"".join(map(_OFFSET.pack, self.offsets, self.positions))

    def time_bytes(self) -> bytes:
        return b"".join(map(_TIME.pack, self.times, self.time_offsets))


def index_bytes_max(log_bytes: int) -> int:
    """More than any index of a log of this size has: Kafka makes room for ten MiB, whatever is in it."""
    return (log_bytes // BATCH_BYTES_MIN + 2) * _OFFSET.size * _TIME.size


def read_index(base: int, offset_bytes: bytes, time_bytes: bytes, log_bytes: int) -> Index | None:
    """The index as stored, or None where it makes no sense for a log of this size.

    Kafka makes room ahead: a file that was not closed in order ends in zeros.
    """
    index = Index(base)
    if len(offset_bytes) % _OFFSET.size or len(time_bytes) % _TIME.size:
        return None
    for offset, position in _OFFSET.iter_unpack(offset_bytes):
        if offset == 0 and position == 0:
            break
        if (
            offset <= (index.offsets[-1] if index.offsets else -1)
            or not (index.positions[-1] if index.positions else 0) < position < log_bytes
        ):
            return None
        index.offsets.append(offset)
        index.positions.append(position)
    for timestamp, offset in _TIME.iter_unpack(time_bytes):
        if timestamp == 0 and offset == 0:
            break
        if timestamp <= (index.times[-1] if index.times else 0) or offset < (index.time_offsets[-1] if index.time_offsets else 0):
            return None
        index.times.append(timestamp)
        index.time_offsets.append(offset)
    if index.positions and not index.times:
        return None  # the newest timestamp would not be known
    index._at_last = index.positions[-1] if index.positions else 0
    return index
