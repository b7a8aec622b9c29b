"""The format of a turn log, `turns.N`: the batches that a turn of the event loop appended to many logs.

A file begins with a header: format version, number of the previous file, and that file's acknowledged bytes. A turn is a
head (its number in the file, sizes, checksums), a directory, and the batches. For each batch the directory has the log's name,
offsets, size and checksum. For each log in earlier turns of the file it has a checksum of the log's name and the log's end offset:
so a turn shows which logs an unreadable turn before it contained.

Files without a header are of the first version. A turn is then a checksum and a size, and for each log the sizes of name and
batch, the name, and the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

import google_crc32c

from protocol.batch import HEADER_BYTES, read_header
from storage.tearing import has_unwritten

MAGIC: Final = b"TnTL"
TURN: Final = b"TnTn"
VERSION: Final = 1

_FILE: Final = Struct(">4sHIQ")  # magic, version, number of the previous file, its acknowledged bytes
_HEAD: Final = Struct(">4sIIII")  # magic, number of the turn, size of directory, size of batches, checksum of directory
_CHECKSUM: Final = Struct(">I")  # follows _FILE and _HEAD
_COUNTS: Final = Struct(">HH")
_ENTRY: Final = Struct(">HIIqq")  # sizes of name and batch, checksum of the batch, base offset, next offset
_BEFORE: Final = Struct(">Iq")
_FIRST_VERSION_TURN: Final = Struct(">II")
_FIRST_VERSION_ENTRY: Final = Struct(">HI")
FILE_BYTES: Final = _FILE.size + _CHECKSUM.size
HEAD_BYTES: Final = _HEAD.size + _CHECKSUM.size
_MAGIC_IN_BATCH: Final = 16
_crc32c: Final = google_crc32c.value

AppendedBatch = tuple[str, bytes | bytearray, int, int]  # name of a log, a batch, its base offset, next offset
Ends = dict[int, int]  # checksum of a log's name -> end offset of the log


class NewerTurns(Exception):
    """A newer version wrote the file."""


class StoredBatch(NamedTuple):
    """One batch of a turn; `batch` is None if its bytes are damaged."""

    name: str
    base: int
    end: int
    batch: bytes | None
    position: int


class LostTurns(NamedTuple):
    """Unreadable turns. `ends`: end offsets of the logs that may have batches in them; None: unknown."""

    position: int
    size: int
    reason: str
    ends: Ends | None


class TurnFile(NamedTuple):
    pieces: list[StoredBatch | LostTurns]
    torn_bytes: int  # of an interrupted write at the end
    before_ends: Ends | None  # end offsets of the logs in the previous file; None: unknown


def name_checksum(name: str) -> int:
    return int(_crc32c(name.encode()))


def ends_of(entries: Sequence[AppendedBatch]) -> Ends:
    return {name_checksum(name): end for name, _, _, end in entries}


# Writing.


def file_header(before: int, before_bytes: int) -> bytes:
    header = _FILE.pack(MAGIC, VERSION, before, before_bytes)
    return header + _CHECKSUM.pack(_crc32c(header))


def turn_bytes(number: int, entries: Sequence[AppendedBatch], before: Ends) -> bytes:
    directory: list[bytes] = [_COUNTS.pack(len(entries), len(before))]
    batches: list[bytes] = []
    size = 0
    for name, batch, base, end in entries:
        name_bytes, stored = name.encode(), bytes(batch)
        directory += (_ENTRY.pack(len(name_bytes), len(stored), _crc32c(stored), base, end), name_bytes)
        batches.append(stored)
        size += len(stored)
    directory += [_BEFORE.pack(log, end) for log, end in before.items()]
    directory_bytes = b"".join(directory)
    head = _HEAD.pack(TURN, number, len(directory_bytes), size, _crc32c(directory_bytes))
    return b"".join((head, _CHECKSUM.pack(_crc32c(head)), directory_bytes, *batches))


# Reading.


def header_of(data: bytes) -> tuple[int, int] | None:
    """Number of the previous file, and its acknowledged bytes; None without a sound header. Raises NewerTurns."""
    if len(data) < FILE_BYTES:
        return None
    magic, version, before, before_bytes = _FILE.unpack_from(data)
    if magic != MAGIC or _CHECKSUM.unpack_from(data, _FILE.size)[0] != _crc32c(data[: _FILE.size]):
        return None
    if version > VERSION:
        raise NewerTurns(f"it has version {version} and this version reads up to {VERSION}")
    return before, before_bytes


def read_turns(data: bytes, acknowledged: int = -1) -> TurnFile:
    """Read a file. `acknowledged`: its acknowledged bytes, as a later file records them; -1: unknown, so the last write may be incomplete."""
    reader = _Reader(data, acknowledged)
    # A file whose header is damaged is not of the first version if a later file records its size, or if `find` finds a turn in it.
    if acknowledged >= 0 or data.startswith(MAGIC) or reader.find(0) >= 0:
        return reader.read(FILE_BYTES)
    return _FirstVersion(data).read()


class _Head(NamedTuple):
    number: int
    directory_bytes: int
    batch_bytes: int
    checksum: int

    @property
    def size(self) -> int:
        return HEAD_BYTES + self.directory_bytes + self.batch_bytes


class _Reader:
    def __init__(self, data: bytes, acknowledged: int) -> None:
        self.data = data if acknowledged < 0 else data[:acknowledged]
        self.may_be_torn = acknowledged < 0
        self.end = len(self.data)
        self.missing = max(acknowledged - len(data), 0)  # bytes missing at the end
        self.pieces: list[StoredBatch | LostTurns] = []
        self.number = 1  # of the next turn
        self.before_ends: Ends | None = None
        self._unknown: LostTurns | None = None  # unreadable bytes before the next turn

    def read(self, at: int) -> TurnFile:
        torn = self._read(min(at, len(self.data)))
        if self._unknown is not None:
            self.pieces.append(self._unknown)
        if self.missing:
            self.pieces.append(LostTurns(len(self.data), self.missing, f"{self.missing} bytes are missing at the end", None))
        return TurnFile(self.pieces, torn, self.before_ends)

    def _read(self, at: int) -> int:
        """Read every turn from `at` on; return the number of torn bytes at the end."""
        while at < self.end:
            head = self.head(at)
            if head is None:
                following = self.find(at)
                if following < 0:
                    if self.may_be_torn and (self.end - at < HEAD_BYTES or has_unwritten(self.data[at:], at)):
                        return self.end - at
                    following = self.end
                self._lost(at, following - at, "no turn begins there")
                at = following
                continue
            stop = at + head.size
            if self.may_be_torn and stop > self.end:
                return self.end - at
            if not self._turn(at, head):
                return self.end - at
            self.number = head.number + 1
            at = stop
        return 0

    def head(self, at: int) -> _Head | None:
        if self.end - at < HEAD_BYTES:
            return None
        magic, number, directory_bytes, batch_bytes, checksum = _HEAD.unpack_from(self.data, at)
        sound = magic == TURN and number >= self.number
        if not sound or _CHECKSUM.unpack_from(self.data, at + _HEAD.size)[0] != _crc32c(self.data[at : at + _HEAD.size]):
            return None
        return _Head(number, directory_bytes, batch_bytes, checksum)

    def find(self, at: int) -> int:
        """The position of the next turn, -1 for none."""
        while (at := self.data.find(TURN, at)) >= 0 and self.head(at) is None:
            at += 1
        return at

    def _turn(self, at: int, head: _Head) -> bool:
        """Collect the batches of a turn. False: its write was interrupted."""
        first = at + HEAD_BYTES + head.directory_bytes
        stop = at + head.size
        directory = self.data[at + HEAD_BYTES : min(first, self.end)]
        if len(directory) < head.directory_bytes or _crc32c(directory) != head.checksum:
            if self._is_torn(at, stop):
                return False
            self._lost(at, min(stop, self.end) - at, "its directory has a wrong checksum")
            return True
        batches, before = _read_batches(self.data, directory, first)
        if any(stored.batch is None for stored in batches) and self._is_torn(at, stop):
            return False
        if head.number == 1:
            self.before_ends = before
        if self._unknown is not None:
            self.pieces.append(self._unknown._replace(ends=before))
            self._unknown = None
        self.pieces += batches
        return True

    def _is_torn(self, at: int, stop: int) -> bool:
        """Whether this is the last turn and only partly written."""
        return self.may_be_torn and self._unwritten(stop) and has_unwritten(self.data[at:], at)

    def _unwritten(self, at: int) -> bool:
        return not self.data[at:].strip(b"\0")

    def _lost(self, at: int, size: int, reason: str) -> None:
        if self._unknown is not None:
            at, size, reason = self._unknown.position, size + self._unknown.size, self._unknown.reason
        self._unknown = LostTurns(at, size, reason, None)


def _read_batches(data: bytes, directory: bytes, at: int) -> tuple[list[StoredBatch], Ends]:
    """The batches of a turn, which begin at `at`, and the end offsets of the logs in earlier turns, both according to the turn's directory."""
    count, before_count = _COUNTS.unpack_from(directory)
    where = _COUNTS.size
    batches: list[StoredBatch] = []
    for _ in range(count):
        name_bytes, batch_bytes, checksum, base, end = _ENTRY.unpack_from(directory, where)
        where += _ENTRY.size + name_bytes
        batch = data[at : at + batch_bytes]
        sound = len(batch) == batch_bytes and _crc32c(batch) == checksum
        batches.append(StoredBatch(directory[where - name_bytes : where].decode(), base, end, batch if sound else None, at))
        at += batch_bytes
    before: Ends = dict(_BEFORE.iter_unpack(directory[where : where + before_count * _BEFORE.size]))
    return batches, before


class _FirstVersion:
    """Reads a file of the first version, which has no header."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self) -> TurnFile:
        pieces: list[StoredBatch | LostTurns] = []
        at, end = 0, len(self.data)
        while at < end:
            stop = self._turn(at)
            if stop:
                pieces += self._read_batches(at, stop)
                at = stop
                continue
            following = at + 1
            while following < end and not self._turn(following):
                following += 1
            if following >= end and self._is_torn(at):
                return TurnFile(pieces, end - at, None)
            pieces.append(LostTurns(at, following - at, "a turn has a wrong checksum", None))
            at = following
        return TurnFile(pieces, 0, None)

    def _turn(self, at: int) -> int:
        """The end of the turn at this position, 0 for none."""
        data = self.data
        begin = at + _FIRST_VERSION_TURN.size
        if len(data) - begin < _FIRST_VERSION_ENTRY.size + HEADER_BYTES:
            return 0
        checksum, size = _FIRST_VERSION_TURN.unpack_from(data, at)
        stop = begin + size
        if stop > len(data):
            return 0
        name_bytes, batch_bytes = _FIRST_VERSION_ENTRY.unpack_from(data, begin)
        batch = begin + _FIRST_VERSION_ENTRY.size + name_bytes
        if not name_bytes or batch + batch_bytes > stop or batch_bytes < HEADER_BYTES or data[batch + _MAGIC_IN_BATCH] != 2:
            return 0
        return stop if _crc32c(data[begin:stop]) == checksum else 0

    def _read_batches(self, at: int, stop: int) -> list[StoredBatch]:
        batches: list[StoredBatch] = []
        at += _FIRST_VERSION_TURN.size
        while at < stop:
            name_bytes, batch_bytes = _FIRST_VERSION_ENTRY.unpack_from(self.data, at)
            at += _FIRST_VERSION_ENTRY.size + name_bytes
            header = read_header(self.data, at)
            name = self.data[at - name_bytes : at].decode()
            batches.append(StoredBatch(name, header.base_offset, header.next_offset, self.data[at : at + batch_bytes], at))
            at += batch_bytes
        return batches

    def _is_torn(self, at: int) -> bool:
        data = self.data[at:]
        begin = _FIRST_VERSION_TURN.size
        if len(data) < begin or has_unwritten(data, at):
            return True
        checksum, size = _FIRST_VERSION_TURN.unpack_from(data)
        # If the checksum of the remaining bytes is right, the turn is complete, and only its size is damaged.
        return bool(begin + size > len(data) and _crc32c(data[begin:]) != checksum)
