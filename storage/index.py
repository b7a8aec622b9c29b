"""The offset and time index of a segment in Kafka's files: one entry for every few KiB of log.

`.index` has (offset relative to the segment's base, position), `.timeindex` (timestamp, relative offset). All of them ascend,
strictly except the offsets in `.timeindex`. Stored entries are searched in the files; new ones are kept in memory first. A missing
or inconsistent index is rebuilt from the log, and an entry is used only after checking the batch at its position. So the files need
no sync: without them an opening reads more, but no result is wrong.
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
RELATIVE_OFFSET_MAX: Final = (1 << 31) - 1  # the largest distance of an offset from its segment's base
MEMORY_ENTRIES: Final = 1024  # entries in memory before they are written to the files: about four MiB of log
CHECKED_BYTES: Final = 65_536  # of a larger file only the beginning and the end are checked
BLOCK_ENTRIES: Final = 64  # entries that the last step of a binary search reads at once
LITTLE_ENDIAN: Final = array("i", [1]).tobytes() == b"\1\0\0\0"  # this machine is little-endian, the files are big-endian

IndexEntry = tuple[int, int]


class Index:
    """Both indexes of one segment. The arrays contain the entries that are not in the files yet."""

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
        self.path = path  # of the segment, without its suffix
        self.suffix = suffix
        self.base = base
        self.stored_offsets = 0  # entries in the files
        self.stored_times = 0
        self.offsets = array("i")  # the last offset of the batch at the position, relative to the base
        self.positions = array("i")
        self.times = array("q")
        self.time_offsets = array("i")
        self.last_position = 0  # of the newest entry
        self.last_time = 0

    @property
    def offset_path(self) -> str:
        return f"{self.path}.index{self.suffix}"

    @property
    def time_path(self) -> str:
        return f"{self.path}.timeindex{self.suffix}"

    def add(self, offset: int, position: int, timestamp: int, timestamp_offset: int) -> None:
        """Add an entry for the batch with this last offset and position, unless the previous entry is less than INTERVAL_BYTES before it.

        `timestamp` is the newest of the segment so far, at `timestamp_offset`.
        """
        if position - self.last_position < INTERVAL_BYTES:
            return
        self.last_position = position
        self.offsets.append(offset - self.base)
        self.positions.append(position)
        self.add_time(timestamp, timestamp_offset)
        if len(self.positions) % MEMORY_ENTRIES == 0:
            with contextlib.suppress(OSError):  # the entries stay in memory then
                self._store()

    def add_time(self, timestamp: int, offset: int) -> None:
        if timestamp > self.last_time:
            self.last_time = timestamp
            self.times.append(timestamp)
            self.time_offsets.append(offset - self.base)

    # Lookup.

    def entry_for(self, offset: int) -> IndexEntry:
        """The position of the last indexed batch at or before `offset`, and its last offset; (0, -1) if unknown."""
        relative = offset - self.base
        number = bisect_right(self.offsets, relative) - 1
        if number >= 0:
            return self.positions[number], self.base + self.offsets[number]
        return self._find_entry(0, relative)

    def before(self, position: int) -> IndexEntry:
        """The last indexed batch at or before `position`, and its last offset; (0, -1) if unknown."""
        number = bisect_right(self.positions, position) - 1
        if number >= 0:
            return self.positions[number], self.base + self.offsets[number]
        return self._find_entry(1, position)

    def _find_entry(self, field: int, value: int) -> IndexEntry:
        if not self.stored_offsets:
            return 0, -1
        entry = self._search(self.offset_path, _OFFSET, field, self.stored_offsets, value)
        return (entry[1], self.base + entry[0]) if entry is not None else (0, -1)

    def time_before(self, timestamp: int) -> IndexEntry:
        """The last time entry before `timestamp`: all records up to its offset are earlier; (-1, base) for none."""
        number = bisect_right(self.times, timestamp - 1) - 1
        if number >= 0:
            return self.times[number], self.base + self.time_offsets[number]
        entry = self._search(self.time_path, _TIME, 0, self.stored_times, timestamp - 1) if self.stored_times else None
        return (entry[0], self.base + entry[1]) if entry is not None else (-1, self.base)

    def last_entry(self) -> IndexEntry:
        """The last indexed batch, as `entry_for` returns it."""
        if self.positions:
            return self.positions[-1], self.base + self.offsets[-1]
        entry = self._last(self.offset_path, _OFFSET, self.stored_offsets)
        return (entry[1], self.base + entry[0]) if entry is not None else (0, -1)

    def last_record_time(self) -> IndexEntry:
        """The newest indexed timestamp and its offset; (-1, base) for none."""
        if self.times:
            return self.times[-1], self.base + self.time_offsets[-1]
        entry = self._last(self.time_path, _TIME, self.stored_times)
        return (entry[0], self.base + entry[1]) if entry is not None else (-1, self.base)

    def newest_before(self, offset: int) -> IndexEntry:
        """The newest stored timestamp before `offset`, and its offset; (-1, base) for none."""
        relative = offset - 1 - self.base
        entry = self._search(self.time_path, _TIME, 1, self.stored_times, relative) if self.stored_times else None
        return (entry[0], self.base + entry[1]) if entry is not None else (-1, self.base)

    def _last(self, path: str, layout: Struct, count: int) -> IndexEntry | None:
        if not count:
            return None
        try:
            data = self.handles.file(path).read((count - 1) * layout.size, layout.size)
        except OSError:
            return None
        first: int
        second: int
        for first, second in layout.iter_unpack(data if len(data) == layout.size else b""):
            return first, second
        return None

    def _search(self, path: str, layout: Struct, field: int, count: int, value: int) -> IndexEntry | None:
        """The last stored entry whose field is at most `value`; None if there is none or the file cannot be read."""
        size = layout.size
        low, high = 0, count
        try:
            file = self.handles.file(path)
            while high - low > BLOCK_ENTRIES:
                middle = (low + high) // 2
                data = file.read(middle * size, size)
                if len(data) == size and layout.unpack(data)[field] <= value:
                    low = middle
                else:
                    high = middle
            data = file.read(low * size, (high - low) * size)
        except OSError:
            return None
        best: IndexEntry | None = None
        first: int
        second: int
        for first, second in layout.iter_unpack(data[: len(data) // size * size]):
            if (second if field else first) > value:
                break
            best = first, second
        return best

    # The files.

    def load(self, log_bytes: int) -> bool:
        """Load the stored index; False if it is missing or inconsistent with a log of this size."""
        for path in (self.offset_path, self.time_path):
            if not self.handles.disk.exists(path):
                return False
        offsets = self._count(self.handles.file(self.offset_path), _OFFSET)
        times = self._count(self.handles.file(self.time_path), _TIME)
        if offsets < 0 or times < 0 or (offsets and not times):  # the newest timestamp would be unknown
            return False
        if not self._in_order(offsets, times, log_bytes):
            return False
        self.stored_offsets, self.stored_times = offsets, times
        self.last_position = self.last_entry()[0]
        self.last_time = max(self.last_record_time()[0], 0)
        self.forget()
        return True

    def _count(self, file: File, layout: Struct) -> int:
        """The number of entries; -1 for a wrong size. Kafka preallocates the file, so without a clean close it ends in zeros."""
        size = layout.size
        length = file.size()
        if length % size:
            return -1
        low, high = 0, length // size
        zeros = bytes(size)
        if high and file.read(length - size, size) != zeros:
            return high
        while low < high:
            middle = (low + high) // 2
            if file.read(middle * size, size) == zeros:
                high = middle
            else:
                low = middle + 1
        return low

    def _in_order(self, offsets: int, times: int, log_bytes: int) -> bool:
        """Whether the entries ascend and are within the log; of a large file only the first and last ones are checked."""
        for first, end in _checked_ranges(offsets, _OFFSET.size):
            numbers, positions = self._offset_arrays(first, end)
            if not (_ascends(numbers, -1) and _ascends(positions, 0) and positions[-1] < log_bytes):
                return False
        for first, end in _checked_ranges(times, _TIME.size):
            stamps, numbers = self._time_arrays(first, end)
            if not (_ascends(stamps, 0) and _ascends(numbers, -1, strictly=False)):
                return False
        return True

    def _offset_arrays(self, first: int, end: int) -> tuple[array[int], array[int]]:
        data = self.handles.file(self.offset_path).read(first * _OFFSET.size, (end - first) * _OFFSET.size)
        values = _from_big_endian("i", data)
        return values[::2], values[1::2]

    def _time_arrays(self, first: int, end: int) -> tuple[array[int], array[int]]:
        data = self.handles.file(self.time_path).read(first * _TIME.size, (end - first) * _TIME.size)
        words = array("i", data)
        stamps = array("i", bytes(len(words) // 3 * 8))
        stamps[::2], stamps[1::2] = words[::3], words[1::3]
        return _from_big_endian("q", stamps.tobytes()), _from_big_endian("i", words[2::3].tobytes())

    def save(self) -> None:
        """Write both files, for Kafka's tools and the next opening."""
        self._store()
        self.forget()

    def _store(self) -> None:
        """Append the entries in memory to the files."""
        offset_file = self.handles.file(self.offset_path, create=True)
        _write_end(offset_file, self.stored_offsets * _OFFSET.size, self.offset_bytes())
        time_file = self.handles.file(self.time_path, create=True)
        _write_end(time_file, self.stored_times * _TIME.size, self.time_bytes())
        self.stored_offsets += len(self.offsets)
        self.stored_times += len(self.times)
        self.offsets, self.positions, self.times, self.time_offsets = array("i"), array("i"), array("q"), array("i")

    def forget(self) -> None:
        """Close the files."""
        self.handles.forget(self.offset_path)
        self.handles.forget(self.time_path)

    def cut(self, position: int) -> None:
        """Drop the entries from `position` on. The caller then adds the batches after the last remaining entry again."""
        self._load_into_memory()
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
        """Remove both files, which have entries of the cut part."""
        self.forget()
        for path in (self.offset_path, self.time_path):
            with contextlib.suppress(OSError):  # a remaining file is harmless, since entries are checked before use
                if self.handles.disk.exists(path):
                    self.handles.disk.remove(path)

    def _load_into_memory(self) -> None:
        """Read all stored entries into memory; unreadable ones are dropped."""
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
        values = array("i", bytes(8 * len(self.offsets)))
        values[::2], values[1::2] = self.offsets, self.positions
        if LITTLE_ENDIAN:
            values.byteswap()
        return values.tobytes()

    def time_bytes(self) -> bytes:
        stamps, numbers = array("q", self.times), array("i", self.time_offsets)
        if LITTLE_ENDIAN:
            stamps.byteswap()
            numbers.byteswap()
        halves = array("i", stamps.tobytes())  # an entry has three words: two of the timestamp, and the offset
        words = array("i", bytes(12 * len(numbers)))
        words[::3], words[1::3], words[2::3] = halves[::2], halves[1::2], numbers
        return words.tobytes()


def _write_end(file: File, at: int, data: bytes) -> None:
    """Make the file end with `data`, at position `at`. Do nothing if it already does, since truncating may wait for the disk."""
    size = file.size()
    if size == at + len(data) and file.read(at, len(data)) == data:
        return
    if size > at:
        file.truncate(at)
    file.write(at, data)


def _from_big_endian(code: str, data: bytes) -> array[int]:
    values = array(code, data)
    if LITTLE_ENDIAN:
        values.byteswap()
    return values


def _checked_ranges(count: int, size: int) -> list[tuple[int, int]]:
    if count * size <= CHECKED_BYTES:
        return [(0, count)] if count else []
    return [(0, BLOCK_ENTRIES), (count - BLOCK_ENTRIES, count)]


def _ascends(values: array[int], floor: int, strictly: bool = True) -> bool:
    """Whether the values, at least one, ascend and are above `floor`."""
    if not strictly:
        return values[0] > floor and not any(map(lt, values[1:], values))
    return values[0] > floor and all(map(lt, values, values[1:]))
