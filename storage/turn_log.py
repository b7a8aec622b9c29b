"""The turn log: a second copy of the batches that one event-loop turn appended to many logs, so that one flush makes all of them durable.

When the file has grown, the logs themselves are flushed and the file is removed. After a crash each log restores missing batches
from the file. A damaged file is kept, and a log opens only if it provably has all of its batches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from protocol.batch import read_header
from storage.disk import Disk, File
from storage.errors import DamagedTurns
from storage.turn_format import (
    AppendedBatch,
    Ends,
    LostTurns,
    StoredBatch,
    TurnFile,
    ends_of,
    file_header,
    header_of,
    name_checksum,
    read_turns,
    turn_bytes,
)

if TYPE_CHECKING:
    from storage.log import Log

PREFIX: Final = "turns."  # an ascending number follows


class TurnLog:
    """The open turn log. `write` and `remove` may run in any thread, one at a time."""

    def __init__(self, disk: Disk, folder: str, number: int, before: TurnLog | None = None) -> None:
        """`before`: the previous turn log of this process, already closed."""
        self.number = number
        self.size = 0  # acknowledged bytes
        self.ends: Ends = {}  # end offsets of the logs that have batches in the file
        self._disk = disk
        self._folder = folder
        self._path = f"{folder}/{PREFIX}{number}"
        self._file: File | None = None
        self._turns = 0
        self._before: Ends = {} if before is None else before.ends
        self._header = file_header(0, 0) if before is None or not before.size else file_header(before.number, before.size)

    def write(self, appended: Sequence[AppendedBatch]) -> None:
        """Append the batches of one turn and sync. After OSError the file is cut back, if the disk allows it; append nothing to it again."""
        if self._file is None:
            self._file = self._disk.open(self._path, create=True)
            self._disk.sync_folder(self._folder)
        self._turns += 1
        data = turn_bytes(self._turns, appended, self.ends if self.size else self._before)
        if not self.size:
            data = self._header + data
        try:
            self._file.write(self.size, data)
            self._file.sync()
        except OSError:
            with contextlib.suppress(OSError):
                self._file.truncate(self.size)
            raise
        self.size += len(data)
        self.ends.update(ends_of(appended))

    def remove(self) -> None:
        """Remove the file. All logs with batches in it must be flushed."""
        self.close()
        if self._disk.exists(self._path):
            self._disk.remove(self._path)
            self._disk.sync_folder(self._folder)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class TurnLogContents:
    """The contents of all turn logs of a data directory, by log. Raises NewerTurns."""

    def __init__(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Paths and contents, the oldest first."""
        self.damage: list[tuple[str, LostTurns | StoredBatch]] = []  # with the path of the file
        self.torn: list[tuple[str, int]] = []  # files with an interrupted write at the end, and its size
        self._logs: dict[str, list[_Entry]] = {}
        self._unknown: list[_Location] = []  # unreadable turns that may have batches of any log
        self._order = 0
        acknowledged: dict[int, int] = {}
        next_paths: dict[int, str] = {}  # number of a file -> path of the next
        for path, data in files:
            before, size = header_of(data) or (0, 0)
            if before:
                acknowledged[before], next_paths[before] = size, path
        turn_files = {path: read_turns(data, acknowledged.get(number_of(path), -1)) for path, data in files}
        for path, file in turn_files.items():
            following = turn_files.get(next_paths.get(number_of(path), ""))
            self._add_file(path, file, following.before_ends if following is not None else None)

    def _add_file(self, path: str, file: TurnFile, ends: Ends | None) -> None:
        """Add one file. `ends`: end offsets of its logs, if the next file has them."""
        if file.torn_bytes:
            self.torn.append((path, file.torn_bytes))
        for piece in file.pieces:
            self._order += 1
            location = _Location(self._order, path, piece.position)
            if isinstance(piece, StoredBatch):
                if piece.batch is None:
                    self.damage.append((path, piece))
                self._add(piece.name, _Entry(location, piece.base, piece.end, piece.batch))
                continue
            self.damage.append((path, piece))
            lost_ends = piece.ends if piece.ends is not None else ends
            if lost_ends is None:
                self._unknown.append(location)
            else:
                for checksum, end in lost_ends.items():
                    self._logs.setdefault(_lost_key(checksum), []).append(_Entry(location, -1, end, None))

    def _add(self, name: str, entry: _Entry) -> None:
        """Add a batch. It replaces batches at the same or later offsets: a repair of the log cut off such batches before they were acknowledged."""
        known = self._logs.setdefault(name, [])
        while known and known[-1].base >= entry.base:
            known.pop()
        known.append(entry)

    def _all_entries_of(self, name: str) -> list[_Entry]:
        lost = self._logs.get(_lost_key(name_checksum(name)), [])
        return sorted([*self._logs.get(name, []), *lost], key=_order_of)

    def missing_batches(self, name: str, next_offset: int) -> list[bytes]:
        """The batches that a log with this `next_offset` lacks at its end.

        Raises DamagedTurns if the log lacks an unreadable batch, or may lack one, or if the next batch does not begin at the log's end.
        """
        batches: list[bytes] = []
        end, replaced_end, proven_order = next_offset, -1, 0
        for entry in self._all_entries_of(name):
            if entry.end > end:
                if 0 <= entry.base < end or (entry.base >= 0 and entry.base == replaced_end):
                    replaced_end = entry.end  # cut off and replaced by another batch
                    continue
                if entry.base != end or entry.batch is None:
                    reason = f"{name} had a batch here that ends before offset {entry.end}, but the log now ends before {end}"
                    raise DamagedTurns(entry.location.path, entry.location.position, reason)
                batches.append(entry.batch)
                end = entry.end
            proven_order = entry.location.order
        for location in self._unknown:
            if location.order > proven_order:
                raise DamagedTurns(location.path, location.position, f"a turn cannot be read, and may have batches of {name} that the log lacks")
        return batches

    def entries_of(self, name: str) -> list[AppendedBatch]:
        """The readable batches of the log with their offsets, in the order of their appends."""
        return [(name, entry.batch, entry.base, entry.end) for entry in self._logs.get(name, []) if entry.batch is not None]

    def batches_of(self, name: str) -> list[bytes]:
        """The readable batches of the log, in the order of their appends."""
        return [entry.batch for entry in self._logs.get(name, []) if entry.batch is not None]


class _Location(NamedTuple):
    order: int
    path: str
    position: int


class _Entry(NamedTuple):
    location: _Location
    base: int  # -1: unknown
    end: int
    batch: bytes | None


def _order_of(entry: _Entry) -> int:
    return entry.location.order


def _lost_key(checksum: int) -> str:
    return f"/{checksum}"  # no log has such a name


class LeftoverTurns(TurnLogContents):
    """The turn logs of a process that crashed. Raises OSError and NewerTurns.

    Several threads may restore their logs from it.
    """

    def __init__(self, disk: Disk, folder: str) -> None:
        self.numbers = sorted(number_of(name) for name in disk.list(folder) if is_turn_log(name))
        files = []
        for number in self.numbers:
            path = f"{folder}/{PREFIX}{number}"
            file = disk.open(path)
            try:
                files.append((path, file.read(0, file.size())))
            finally:
                file.close()
        super().__init__(files)

    def restore(self, name: str, log: Log) -> int:
        """Add missing batches to a newly opened log and flush it; return their number.

        Raises DamagedTurns as `missing_batches` does.
        """
        missing_batches = self.missing_batches(name, log.next_offset)
        for batch in missing_batches:
            log.restore(batch)
        if missing_batches:
            log.flush()
        self.discard(name)
        return len(missing_batches)

    @property
    def names(self) -> list[str]:
        """The logs that have batches in the files, without those that were discarded."""
        return [name for name in self._logs if not name.startswith("/")]

    def discard(self, name: str) -> None:
        """Drop the batches of this log, which has all of them; if a file is damaged, keep everything."""
        if not self.damage:
            self._logs.pop(name, None)

    @property
    def can_be_removed(self) -> bool:
        return not self._logs and not self.damage


def turn_log_sizes(disk: Disk, folder: str) -> tuple[tuple[str, int], ...]:
    """Names and sizes of the turn logs in the folder; raises OSError."""
    sizes = []
    for name in disk.list(folder):
        if is_turn_log(name):
            with contextlib.closing(disk.open(f"{folder}/{name}")) as file:
                sizes.append((name, file.size()))
    return tuple(sizes)


def covered_bytes(batches: Sequence[bytes], offset: int) -> int:
    """The total size of those batches of a turn log that follow each other without a gap from `offset` on."""
    size = 0
    for batch in batches:
        header = read_header(batch, 0)
        if header.base_offset == offset:
            size += len(batch)
            offset = header.next_offset
    return size


def is_turn_log(name: str) -> bool:
    number = name.removeprefix(PREFIX)
    return number != name and number.isascii() and number.isdigit()


def number_of(path: str) -> int:
    return int(path.rpartition(".")[2])
