"""One segment file: batches one behind the other, named by the offset of its first record."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from protocol.batch import HEADER_BYTES, LENGTH_FROM, MAGIC, BatchHeader, CorruptBatch, Fact, batch_end, read_header, validate
from protocol.batch_facts import FactReader
from storage.disk import Disk, File
from storage.errors import DamagedLog
from storage.handles import Handles
from storage.index import RELATIVE_OFFSET_MAX, Index
from storage.verifying import CHUNK_BYTES, verify_all

FACT_BYTES: Final = 1 << 18  # what is turned into facts in one go: some 2000 small ones, a few milliseconds
LOOK_BYTES: Final = 8_192  # what a look-up reads at once: two index intervals, no chunk
PART_BYTES: Final = 65_536  # a read of more than this may be an index interval short of what it may be
PLACES_MAX: Final = 16  # readers of one segment that need no look-up
NAME_DIGITS: Final = 20

_PLACE: Final = Struct(">qi4xb6xi")  # base offset, length, magic, last offset delta


def segment_name(base: int) -> str:
    return f"{base:0{NAME_DIGITS}d}"


def segment_bases(disk: Disk, folder: str) -> list[int]:
    """In order; other names are none of ours."""
    names = [name for name in disk.list(folder) if len(name) == NAME_DIGITS + 4 and name.endswith(".log")]
    return sorted(int(name[:NAME_DIGITS]) for name in names if name.isascii() and name[:NAME_DIGITS].isdigit())


class Segment:
    """A segment as far as it is known to be good: `size` bytes that end before `next_offset`."""

    __slots__ = (
        "base",
        "epoch",
        "epoch_start",
        "first_timestamp",
        "folder",
        "handles",
        "index",
        "index_saved",
        "kept",
        "log_path",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "path",
        "places",
        "readers",
        "size",
        "suffix",
        "unsynced",
        "verified",
    )

    def __init__(self, handles: Handles, folder: str, base: int, suffix: str = "") -> None:
        self.handles = handles
        self.base = base
        self.suffix = suffix  # of its files' names, while it is no part of a log yet
        self.folder = folder
        self.path = f"{folder}/{segment_name(base)}"  # without its ending
        self.log_path = f"{self.path}.log{suffix}"
        self.size = 0
        self.next_offset = base
        self.max_timestamp = -1  # of its records, and the last offset of the batch that has it
        self.max_timestamp_offset = base
        self.first_timestamp = -2  # not looked for yet
        self.epoch = -1  # the newest among its batches, and the offset where that begins
        self.epoch_start = base
        self.index = Index(handles, self.path, suffix, base)
        self.index_saved = False
        self.unsynced = False
        self.verified = True  # every checksum was computed or seen to be right by this process
        self.places: dict[int, int] = {}  # where reads ended: offset and position behind their last batch
        self.readers = 0
        self.kept: File | None = None  # its own file, for those who were reading it then

    def use(self, handles: Handles) -> None:
        self.handles = self.index.handles = handles

    def rename(self, suffix: str) -> None:
        """Its files have another name now."""
        self.suffix = self.index.suffix = suffix
        self.log_path = f"{self.path}.log{suffix}"

    @property
    def file(self) -> File:
        """Good until the next call of the handles."""
        return self.kept or self.handles.file(self.log_path)

    def hold(self) -> None:
        """Somebody is going to read it, whatever becomes of its file."""
        self.readers += 1

    def let_go(self) -> None:
        self.readers -= 1
        if not self.readers and self.kept is not None:
            self.handles.unpin(self.kept)
            self.kept = None

    def keep_for_readers(self) -> None:
        """Before its file is renamed or removed: those who read it read on."""
        if self.readers and self.kept is None:
            self.kept = self.handles.pin(self.log_path)

    def append(self, batch: bytes | bytearray, base_offset: int, last_offset: int, max_timestamp: int, epoch: int) -> None:
        """Write one batch behind the others. When that fails the file is as before, or OSError comes from the cutting."""
        file = self.handles.file(self.log_path)
        self.unsynced = True
        try:
            file.write(self.size, batch)
        except OSError:
            file.truncate(self.size)
            raise
        self.index_saved = False
        self._note(len(batch), base_offset, last_offset, max_timestamp, epoch)

    def append_stamped(self, batch: bytes, header: BatchHeader) -> None:
        """The same for a batch that was in a log before, of which this is the header."""
        self.append(batch, header.base_offset, header.last_offset, _newest_record(header), header.leader_epoch)

    def note(self, header: BatchHeader) -> None:
        """Count a batch that stands at the end of the good part."""
        self._note(header.size, header.base_offset, header.last_offset, _newest_record(header), header.leader_epoch)

    def _note(self, size: int, base_offset: int, last_offset: int, max_timestamp: int, epoch: int) -> None:
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        self.index.add(last_offset, self.size, self.max_timestamp, self.max_timestamp_offset)
        if epoch > self.epoch:
            self.epoch = epoch
            self.epoch_start = base_offset
        self.size += size
        self.next_offset = last_offset + 1

    # Reading.

    def check(self, from_start: bool, believe_index: bool = True) -> str:
        """Read the file up to its end or the first batch that is none; why it stopped short, or "".

        From the start every checksum is verified. Otherwise headers alone are read, from the last place that the
        stored index knows. `believe_index`: its two files were written by a process that went on or stopped in order.
        """
        length = self.handles.file(self.log_path).size()
        stored = None if from_start else self._load_index(length, believe_index)
        self.verified = from_start
        try:
            reason = verify_all(self, length) if from_start else self._read_headers(length)
            if not reason and self.index.last_time > max(self.max_timestamp, 0):  # it has a time that no batch has
                self._begin_anew()
                reason = self._read_headers(length)
        except CorruptBatch as error:
            reason = str(error)
        index = self.index
        index.add_time(self.max_timestamp, self.max_timestamp_offset)
        self.index_saved = index is stored and not index.positions and not index.times
        return reason

    def _read_headers(self, length: int) -> str:
        for header, _, _ in self.batches(self.size, length, False):
            if header.base_offset < self.next_offset or header.last_offset < header.base_offset:
                return f"offset {header.base_offset} where at least {self.next_offset} must be"
            if header.last_offset - self.base > RELATIVE_OFFSET_MAX:
                return f"offset {header.last_offset} is too far from the segment's first, {self.base}"
            self.note(header)
        return ""

    def batches(self, at: int, end: int, verify: bool, chunk_bytes: int = CHUNK_BYTES) -> Iterator[tuple[BatchHeader, bytes, int]]:
        """Header of each batch in the file between two positions, and the bytes it is in and where; CorruptBatch where none is.

        The bytes are the same object for batches that were read together, and begin with the first of them.
        """
        chunk, chunk_at = b"", at
        while at < end:
            offset = at - chunk_at
            if len(chunk) - offset < HEADER_BYTES:
                chunk, chunk_at, offset = self.bytes_at(at, min(chunk_bytes, end - at)), at, 0
            header = read_header(chunk, offset)
            if header.size > end - at:
                raise CorruptBatch("a batch is cut short")
            if len(chunk) - offset < header.size:
                chunk, chunk_at, offset = self.bytes_at(at, max(min(chunk_bytes, end - at), header.size)), at, 0
            if verify:
                validate(chunk, offset, len(chunk))
            yield header, chunk, offset
            at += header.size

    def bytes_at(self, at: int, size: int) -> bytes:
        """CorruptBatch where the file does not have so many."""
        data = self.file.read(at, size)
        if len(data) < size:
            raise CorruptBatch("the file is shorter than it was")
        return data

    def chunks(self, offset: int, end: int) -> Iterator[bytes]:
        """Whole batches from the one that holds `offset` on, as far as they end before `end`, about a MiB at a time.

        What this process has not written or verified yet is verified; DamagedLog where it is not as it was written.
        """
        verify = not self.verified
        begin = at = self.position_from(offset)
        last = self.base - 1
        current, behind = b"", 0  # the bytes read last, of which so many are still to be handed out
        try:
            for header, chunk, where in self.batches(at, self.size, verify):
                # The checksum does not cover the offset: one that is wrong must not pass for the end.
                if header.base_offset <= last or header.last_offset >= self.next_offset:
                    raise CorruptBatch(f"offset {header.base_offset} between {last} and {self.next_offset}")
                last = header.last_offset
                if last >= end:
                    break
                if chunk is not current:
                    if behind:
                        yield current[:behind]
                    current = chunk
                behind = where + header.size
                at += header.size
        except CorruptBatch as error:
            if behind:
                yield current[:behind]
            raise DamagedLog(self.log_path, at, str(error)) from error
        if behind:
            yield current[:behind]
        if begin == 0 and at == self.size:
            self.verified = True

    def facts(self, end: int) -> Iterator[list[Fact]]:
        """Those of all batches that end before `end`, some at a time; verified and refused as `chunks` does."""
        reader = FactReader(self.base - 1, end, self.next_offset, not self.verified)
        at = 0
        stop = self.size
        size = FACT_BYTES
        try:
            while at < stop and not reader.ended:
                reader.used = 0
                data = self.bytes_at(at, min(size, stop - at))
                facts = reader.read(data)
                at += reader.used
                size = FACT_BYTES
                if reader.used:
                    yield facts
                else:
                    size = batch_end(data, 0)
                    if size > stop - at:
                        raise CorruptBatch("a batch is cut short")
        except CorruptBatch as error:
            raise DamagedLog(self.log_path, at + reader.used, str(error)) from error
        if at == self.size:
            self.verified = True

    def position_from(self, offset: int) -> int:
        """Where the first batch begins that ends at or behind `offset`; the end of the good part if there is none."""
        if offset >= self.next_offset:
            return self.size
        known = self.places.get(offset)
        if known is not None:
            return known
        if offset <= self.base:
            return 0  # whatever its first batch says now: who reads from the start on meets a wrong offset there
        at = self.near(offset)
        unpack = _PLACE.unpack_from
        base: int
        length: int
        delta: int
        magic: int
        try:
            while at < self.size:
                chunk = self.bytes_at(at, min(LOOK_BYTES, self.size - at))
                end = len(chunk)
                where = 0
                while end - where >= HEADER_BYTES:
                    base, length, magic, delta = unpack(chunk, where)
                    if magic != MAGIC or length < HEADER_BYTES - LENGTH_FROM:
                        at += where
                        read_header(chunk, where)  # says what is wrong
                    if base + delta >= offset:
                        return at + where
                    where += LENGTH_FROM + length
                at += where
                if not where or at > self.size:
                    raise CorruptBatch("a batch is cut short")
            raise CorruptBatch(f"no batch reaches offset {offset}, and {self.next_offset} is the next")
        except CorruptBatch as error:
            raise DamagedLog(self.log_path, at, str(error)) from error

    def read(self, offset: int, bytes_max: int, end: int) -> bytes:
        """Whole batches from the one that holds `offset` on, that end before `end`: as many as fit, but one at least."""
        begin = at = self.position_from(offset)
        stop = self.position_from(end)
        if begin >= stop:
            return b""
        try:
            behind = begin + max(bytes_max, HEADER_BYTES)
            if behind < stop:
                return self._read_part(begin, behind, stop)
            data = self.bytes_at(begin, stop - begin)
            read_header(data, 0)
            self.remember(min(end, self.next_offset), stop)
            return data
        except CorruptBatch as error:
            raise DamagedLog(self.log_path, at, str(error)) from error

    def _read_part(self, begin: int, behind: int, stop: int) -> bytes:
        """As many whole batches as are before `behind`; of many to within what the index knows, so that they are read once."""
        if behind - begin >= PART_BYTES:
            position, last_offset = self.index.before(behind)
            header = self._header_at(position, last_offset) if position > begin else None
            if header is not None:
                self.remember(header.base_offset, position)
                return self.bytes_at(begin, position - begin)
        data = self.bytes_at(begin, behind - begin)
        header = read_header(data, 0)
        if header.size > len(data):
            if begin + header.size > stop:
                raise CorruptBatch("a batch is cut short")
            self.remember(header.next_offset, begin + header.size)
            return self.bytes_at(begin, header.size)
        last = at = 0
        while len(data) - at >= HEADER_BYTES and (after := batch_end(data, at)) <= len(data):
            last, at = at, after
        self.remember(read_header(data, last).next_offset, begin + at)
        return data[:at]

    def remember(self, offset: int, position: int) -> None:
        """A batch that ends before `offset` ends at `position`: who read up to it asks for what is behind."""
        places = self.places
        if len(places) >= PLACES_MAX and offset not in places:
            del places[next(iter(places))]
        places[offset] = position

    def near(self, offset: int) -> int:
        """Where to begin reading for `offset`: further back where the index does not lead to the batch that it names."""
        position, last_offset = self.index.entry_for(offset)
        back = PART_BYTES
        while position > 0 and self._header_at(position, last_offset) is None:
            position, last_offset = self.index.before(position - back)
            back *= 4
        return position

    def header_at(self, position: int) -> BatchHeader | None:
        """The header of the batch that begins at `position`, if one does."""
        if self.size - position < HEADER_BYTES:
            return None
        try:
            return read_header(self.file.read(position, HEADER_BYTES), 0)
        except CorruptBatch:
            return None

    def _header_at(self, position: int, last_offset: int) -> BatchHeader | None:
        """The header of the batch that begins at `position` and ends in `last_offset`, if there is one."""
        try:
            header = read_header(self.file.read(position, HEADER_BYTES), 0)
        except CorruptBatch:
            return None
        return header if header.last_offset == last_offset else None

    def damaged_at(self, reason: str) -> DamagedLog:
        return DamagedLog(self.log_path, self.size, reason)

    # Changing what is there.

    def cut(self, position: int) -> None:
        """Forget and remove everything from `position` on; a batch begins there or the file ends."""
        file = self.handles.file(self.log_path)
        if file.size() != position:
            file.truncate(position)
            self.unsynced = True
        self.places.clear()
        self.index.cut(position)
        self._resume()
        try:
            for header, _, _ in self.batches(self.size, position, False):
                self.note(header)
        except CorruptBatch as error:
            raise self.damaged_at(str(error)) from error
        self.index_saved = False

    def _resume(self) -> None:
        """Go back to the last batch that the index names, or to the start."""
        position, last_offset = self.index.last_place()
        header = self._header_at(position, last_offset) if position else None
        if header is None:
            self._begin_anew()
        else:
            self.size, self.next_offset = position, header.base_offset
            self.max_timestamp, self.max_timestamp_offset = self.index.last_record_time()

    def _begin_anew(self) -> None:
        """Nothing is known, and the index is built again."""
        self.index = Index(self.handles, self.path, self.suffix, self.base)
        self.size, self.next_offset = 0, self.base
        self.max_timestamp, self.max_timestamp_offset = -1, self.base

    def _load_index(self, length: int, believe: bool) -> Index | None:
        """The stored index, if it makes sense; it is taken up as far as it leads to batches."""
        index = Index(self.handles, self.path, self.suffix, self.base)
        if not index.load(length):
            return None
        self.index = index
        self._resume()
        if self.size and not believe and not self._resume_at_newest():
            self._begin_anew()
        return index

    def _resume_at_newest(self) -> bool:
        """Go further back, to the batch that the time index has as the newest so far; whether it leads to one.

        Nobody waits until the index files are on the disk. After a power failure the offsets may be there and the times of
        the same batches may not: then the newest is among what is read from here on.
        """
        newest, offset = self.index.newest_before(self.next_offset)
        if newest < 0:
            return False
        try:
            position = self.position_from(offset)
        except DamagedLog:
            return False
        header = self.header_at(position)
        if header is None or not header.base_offset <= offset <= header.last_offset or _newest_record(header) != newest:
            return False
        self.size, self.next_offset = position, header.base_offset
        self.max_timestamp, self.max_timestamp_offset = newest, offset
        return True

    def save_index(self) -> None:
        """Both index files, where they are not as they should be: for Kafka's tools and the next opening."""
        if self.index_saved:
            return
        self.index.add_time(self.max_timestamp, self.max_timestamp_offset)
        self.index.save()
        self.index_saved = True

    def close(self) -> None:
        self.handles.forget(self.log_path)
        self.index.forget()


def _newest_record(header: BatchHeader) -> int:
    """The largest timestamp of its records; -1 for a batch that a compaction has emptied, whose header keeps the old one."""
    return header.max_timestamp if header.record_count else -1
