"""Putting cleaned segments in the place of those they were made from, so that a crash at any step loses nothing.

A cleaning leaves files `.cleaned`. `promote` renames them to `.swap`, in Kafka's way and words: from then on the new
segment counts, whatever becomes of the process. `exchange` moves the old files out of the way, to `.deleted`, and gives
the new ones their place. Opening removes what is `.cleaned` or `.deleted`, and finishes what is `.swap` (promoted.py: if it
was made for this log).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from storage.checking import check
from storage.disk import Disk
from storage.errors import DamagedLog
from storage.handles import Handles
from storage.promoted import DELETED, Verdict, judge
from storage.segment import NAME_DIGITS, Segment, segment_bases, segment_name
from storage.snapshots import snapshot_path

CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
INDEXES: Final = (".timeindex", ".index")


class Closed(NamedTuple):
    """A segment that grows no more."""

    base: int
    size: int


class Cleaned(NamedTuple):
    """A new segment and the old ones, adjacent, whose place it takes."""

    base: int
    size: int
    next_offset: int
    replaces: tuple[int, ...]


def promote(disk: Disk, folder: str, cleaned: Sequence[Cleaned], token: str) -> list[Segment]:
    """The new segments, `.swap` now and safe; blocks for the disk. Raises DamagedLog where they are not what was said.

    Nothing may change the folder meanwhile, but for the log's last segment, which may grow.
    """
    suffix = f".{token}{CLEANED}"
    handles = Handles(disk, 4)
    try:
        segments = [_opened(handles, folder, new, suffix) for new in cleaned]
    finally:
        handles.close()
    for segment in segments:
        for ending in (*INDEXES, ".log"):  # the log last: its name is what says that the new segment counts
            disk.rename(f"{segment.path}{ending}{suffix}", f"{segment.path}{ending}{SWAP}")
        segment.rename(SWAP)
    if segments:
        disk.sync_folder(folder)
    return segments


def _opened(handles: Handles, folder: str, new: Cleaned, suffix: str) -> Segment:
    segment = Segment(handles, folder, new.base, suffix)
    reason = check(segment, from_start=False)
    if not reason and (segment.size, segment.next_offset) != (new.size, new.next_offset):
        reason = f"it ends before offset {segment.next_offset}, not {new.next_offset}"
    if reason:
        raise segment.damaged_at(reason)
    return segment


def exchange(disk: Disk, segment: Segment, replaces: Sequence[int], folder: str) -> None:
    """A few renames: the promoted segment takes its place. The old logs are left as `.deleted`."""
    for base in replaces:
        set_aside(disk, folder, base)
    for ending in (".log", *INDEXES):
        disk.rename(f"{segment.path}{ending}{SWAP}", f"{segment.path}{ending}")
    segment.rename("")


def set_aside(disk: Disk, folder: str, base: int) -> None:
    """The segment is no part of the log any more. Its index goes first: it must not stand beside another log."""
    path = f"{folder}/{segment_name(base)}"
    _remove_index(disk, path)
    disk.rename(f"{path}.log", f"{path}.log{DELETED}")


def _remove_index(disk: Disk, path: str) -> None:
    for ending in INDEXES:
        if disk.exists(path + ending):
            disk.remove(path + ending)


def remove_deleted(disk: Disk, folder: str, bases: Sequence[int]) -> None:
    """What an exchange left, once its names are safe; blocks for the disk."""
    if bases:
        disk.sync_folder(folder)
    for base in bases:
        disk.remove(f"{folder}/{segment_name(base)}.log{DELETED}")
        if disk.exists(snapshot_path(folder, base)):
            disk.remove(snapshot_path(folder, base))


def remove_unfinished(disk: Disk, folder: str) -> None:
    """Whatever earlier cleanings left that does not count, or must not any more; safe when it returns.

    A `.swap` that stayed behind would be older than what the next cleaning makes.
    """
    left = [name for name in disk.list(folder) if _is_left(name)]
    # What makes a segment count goes first.
    for name in sorted(left, key=lambda name: not name.endswith(f".log{SWAP}")):
        disk.remove(f"{folder}/{name}")
    if left:
        disk.sync_folder(folder)


def finish_exchanges(disk: Disk, folder: str) -> None:
    """When opening: finish what was promoted for this log, remove all else. Raises DamagedLog for a promoted segment that is torn."""
    left = [name for name in disk.list(folder) if _is_left(name)]
    if not left:
        return
    # Kafka takes a segment apart in several, which count together or not at all: the last to be promoted is the first one.
    counts_before = min((_base(name) for name in left if name.endswith(CLEANED)), default=1 << 63)
    for name in left:
        if name.endswith(f".log{SWAP}"):
            _finish_exchange(disk, folder, _base(name), _base(name) < counts_before)
    remove_unfinished(disk, folder)


def _finish_exchange(disk: Disk, folder: str, base: int, counts: bool) -> None:
    """Unless it is another log's; where it does not count, only if what it replaces is not there any more."""
    handles = Handles(disk, 4)
    segment = Segment(handles, folder, base, SWAP)
    try:
        if reason := check(segment, from_start=True):
            raise DamagedLog(segment.log_path, segment.size, reason)
        verdict = judge(disk, folder, segment)
        if verdict is Verdict.FOREIGN or (verdict is Verdict.COVERED and not (counts and segment.size)):
            return
        for old in segment_bases(disk, folder):
            if base <= old < segment.next_offset:
                set_aside(disk, folder, old)
        _remove_index(disk, segment.path)
        disk.rename(segment.log_path, f"{segment.path}.log")
        disk.sync_folder(folder)  # before what it replaces is removed; its index is built again
    finally:
        handles.close()


def _is_left(name: str) -> bool:
    return name.endswith((CLEANED, SWAP, DELETED)) and name.isascii() and name[:NAME_DIGITS].isdigit()


def _base(name: str) -> int:
    return int(name[:NAME_DIGITS])
