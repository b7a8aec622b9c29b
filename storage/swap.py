"""Replace segments by their compacted versions, so that a crash at any step loses nothing.

A compaction writes `.cleaned` files. `promote` renames them to `.swap`, as in Kafka: from then on the new segment is valid,
even after a crash. `exchange` renames the old files to `.deleted` and moves the new ones into their place. An opening
removes `.cleaned` and `.deleted` files, and finishes the exchange of `.swap` files made for this log (promoted.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from storage.checking import check
from storage.disk import Disk
from storage.errors import DamagedLog
from storage.handles import Handles
from storage.promoted import DELETED, PromotedVerdict, judge
from storage.segment import NAME_DIGITS, Segment, segment_bases, segment_name
from storage.snapshots import snapshot_path

CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
INDEXES: Final = (".timeindex", ".index")


class ClosedSegment(NamedTuple):
    base: int
    size: int


class CleanedSegment(NamedTuple):
    """A compacted segment, and the adjacent old ones that it replaces."""

    base: int
    size: int
    next_offset: int
    replaces: tuple[int, ...]


def promote(disk: Disk, folder: str, cleaned: Sequence[CleanedSegment], token: str) -> list[Segment]:
    """Rename the new segments to `.swap`, sync, and return them. Blocks. Raises DamagedLog if they differ from `cleaned`.

    Meanwhile only the active segment may change.
    """
    suffix = f".{token}{CLEANED}"
    handles = Handles(disk, 4)
    try:
        segments = [_open_cleaned(handles, folder, new, suffix) for new in cleaned]
    finally:
        handles.close()
    for segment in segments:
        for ending in (*INDEXES, ".log"):  # the log last: its name makes the new segment valid
            disk.rename(f"{segment.path}{ending}{suffix}", f"{segment.path}{ending}{SWAP}")
        segment.rename(SWAP)
    if segments:
        disk.sync_folder(folder)
    return segments


def _open_cleaned(handles: Handles, folder: str, new: CleanedSegment, suffix: str) -> Segment:
    segment = Segment(handles, folder, new.base, suffix)
    reason = check(segment, from_start=False)
    if not reason and (segment.size, segment.next_offset) != (new.size, new.next_offset):
        reason = f"it ends before offset {segment.next_offset}, not {new.next_offset}"
    if reason:
        raise segment.damaged_at(reason)
    return segment


def exchange(disk: Disk, segment: Segment, replaces: Sequence[int], folder: str) -> None:
    """Move the promoted segment into place by a few renames. The old `.log` files remain as `.deleted`."""
    for base in replaces:
        set_aside(disk, folder, base)
    for ending in (".log", *INDEXES):
        disk.rename(f"{segment.path}{ending}{SWAP}", f"{segment.path}{ending}")
    segment.rename("")


def set_aside(disk: Disk, folder: str, base: int) -> None:
    """Take the segment out of the log: its file becomes `.deleted`. Its index is removed first: the compacted segment may have the same
    base offset, and must not get this index.
    """
    path = f"{folder}/{segment_name(base)}"
    _remove_index(disk, path)
    disk.rename(f"{path}.log", f"{path}.log{DELETED}")


def _remove_index(disk: Disk, path: str) -> None:
    for ending in INDEXES:
        if disk.exists(path + ending):
            disk.remove(path + ending)


def remove_deleted(disk: Disk, folder: str, bases: Sequence[int]) -> None:
    """Remove the `.deleted` files of an exchange, after syncing its renames. Blocks."""
    if bases:
        disk.sync_folder(folder)
    for base in bases:
        disk.remove(f"{folder}/{segment_name(base)}.log{DELETED}")
        if disk.exists(snapshot_path(folder, base)):
            disk.remove(snapshot_path(folder, base))


def remove_unfinished(disk: Disk, folder: str) -> None:
    """Remove all files of earlier compactions, and sync.

    Otherwise, after the next compaction, an opening would find a `.swap` file that is older than the log's segments.
    """
    leftovers = [name for name in disk.list(folder) if _is_leftover(name)]
    # Remove the `.log.swap` files first: an opening after a crash takes such a file for a valid segment.
    for name in sorted(leftovers, key=lambda name: not name.endswith(f".log{SWAP}")):
        disk.remove(f"{folder}/{name}")
    if leftovers:
        disk.sync_folder(folder)


def finish_exchanges(disk: Disk, folder: str) -> None:
    """At opening, finish the exchange of segments promoted for this log, and remove other leftovers.

    Raises DamagedLog if a promoted segment is torn or damaged.
    """
    leftovers = [name for name in disk.list(folder) if _is_leftover(name)]
    if not leftovers:
        return
    # Kafka may split a segment into several, valid only together, and promotes the first of them last: a `.swap` file whose base offset
    # follows that of a `.cleaned` file may belong to an incomplete set.
    valid_before = min((_base(name) for name in leftovers if name.endswith(CLEANED)), default=1 << 63)
    for name in leftovers:
        if name.endswith(f".log{SWAP}"):
            _finish_exchange(disk, folder, _base(name), _base(name) < valid_before)
    remove_unfinished(disk, folder)


def _finish_exchange(disk: Disk, folder: str, base: int, is_valid: bool) -> None:
    """Finish one exchange, unless the promoted segment belongs to another log.

    If the segment is empty or not `is_valid` (its set may be incomplete), finish it only if the exchange had begun.
    """
    handles = Handles(disk, 4)
    segment = Segment(handles, folder, base, SWAP)
    try:
        if reason := check(segment, from_start=True):
            raise DamagedLog(segment.log_path, segment.size, reason)
        verdict = judge(disk, folder, segment)
        if verdict is PromotedVerdict.FOREIGN or (verdict is PromotedVerdict.COVERED and not (is_valid and segment.size)):
            return
        for old in segment_bases(disk, folder):
            if base <= old < segment.next_offset:
                set_aside(disk, folder, old)
        _remove_index(disk, segment.path)
        disk.rename(segment.log_path, f"{segment.path}.log")
        disk.sync_folder(folder)  # before the old files are removed; the index is rebuilt
    finally:
        handles.close()


def _is_leftover(name: str) -> bool:
    return name.endswith((CLEANED, SWAP, DELETED)) and name.isascii() and name[:NAME_DIGITS].isdigit()


def _base(name: str) -> int:
    return int(name[:NAME_DIGITS])
