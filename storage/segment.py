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
from storage.index import Index

CHUNK_BYTES: Final = 1 << 20  # what is read in one go, unless it is said otherwise
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
        self.append(batch, header.base_offset, header.last_offset, newest_record(header), header.leader_epoch)

    def note(self, header: BatchHeader) -> None:
        """Count a batch that stands at the end of the good part."""
        self._note(header.size, header.base_offset, header.last_offset, newest_record(header), header.leader_epoch)

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
            header = self.header_named(position, last_offset) if position > begin else None
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
        while position > 0 and self.header_named(position, last_offset) is None:
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

    def header_named(self, position: int, last_offset: int) -> BatchHeader | None:
        """The header of the batch that begins at `position` and ends in `last_offset`, if there is one."""
        try:
            header = read_header(self.file.read(position, HEADER_BYTES), 0)
        except CorruptBatch:
            return None
        return header if header.last_offset == last_offset else None

    def damaged_at(self, reason: str) -> DamagedLog:
        return DamagedLog(self.log_path, self.size, reason)

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


def newest_record(header: BatchHeader) -> int:
    """The largest timestamp of its records; -1 for a batch that a compaction has emptied, whose header keeps the old one."""
    return header.max_timestamp if header.record_count else -1
