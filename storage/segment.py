"""One segment: a file of consecutive batches, named by its base offset."""

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

CHUNK_BYTES: Final = 1 << 20  # default size of one read
FACT_BYTES: Final = 1 << 18  # decoded to facts in one go: some 2000 small records, a few milliseconds
LOOK_BYTES: Final = 8_192  # one read of a lookup: two index intervals
PART_BYTES: Final = 65_536  # a larger read may end up to an index interval before its limit
PLACES_MAX: Final = 16  # cached positions of readers, which save the lookup
NAME_DIGITS: Final = 20

_PLACE: Final = Struct(">qi4xb6xi")  # base offset, length, magic, last offset delta


def segment_name(base: int) -> str:
    return f"{base:0{NAME_DIGITS}d}"


def segment_bases(disk: Disk, folder: str) -> list[int]:
    """The base offsets of the folder's segments, sorted; other files are ignored."""
    names = [name for name in disk.list(folder) if len(name) == NAME_DIGITS + 4 and name.endswith(".log")]
    return sorted(int(name[:NAME_DIGITS]) for name in names if name.isascii() and name[:NAME_DIGITS].isdigit())


class Segment:
    """The sound part of a segment: `size` bytes that end before `next_offset`."""

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
        self.suffix = suffix  # of its file names, until it is part of a log
        self.folder = folder
        self.path = f"{folder}/{segment_name(base)}"  # without `.log`
        self.log_path = f"{self.path}.log{suffix}"
        self.size = 0
        self.next_offset = base
        self.max_timestamp = -1  # newest record time, and the last offset of its batch
        self.max_timestamp_offset = base
        self.first_timestamp = -2  # not read yet
        self.epoch = -1  # the newest leader epoch, and its first offset here
        self.epoch_start = base
        self.index = Index(handles, self.path, suffix, base)
        self.index_saved = False
        self.unsynced = False
        self.verified = True  # this process computed or verified every checksum
        self.places: dict[int, int] = {}  # next offset -> position, where recent reads ended
        self.readers = 0
        self.kept: File | None = None  # the open file after a rename or removal, for its readers

    def use(self, handles: Handles) -> None:
        self.handles = self.index.handles = handles

    def rename(self, suffix: str) -> None:
        """Take the new suffix of its renamed files."""
        self.suffix = self.index.suffix = suffix
        self.log_path = f"{self.path}.log{suffix}"

    @property
    def file(self) -> File:
        """The open file, valid until the next call of the handles."""
        return self.kept or self.handles.file(self.log_path)

    @property
    def descriptor(self) -> int:
        return self.file.descriptor

    def hold(self) -> None:
        """Begin reading: the file stays readable until `let_go`, even if it is removed."""
        self.readers += 1

    def let_go(self) -> None:
        self.readers -= 1
        if not self.readers and self.kept is not None:
            self.handles.unpin(self.kept)
            self.kept = None

    def keep_for_readers(self) -> None:
        """Keep the file open for readers; call it before a rename or removal."""
        if self.readers and self.kept is None:
            self.kept = self.handles.pin(self.log_path)

    def append(self, batch: bytes | bytearray, base_offset: int, last_offset: int, max_timestamp: int, epoch: int) -> None:
        """Write one batch at the end. On OSError the partial batch is cut off, if possible."""
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
        """As `append`, for a stamped batch with this header."""
        self.append(batch, header.base_offset, header.last_offset, newest_record(header), header.leader_epoch)

    def note(self, header: BatchHeader) -> None:
        """Extend the sound part by the batch that follows it in the file."""
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
        """Each batch between two positions: its header, a chunk with it, and its position in the chunk. Raises CorruptBatch.

        Batches that were read together share the chunk object, which begins with the first of them.
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
        """Read exactly `size` bytes; raises CorruptBatch if the file has fewer."""
        data = self.file.read(at, size)
        if len(data) < size:
            raise CorruptBatch("the file is shorter than it was")
        return data

    def chunks(self, offset: int, end: int) -> Iterator[bytes]:
        """Whole batches from the one with `offset` on that end before `end`, about a MiB at a time.

        Bytes that this process has neither written nor verified are verified. Raises DamagedLog.
        """
        verify = not self.verified
        begin = at = self.position_from(offset)
        last = self.base - 1
        current, behind = b"", 0  # the last chunk, and how many of its bytes are to be yielded
        try:
            for header, chunk, where in self.batches(at, self.size, verify):
                # The checksum does not cover the offset: a wrong one must not be taken for the end.
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
        """The facts of all batches that end before `end`, in parts; verified as in `chunks`."""
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
        """The position of the batch with `offset`, or of the next one; the end of the sound part if there is none."""
        if offset >= self.next_offset:
            return self.size
        known = self.places.get(offset)
        if known is not None:
            return known
        if offset <= self.base:
            return 0  # not checked: a reader from the start sees a wrong offset itself
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
                        read_header(chunk, where)  # raises with the reason
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
        """Whole batches from the one with `offset` on that end before `end`: as many as fit, at least one."""
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
        """Whole batches up to position `behind`; a large read ends at an index entry, so that it needs one read call."""
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
        """Cache the position of `offset`, since a reader that stopped there continues there."""
        places = self.places
        if len(places) >= PLACES_MAX and offset not in places:
            del places[next(iter(places))]
        places[offset] = position

    def near(self, offset: int) -> int:
        """The position to begin a search for `offset`; further back if the index entry leads to no such batch."""
        position, last_offset = self.index.entry_for(offset)
        back = PART_BYTES
        while position > 0 and self.header_named(position, last_offset) is None:
            position, last_offset = self.index.before(position - back)
            back *= 4
        return position

    def header_at(self, position: int) -> BatchHeader | None:
        """The header of the batch at `position`; None if there is none."""
        if self.size - position < HEADER_BYTES:
            return None
        try:
            return read_header(self.file.read(position, HEADER_BYTES), 0)
        except CorruptBatch:
            return None

    def header_named(self, position: int, last_offset: int) -> BatchHeader | None:
        """The header of the batch at `position` if its last offset is `last_offset`, else None."""
        try:
            header = read_header(self.file.read(position, HEADER_BYTES), 0)
        except CorruptBatch:
            return None
        return header if header.last_offset == last_offset else None

    def damaged_at(self, reason: str) -> DamagedLog:
        return DamagedLog(self.log_path, self.size, reason)

    def save_index(self) -> None:
        """Write both index files if they changed, for Kafka's tools and the next opening."""
        if self.index_saved:
            return
        self.index.add_time(self.max_timestamp, self.max_timestamp_offset)
        self.index.save()
        self.index_saved = True

    def close(self) -> None:
        self.handles.forget(self.log_path)
        self.index.forget()


def newest_record(header: BatchHeader) -> int:
    """The newest timestamp of its records; -1 for a batch emptied by a compaction, whose header keeps the old one."""
    return header.max_timestamp if header.record_count else -1
