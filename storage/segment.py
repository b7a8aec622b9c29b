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
FACT_BYTES: Final = 1 << 18  # decoded to facts in one step: about 2000 small records, a few milliseconds
LOOKUP_BYTES: Final = 8_192  # one read of a lookup: two index intervals
LARGE_READ_BYTES: Final = 65_536  # a read of this size or more may end at an index entry, up to an index interval before its limit
POSITIONS_MAX: Final = 16  # cached positions of readers, which save the lookup
NAME_DIGITS: Final = 20

_PLACE: Final = Struct(">qi4xb6xi")  # base offset, length, magic, last offset delta


def segment_name(base: int) -> str:
    return f"{base:0{NAME_DIGITS}d}"


def segment_bases(disk: Disk, folder: str) -> list[int]:
    """The base offsets of the folder's segments, sorted; other files are ignored."""
    names = [name for name in disk.list(folder) if len(name) == NAME_DIGITS + 4 and name.endswith(".log")]
    return sorted(int(name[:NAME_DIGITS]) for name in names if name.isascii() and name[:NAME_DIGITS].isdigit())


def may_have_segments(disk: Disk, folder: str) -> bool:
    """Whether the folder has segments, also those of an unfinished compaction or deletion. True for a folder that cannot be listed."""
    try:
        return any(".log" in name for name in disk.list(folder))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


class Segment:
    """The sound part of a segment's file: its first `size` bytes, with the batches before `next_offset`."""

    __slots__ = (
        "base",
        "epoch",
        "epoch_start",
        "first_timestamp",
        "folder",
        "handles",
        "index",
        "index_saved",
        "kept_file",
        "log_path",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "path",
        "positions",
        "readers",
        "size",
        "suffix",
        "unsynced",
        "verified",
    )

    def __init__(self, handles: Handles, folder: str, base: int, suffix: str = "") -> None:
        self.handles = handles
        self.base = base
        self.suffix = suffix  # ending of the file names, for example .cleaned; "" for a segment in the log
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
        self.positions: dict[int, int] = {}  # where recent reads ended: next offset -> position
        self.readers = 0
        self.kept_file: File | None = None  # the open file after a rename or removal, for its readers

    def use(self, handles: Handles) -> None:
        self.handles = self.index.handles = handles

    def rename(self, suffix: str) -> None:
        """Note the new suffix, after the files were renamed."""
        self.suffix = self.index.suffix = suffix
        self.log_path = f"{self.path}.log{suffix}"

    @property
    def file(self) -> File:
        """The open file, valid until the next call of the handles."""
        return self.kept_file or self.handles.file(self.log_path)

    @property
    def descriptor(self) -> int:
        return self.file.descriptor

    def pin(self) -> None:
        """Begin reading: the file stays readable until `unpin`, even if it is removed."""
        self.readers += 1

    def unpin(self) -> None:
        self.readers -= 1
        if not self.readers and self.kept_file is not None:
            self.handles.unpin(self.kept_file)
            self.kept_file = None

    def keep_for_readers(self) -> None:
        """Keep the file open for readers; call it before a rename or removal."""
        if self.readers and self.kept_file is None:
            self.kept_file = self.handles.pin(self.log_path)

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
        self._extend(len(batch), base_offset, last_offset, max_timestamp, epoch)

    def append_stamped(self, batch: bytes, header: BatchHeader) -> None:
        """Write one batch that already has its offset and epoch, and this header."""
        self.append(batch, header.base_offset, header.last_offset, newest_record_timestamp(header), header.leader_epoch)

    def extend(self, header: BatchHeader) -> None:
        """Add the next batch in the file to the sound part."""
        self._extend(header.size, header.base_offset, header.last_offset, newest_record_timestamp(header), header.leader_epoch)

    def _extend(self, size: int, base_offset: int, last_offset: int, max_timestamp: int, epoch: int) -> None:
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
        """Each batch between two positions: its header, the chunk that contains it, and its position in the chunk. Raises CorruptBatch.

        Batches of one read share the chunk object, which begins with the first of them.
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
        """The batches from the one that contains `offset` up to offset `end`, in chunks of about a MiB.

        Checksums are verified, unless this process has written or verified the whole segment. Raises DamagedLog.
        """
        verify = not self.verified
        begin = at = self.position_from(offset)
        last = self.base - 1
        current, current_end = b"", 0  # the last chunk, and the end of the batches in it that are not yielded yet
        try:
            for header, chunk, where in self.batches(at, self.size, verify):
                # The checksum does not cover the offset: a wrong offset must not end the iteration as if it were after `end`.
                if header.base_offset <= last or header.last_offset >= self.next_offset:
                    raise CorruptBatch(f"offset {header.base_offset} between {last} and {self.next_offset}")
                last = header.last_offset
                if last >= end:
                    break
                if chunk is not current:
                    if current_end:
                        yield current[:current_end]
                    current = chunk
                current_end = where + header.size
                at += header.size
        except CorruptBatch as error:
            if current_end:
                yield current[:current_end]
            raise DamagedLog(self.log_path, at, str(error)) from error
        if current_end:
            yield current[:current_end]
        if begin == 0 and at == self.size:
            self.verified = True

    def facts(self, end: int) -> Iterator[list[Fact]]:
        """Key and value of every record in the batches up to offset `end`, in lists; checksums are verified as in `chunks`."""
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
        """The position of the batch with `offset`, or of the next batch; the end of the sound part if there is none."""
        if offset >= self.next_offset:
            return self.size
        cached = self.positions.get(offset)
        if cached is not None:
            return cached
        if offset <= self.base:
            return 0  # the first batch is not checked here: a caller that reads it detects a wrong offset
        at = self.search_position(offset)
        unpack = _PLACE.unpack_from
        base: int
        length: int
        delta: int
        magic: int
        try:
            while at < self.size:
                chunk = self.bytes_at(at, min(LOOKUP_BYTES, self.size - at))
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
        """Whole batches from the one that contains `offset` up to offset `end`: about as many as fit into `bytes_max`, at least one."""
        begin = at = self.position_from(offset)
        stop = self.position_from(end)
        if begin >= stop:
            return b""
        try:
            limit = begin + max(bytes_max, HEADER_BYTES)
            if limit < stop:
                return self._read_part(begin, limit, stop)
            data = self.bytes_at(begin, stop - begin)
            read_header(data, 0)
            self.cache_position(min(end, self.next_offset), stop)
            return data
        except CorruptBatch as error:
            raise DamagedLog(self.log_path, at, str(error)) from error

    def _read_part(self, begin: int, limit: int, stop: int) -> bytes:
        """Whole batches up to position `limit`; a large read ends at an index entry, so that it needs one read call."""
        if limit - begin >= LARGE_READ_BYTES:
            position, last_offset = self.index.before(limit)
            header = self.header_with_last_offset(position, last_offset) if position > begin else None
            if header is not None:
                self.cache_position(header.base_offset, position)
                return self.bytes_at(begin, position - begin)
        data = self.bytes_at(begin, limit - begin)
        header = read_header(data, 0)
        if header.size > len(data):
            if begin + header.size > stop:
                raise CorruptBatch("a batch is cut short")
            self.cache_position(header.next_offset, begin + header.size)
            return self.bytes_at(begin, header.size)
        last = at = 0
        while len(data) - at >= HEADER_BYTES and (after := batch_end(data, at)) <= len(data):
            last, at = at, after
        self.cache_position(read_header(data, last).next_offset, begin + at)
        return data[:at]

    def cache_position(self, offset: int, position: int) -> None:
        """Cache the position of `offset`, since a reader that stopped there continues there."""
        positions = self.positions
        if len(positions) >= POSITIONS_MAX and offset not in positions:
            del positions[next(iter(positions))]
        positions[offset] = position

    def search_position(self, offset: int) -> int:
        """An indexed position at or before the batch with `offset`; index entries that do not match the batch at their position are skipped."""
        position, last_offset = self.index.entry_for(offset)
        back = LARGE_READ_BYTES
        while position > 0 and self.header_with_last_offset(position, last_offset) is None:
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

    def header_with_last_offset(self, position: int, last_offset: int) -> BatchHeader | None:
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


def newest_record_timestamp(header: BatchHeader) -> int:
    """The newest timestamp of the records; -1 without records: compaction leaves the timestamp of removed records in the header."""
    return header.max_timestamp if header.record_count else -1
