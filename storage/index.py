"""Where in a segment an offset or a time is: one entry for every few KiB of log, in Kafka's own files.

`.index` has (offset relative to the segment's base, position), `.timeindex` (timestamp, relative offset); both grow
strictly. What is in the files is searched there; in memory is what was added since. An index says nothing that the log
does not: one that is missing or makes no sense is built again, and the batch that an entry leads to is looked at before it
is believed. So the files are not flushed: what a power failure takes of them costs reading, and no wrong answer.
"""

from __future__ import annotations

import contextlib
from array import array
from bisect import bisect_right
from operator import lt
from struct import Struct
from typing import Final

from storage.disk import File
from storage.handles import Handles

_OFFSET: Final = Struct(">ii")
_TIME: Final = Struct(">qi")

INTERVAL_BYTES: Final = 4096  # Kafka's index.interval.bytes
RELATIVE_OFFSET_MAX: Final = (1 << 31) - 1  # a segment has no offsets that are further from its base
MEMORY_ENTRIES: Final = 1024  # of four MiB of log: then they are put into the files
CHECKED_BYTES: Final = 65_536  # a larger file is looked at where it begins and ends
BLOCK_ENTRIES: Final = 64  # are read at once, where a search has come so near
SWAPPED: Final = array("i", [1]).tobytes() == b"\1\0\0\0"  # this machine has its bytes the other way round

Entry = tuple[int, int]


class Index:
    """Both indexes of one segment. The arrays have what is not in the files yet."""

    __slots__ = (
        "base",
        "handles",
        "last_position",
        "last_time",
        "offsets",
        "path",
        "positions",
        "stored_offsets",
        "stored_times",
        "suffix",
        "time_offsets",
        "times",
    )

    def __init__(self, handles: Handles, path: str, suffix: str, base: int) -> None:
        self.handles = handles
        self.path = path  # of the segment, without an ending
        self.suffix = suffix
        self.base = base
        self.stored_offsets = 0  # so many entries are in the files
        self.stored_times = 0
        self.offsets = array("i")  # relative to the base: the last one of the batch that begins at the position
        self.positions = array("i")
        self.times = array("q")
        self.time_offsets = array("i")
        self.last_position = 0  # from which the next interval counts
        self.last_time = 0

    @property
    def offset_path(self) -> str:
        return f"{self.path}.index{self.suffix}"

    @property
    def time_path(self) -> str:
        return f"{self.path}.timeindex{self.suffix}"

    def add(self, offset: int, position: int, timestamp: int, timestamp_offset: int) -> None:
        """A batch ends in `offset` and begins at `position`; `timestamp` is the largest so far, found at its offset."""
        if position - self.last_position < INTERVAL_BYTES:
            return
        self.last_position = position
        self.offsets.append(offset - self.base)
        self.positions.append(position)
        self.add_time(timestamp, timestamp_offset)
        if len(self.positions) % MEMORY_ENTRIES == 0:
            with contextlib.suppress(OSError):  # then they stay here
                self._store()

    def add_time(self, timestamp: int, offset: int) -> None:
        if timestamp > self.last_time:
            self.last_time = timestamp
            self.times.append(timestamp)
            self.time_offsets.append(offset - self.base)

    # Looking up.

    def entry_for(self, offset: int) -> Entry:
        """Where to begin reading for `offset`, not behind its batch, and the last offset of the batch there; (0, -1) if unknown."""
        wanted = offset - self.base
        found = bisect_right(self.offsets, wanted) - 1
        if found >= 0:
            return self.positions[found], self.base + self.offsets[found]
        return self._place(0, wanted)

    def before(self, position: int) -> Entry:
        """The last batch that is named and begins at `position` or before, and its last offset; (0, -1) if unknown."""
        found = bisect_right(self.positions, position) - 1
        if found >= 0:
            return self.positions[found], self.base + self.offsets[found]
        return self._place(1, position)

    def _place(self, field: int, value: int) -> Entry:
        if not self.stored_offsets:
            return 0, -1
        entry = self._search(self.offset_path, _OFFSET, field, self.stored_offsets, value)
        return (entry[1], self.base + entry[0]) if entry is not None else (0, -1)

    def time_before(self, timestamp: int) -> Entry:
        """The last entry that is earlier than `timestamp`, so nothing before its offset is as late; (-1, base) for none."""
        found = bisect_right(self.times, timestamp - 1) - 1
        if found >= 0:
            return self.times[found], self.base + self.time_offsets[found]
        entry = self._search(self.time_path, _TIME, 0, self.stored_times, timestamp - 1) if self.stored_times else None
        return (entry[0], self.base + entry[1]) if entry is not None else (-1, self.base)

    def last_place(self) -> Entry:
        """The batch that is named last, as `entry_for` has it."""
        if self.positions:
            return self.positions[-1], self.base + self.offsets[-1]
        entry = self._last(self.offset_path, _OFFSET, self.stored_offsets)
        return (entry[1], self.base + entry[0]) if entry is not None else (0, -1)

    def last_record_time(self) -> Entry:
        """The newest timestamp that is known, and the offset where it is; (-1, base) for none."""
        if self.times:
            return self.times[-1], self.base + self.time_offsets[-1]
        entry = self._last(self.time_path, _TIME, self.stored_times)
        return (entry[0], self.base + entry[1]) if entry is not None else (-1, self.base)

    def newest_before(self, offset: int) -> Entry:
        """The newest timestamp that the files have for what is before `offset`, and the offset where it is; (-1, base) for none."""
        wanted = offset - 1 - self.base
        entry = self._search(self.time_path, _TIME, 1, self.stored_times, wanted) if self.stored_times else None
        return (entry[0], self.base + entry[1]) if entry is not None else (-1, self.base)

    def _last(self, path: str, form: Struct, count: int) -> Entry | None:
        if not count:
            return None
        try:
            data = self.handles.file(path).read((count - 1) * form.size, form.size)
        except OSError:
            return None
        first: int
        second: int
        for first, second in form.iter_unpack(data if len(data) == form.size else b""):
            return first, second
        return None

    def _search(self, path: str, form: Struct, field: int, count: int, value: int) -> Entry | None:
        """The last of the stored entries in which the field is not larger; None also where the file does not have it any more."""
        size = form.size
        low, high = 0, count
        try:
            file = self.handles.file(path)
            while high - low > BLOCK_ENTRIES:
                middle = (low + high) // 2
                data = file.read(middle * size, size)
                if len(data) == size and form.unpack(data)[field] <= value:
                    low = middle
                else:
                    high = middle
            data = file.read(low * size, (high - low) * size)
        except OSError:
            return None
        best: Entry | None = None
        first: int
        second: int
        for first, second in form.iter_unpack(data[: len(data) // size * size]):
            if (second if field else first) > value:
                break
            best = first, second
        return best

    # The files.

    def load(self, log_bytes: int) -> bool:
        """Take up what is stored; whether it makes sense for a log of this size."""
        for path in (self.offset_path, self.time_path):
            if not self.handles.disk.exists(path):
                return False
        offsets = self._count(self.handles.file(self.offset_path), _OFFSET)
        times = self._count(self.handles.file(self.time_path), _TIME)
        if offsets < 0 or times < 0 or (offsets and not times):  # without times the newest would not be known
            return False
        if not self._in_order(offsets, times, log_bytes):
            return False
        self.stored_offsets, self.stored_times = offsets, times
        self.last_position = self.last_place()[0]
        self.last_time = max(self.last_record_time()[0], 0)
        self.forget()
        return True

    def _count(self, file: File, form: Struct) -> int:
        """-1 for a file that is none. Kafka makes room ahead: one that was not closed in order ends in zeros."""
        size = form.size
        length = file.size()
        if length % size:
            return -1
        low, high = 0, length // size
        nothing = bytes(size)
        if high and file.read(length - size, size) != nothing:
            return high
        while low < high:
            middle = (low + high) // 2
            if file.read(middle * size, size) == nothing:
                high = middle
            else:
                low = middle + 1
        return low

    def _in_order(self, offsets: int, times: int, log_bytes: int) -> bool:
        """Of a long one the first entries and the last ones are looked at."""
        for first, behind in _parts(offsets, _OFFSET.size):
            numbers, positions = self._offset_arrays(first, behind)
            if not (_grows(numbers, -1) and _grows(positions, 0) and positions[-1] < log_bytes):
                return False
        for first, behind in _parts(times, _TIME.size):
            stamps, numbers = self._time_arrays(first, behind)
            if not (_grows(stamps, 0) and _grows(numbers, -1, strictly=False)):
                return False
        return True

    def _offset_arrays(self, first: int, behind: int) -> tuple[array[int], array[int]]:
        data = self.handles.file(self.offset_path).read(first * _OFFSET.size, (behind - first) * _OFFSET.size)
        both = _from_big_endian("i", data)
        return both[::2], both[1::2]

    def _time_arrays(self, first: int, behind: int) -> tuple[array[int], array[int]]:
        data = self.handles.file(self.time_path).read(first * _TIME.size, (behind - first) * _TIME.size)
        words = array("i", data)
        stamps = array("i", bytes(len(words) // 3 * 8))
        stamps[::2], stamps[1::2] = words[::3], words[1::3]
        return _from_big_endian("q", stamps.tobytes()), _from_big_endian("i", words[2::3].tobytes())

    def save(self) -> None:
        """Both files, for Kafka's tools and the next opening."""
        self._store()
        self.forget()

    def _store(self) -> None:
        """Put what is in memory behind what is in the files, which end there."""
        offset_file = self.handles.file(self.offset_path, create=True)
        _end_with(offset_file, self.stored_offsets * _OFFSET.size, self.offset_bytes())
        time_file = self.handles.file(self.time_path, create=True)
        _end_with(time_file, self.stored_times * _TIME.size, self.time_bytes())
        self.stored_offsets += len(self.offsets)
        self.stored_times += len(self.times)
        self.offsets, self.positions, self.times, self.time_offsets = array("i"), array("i"), array("q"), array("i")

    def forget(self) -> None:
        """Close the files."""
        self.handles.forget(self.offset_path)
        self.handles.forget(self.time_path)

    def cut(self, position: int) -> None:
        """The log ends before `position` now; what is not before the last entry that stays has to be noted again."""
        self._take_back()
        self._remove_files()
        while self.positions and self.positions[-1] >= position:
            self.positions.pop()
            self.offsets.pop()
        last = self.offsets[-1] if self.offsets else -1
        while self.time_offsets and self.time_offsets[-1] > last:
            self.time_offsets.pop()
            self.times.pop()
        self.last_position = self.positions[-1] if self.positions else 0
        self.last_time = self.times[-1] if self.times else 0

    def _remove_files(self) -> None:
        """They name what is cut off."""
        self.forget()
        for path in (self.offset_path, self.time_path):
            with contextlib.suppress(OSError):  # nothing depends on them
                if self.handles.disk.exists(path):
                    self.handles.disk.remove(path)

    def _take_back(self) -> None:
        """Everything into memory; what cannot be read is as if it had never been there."""
        try:
            offsets, positions = self._offset_arrays(0, self.stored_offsets) if self.stored_offsets else (array("i"), array("i"))
            times, time_offsets = self._time_arrays(0, self.stored_times) if self.stored_times else (array("q"), array("i"))
        except OSError:
            offsets, positions, times, time_offsets = array("i"), array("i"), array("q"), array("i")
            self.offsets, self.positions, self.times, self.time_offsets = array("i"), array("i"), array("q"), array("i")
        self.offsets, self.positions = offsets + self.offsets, positions + self.positions
        self.times, self.time_offsets = times + self.times, time_offsets + self.time_offsets
        self.stored_offsets = self.stored_times = 0

    def offset_bytes(self) -> bytes:
        both = array("i", bytes(8 * len(self.offsets)))
        both[::2], both[1::2] = self.offsets, self.positions
        if SWAPPED:
            both.byteswap()
        return both.tobytes()

    def time_bytes(self) -> bytes:
        stamps, numbers = array("q", self.times), array("i", self.time_offsets)
        if SWAPPED:
            stamps.byteswap()
            numbers.byteswap()
        halves = array("i", stamps.tobytes())
        words = array("i", bytes(12 * len(numbers)))
        words[::3], words[1::3], words[2::3] = halves[::2], halves[1::2], numbers
        return words.tobytes()


def _end_with(file: File, at: int, data: bytes) -> None:
    """The file has `data` at the place, and nothing behind it. Cutting may wait for the disk: not where there is nothing to do."""
    size = file.size()
    if size == at + len(data) and file.read(at, len(data)) == data:
        return
    if size > at:
        file.truncate(at)
    file.write(at, data)


def _from_big_endian(code: str, data: bytes) -> array[int]:
    found = array(code, data)
    if SWAPPED:
        found.byteswap()
    return found


def _parts(count: int, size: int) -> list[tuple[int, int]]:
    if count * size <= CHECKED_BYTES:
        return [(0, count)] if count else []
    return [(0, BLOCK_ENTRIES), (count - BLOCK_ENTRIES, count)]


def _grows(values: array[int], floor: int, strictly: bool = True) -> bool:
    """Some values."""
    if not strictly:
        return values[0] > floor and not any(map(lt, values[1:], values))
    return values[0] > floor and all(map(lt, values, values[1:]))
