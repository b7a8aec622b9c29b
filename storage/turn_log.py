"""What a turn appended to many logs, once more in one file: to flush that takes as long as to flush one of them.

The logs themselves are flushed when the file has grown, and then it is removed. After a crash each log takes from here what
it lacks at its end. A turn is a checksum and a size, and for each log the sizes of its name and of its batch, and both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from struct import Struct
from typing import TYPE_CHECKING, Final

import google_crc32c

from protocol.batch import read_header
from storage.disk import Disk, File

if TYPE_CHECKING:
    from storage.log import Log

PREFIX: Final = "turns."  # and a number: of two files the one with the smaller number was written first

_TURN: Final = Struct(">II")  # checksum of what follows the two, and how much that is
_APPENDED: Final = Struct(">HI")
_crc32c: Final = google_crc32c.value


def written(appended: Iterable[tuple[str, bytes | bytearray]]) -> bytes:
    """One turn: the names of the logs, and what was appended to each."""
    parts: list[bytes | bytearray] = []
    for name, batch in appended:
        named = name.encode()
        parts += (_APPENDED.pack(len(named), len(batch)), named, batch)
    body = b"".join(parts)
    return _TURN.pack(_crc32c(body), len(body)) + body


class TurnLog:
    """The file that grows. `write` and `remove` may run in any thread, one of them at a time."""

    def __init__(self, disk: Disk, folder: str, number: int) -> None:
        self.size = 0
        self._disk = disk
        self._folder = folder
        self._path = f"{folder}/{PREFIX}{number}"
        self._file: File | None = None

    def write(self, turn: bytes) -> None:
        """Put it behind the others, safely. OSError: nobody may rely on it, and nothing may be put behind it."""
        if self._file is None:
            self._file = self._disk.open(self._path, create=True)
            self._disk.sync_folder(self._folder)
        try:
            self._file.write(self.size, turn)
            self._file.sync()
        except OSError:
            with contextlib.suppress(OSError):
                self._file.truncate(self.size)
            raise
        self.size += len(turn)

    def remove(self) -> None:
        """All logs are flushed."""
        self.close()
        if self._disk.exists(self._path):
            self._disk.remove(self._path)
            self._disk.sync_folder(self._folder)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class Leftover:
    """What a process that did not stop in order left, by log; raises OSError as the disk does.

    Logs may take what is theirs in several threads.
    """

    def __init__(self, disk: Disk, folder: str) -> None:
        self.numbers = sorted(int(name[len(PREFIX) :]) for name in disk.list(folder) if is_turn_log(name))
        self._batches: dict[str, list[bytes]] = {}
        for number in self.numbers:
            file = disk.open(f"{folder}/{PREFIX}{number}")
            try:
                self._read(file.read(0, file.size()))
            finally:
                file.close()

    def _read(self, data: bytes) -> None:
        """Up to a turn that is not whole: nobody was told of that."""
        at = 0
        while at + _TURN.size <= len(data):
            checksum, size = _TURN.unpack_from(data, at)
            at += _TURN.size
            end = at + size
            if end > len(data) or _crc32c(data[at:end]) != checksum:
                return
            while at < end:
                name_size, batch_size = _APPENDED.unpack_from(data, at)
                at += _APPENDED.size
                name = data[at : at + name_size].decode()
                at += name_size + batch_size
                self._add(name, data[at - batch_size : at])

    def _add(self, name: str, batch: bytes) -> None:
        """What was cut off a log, and nobody was told of, has another batch in its place."""
        batches = self._batches.setdefault(name, [])
        base = read_header(batch, 0).base_offset
        while batches and read_header(batches[-1], 0).base_offset >= base:
            batches.pop()
        batches.append(batch)

    def restore(self, name: str, log: Log) -> int:
        """Complete the log of this name, which was just opened, and flush it; how many batches it lacked."""
        lacking = sum([log.restore(batch) for batch in self.batches_of(name)])
        if lacking:
            log.flush()
        self._batches.pop(name, None)
        return lacking

    def batches_of(self, name: str) -> list[bytes]:
        """As they were appended to the log of this name, in their order."""
        return self._batches.get(name, [])

    @property
    def used_up(self) -> bool:
        return not self._batches


def is_turn_log(name: str) -> bool:
    number = name.removeprefix(PREFIX)
    return number != name and number.isascii() and number.isdigit()
