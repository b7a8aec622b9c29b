"""Opening and repair of a log's segments: after a crash, and after a failure that the process survived.

Unless the log is deferred (log.py), only its last segment can have a torn end, since a new segment begins when everything before is
flushed. A torn end is cut. With other damage at the end a log stays closed, unless it is deferred, its owner allows the cut, a turn log
has copies of the batches, or a failed flush was not repaired: then the damaged bytes are copied to the folder `set-aside` (aside.py) and
cut. After a failed flush, a repair writes acknowledged but unflushed batches into a new segment (of a deferred log, in place). If it is
interrupted, two segments have these batches, and the later segment is valid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import google_crc32c

from protocol.batch import validate
from storage.aside import copy_cut_bytes
from storage.checking import check, cut
from storage.disk import Disk, File
from storage.errors import DamagedLog
from storage.flush import failed_flushes, flushed_before_failure, mark_flush_failed
from storage.handles import Handles
from storage.segment import CHUNK_BYTES, Segment, segment_bases
from storage.swap import finish_exchanges
from storage.tearing import is_torn
from storage.turn_log import covered_bytes

ENDINGS: Final = (".log", ".index", ".timeindex")
REWRITING: Final = ".rewriting"
PROBE: Final = ".probe"
PROBE_BYTES: Final = 65_536  # a disk with less free space counts as full
_crc32c: Final = google_crc32c.value


@dataclass(frozen=True, slots=True)
class Truncation:
    """The bytes that an opening cut from the end of a file, and why; usually none."""

    path: str = ""
    position: int = 0
    cut_bytes: int = 0
    reason: str = ""
    kept: str = ""  # the folder with a copy of the cut bytes, if they were more than a torn end


def open_segments(
    handles: Handles,
    folder: str,
    recovery_point: int,
    clean: bool,
    batch_copies: Callable[[], list[bytes]] = list,
    cut_damage: bool = False,
) -> tuple[list[Segment], Truncation]:
    """Open the segments; after an unclean stop the last one is verified from its start, and a torn end is cut.

    Raises DamagedLog for damage elsewhere, or before `recovery_point`, up to which the log was flushed. Damage at the end that is no
    torn write is cut only with `cut_damage`, if `batch_copies` has the batches, or after a failed flush that was not repaired.
    """
    bases = segment_bases(handles.disk, folder)
    segments: list[Segment] = []
    reasons: list[str] = []
    for base in bases:
        segment = Segment(handles, folder, base)
        reasons.append(check(segment, not clean and base == bases[-1], clean))
        segments.append(segment)
    truncation = Truncation()
    if segments and reasons[-1]:
        cut_damage = cut_damage or 0 <= flushed_before_failure(handles.disk, folder) <= segments[-1].next_offset
        truncation = _cut_end(segments[-1], reasons[-1], recovery_point, clean, batch_copies, cut_damage)
    for number, segment in enumerate(segments[:-1]):
        after = segments[number + 1]
        if segment.next_offset > after.base or (reasons[number] and segment.next_offset == after.base):
            if clean or after is not segments[-1] or after.next_offset < segment.next_offset:
                raise segment.damaged_at(reasons[number] or f"its offsets overlap {after.log_path}")
            segments[number] = _cut_rewritten(segment, after.base)
        elif reasons[number]:
            raise segment.damaged_at(reasons[number])
    return segments, truncation


def _cut_rewritten(segment: Segment, end: int) -> Segment:
    """Cut the batches that a repair has also written into the next segment, which begins at offset `end`.

    The caller has read only the headers, and a damaged header could hide a gap: so all batches before `end` are verified first.
    """
    segment = Segment(segment.handles, segment.folder, segment.base)
    reason = check(segment, from_start=True)
    if segment.next_offset < end:
        raise segment.damaged_at(reason)
    cut(segment, segment.position_from(end))
    return segment


def open_deferred(
    handles: Handles,
    folder: str,
    recovery_point: int,
    clean: bool,
    batch_copies: Callable[[], list[bytes]] = list,
    cut_damage: bool = True,
) -> tuple[list[Segment], Truncation]:
    """Open the segments of a deferred log: after an unclean stop every segment that reaches beyond `recovery_point` may be
    torn, and is verified from its start. Everything after the first cut is removed, as in Kafka.
    """
    bases = segment_bases(handles.disk, folder)
    segments: list[Segment] = []
    for number, base in enumerate(bases):
        segment = Segment(handles, folder, base)
        may_be_torn = not clean and (number == len(bases) - 1 or bases[number + 1] > recovery_point)
        reason = check(segment, may_be_torn, clean)
        segment.unsynced = may_be_torn  # its bytes may only be in the page cache
        if segments and segments[-1].next_offset > base:
            raise segments[-1].damaged_at(f"its offsets overlap {segment.log_path}")
        segments.append(segment)
        if reason:
            return segments, _cut_end_deferred(segment, bases[number + 1 :], reason, recovery_point, may_be_torn)
    return segments, Truncation()


def remove_segments(handles: Handles, folder: str, bases: list[int]) -> int:
    """Remove the segments with these base offsets; return their size."""
    if not bases:
        return 0
    size = 0
    for base in bases:
        segment = Segment(handles, folder, base)
        size += handles.file(segment.log_path).size()
        segment.close()
        for ending in ENDINGS:
            if handles.disk.exists(segment.path + ending):
                handles.disk.remove(segment.path + ending)
    handles.disk.sync_folder(folder)
    return size


def _cut_end(
    segment: Segment, reason: str, recovery_point: int, clean: bool, batch_copies: Callable[[], list[bytes]], cut_damage: bool
) -> Truncation:
    if clean or segment.next_offset < recovery_point:
        raise segment.damaged_at(reason)
    end = segment.handles.file(segment.log_path).size()
    kept = ""
    if not _ends_torn(segment, end):
        if not cut_damage and covered_bytes(batch_copies(), segment.next_offset) < end - segment.size:
            raise segment.damaged_at(f"{reason}, and it does not look like an interrupted write")
        kept = copy_cut_bytes(segment.handles.disk, segment.folder, [(segment.log_path, segment.size)])
    return _cut(segment, end, reason, kept)


def _cut_end_deferred(segment: Segment, later: list[int], reason: str, recovery_point: int, may_be_torn: bool) -> Truncation:
    """Cut the unsound end of the segment, after removing the segments at the base offsets `later`: in the opposite order a crash
    could leave a gap.
    """
    if not may_be_torn or segment.next_offset < recovery_point:
        raise segment.damaged_at(reason)
    handles = segment.handles
    end = handles.file(segment.log_path).size()
    cuts = [] if _ends_torn(segment, end) else [(segment.log_path, segment.size)]
    later_paths = [Segment(handles, segment.folder, base).log_path for base in later]
    cuts += [(path, 0) for path in later_paths if handles.file(path).size()]
    kept = copy_cut_bytes(handles.disk, segment.folder, cuts) if cuts else ""
    removed_bytes = remove_segments(handles, segment.folder, later)
    truncation = _cut(segment, end, reason, kept)
    try:
        handles.file(segment.log_path).sync()  # the cut bytes must not reappear after new segments were added
    except OSError:
        mark_flush_failed(handles.disk, segment.folder, recovery_point)
        raise
    return replace(truncation, cut_bytes=truncation.cut_bytes + removed_bytes)


def _ends_torn(segment: Segment, end: int) -> bool:
    return is_torn(segment.handles.file(segment.log_path), segment.size, end, segment.next_offset)


def _cut(segment: Segment, end: int, reason: str, kept: str) -> Truncation:
    truncation = Truncation(segment.log_path, segment.size, end - segment.size, reason, kept)
    cut(segment, segment.size)
    return truncation


def sync(handles: Handles, folder: str, segments: list[Segment], flushed_offset: int) -> None:
    """Sync the segments and their names, so that they survive the next crash. Records before `flushed_offset` are already durable."""
    try:
        _sync(handles, folder, segments)
    except OSError:
        mark_flush_failed(handles.disk, folder, flushed_offset)  # the disk may lack bytes that the next process reads from the page cache
        raise


def _sync(handles: Handles, folder: str, segments: list[Segment]) -> None:
    marks = failed_flushes(handles.disk, folder)
    for segment in segments:
        if segment.unsynced or segment is segments[-1]:
            file = handles.file(segment.log_path)
            if marks:
                _write_again(file)
            file.sync()
            segment.unsynced = False
    for mark in marks:
        handles.disk.remove(f"{folder}/{mark}")
    handles.disk.sync_folder(folder)
    handles.disk.sync_folder(folder.rpartition("/")[0])


def _write_again(file: File) -> None:
    """Write the file's contents again: after a failed sync the system may treat unwritten pages as written."""
    for at in range(0, file.size(), CHUNK_BYTES):
        file.write(at, file.read(at, CHUNK_BYTES))


class Repair:
    """One attempt to repair a log. `run` blocks and may be called in any thread: it uses separate handles."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        flushed_offset: int,
        next_offset: int,
        rewrite: bool,
        exchange_failed: bool = False,
        deferred: bool = False,
        batch_copies: Callable[[], list[bytes]] = list,
    ) -> None:
        self.segments: list[Segment] = []
        self.truncation = Truncation()
        self._disk = disk
        self._folder = folder
        self._flushed_offset = flushed_offset
        self._next_offset = next_offset
        self._rewrite = rewrite
        self._exchange_failed = exchange_failed
        self._deferred = deferred
        self._batch_copies = batch_copies  # batches that are also in a turn log

    def run(self) -> None:
        """Run the repair. Raises OSError while the disk still fails, DamagedLog if acknowledged records are missing."""
        self._probe()
        if not self._disk.exists(self._folder):
            return
        if self._exchange_failed:
            finish_exchanges(self._disk, self._folder)
        handles = Handles(self._disk, 8)
        try:
            opened = open_deferred if self._deferred else open_segments
            segments, self.truncation = opened(handles, self._folder, self._flushed_offset, False, self._batch_copies)
            if (segments[-1].next_offset if segments else 0) < self._next_offset:
                self._complete(handles, segments)
            self._cut_unacknowledged(segments, self._next_offset)
            if self._rewrite and self._flushed_offset < self._next_offset:
                segments = self._rewrite_unflushed_in_place(handles, segments) if self._deferred else self._rewrite_unflushed(handles, segments)
            sync(handles, self._folder, segments, self._flushed_offset)
            self.segments = segments
        finally:
            handles.close()

    def _probe(self) -> None:
        """Check that the disk accepts writes and has room."""
        path = probe_path(self._folder)
        file = self._disk.open(path, create=True)
        try:
            file.truncate(0)
            file.write(0, bytes(PROBE_BYTES))
            file.sync()
        finally:
            file.close()
            self._disk.remove(path)

    def _complete(self, handles: Handles, segments: list[Segment]) -> None:
        """Append the batches that the log lacks at its end, from their copies in a turn log.

        After a failed flush the system may drop written bytes.
        """
        for batch in self._batch_copies():
            header = validate(batch, 0, len(batch))
            if not segments and header.base_offset == 0:
                segments.append(Segment(handles, self._folder, 0))
                handles.file(segments[0].log_path, create=True)
            if segments and header.base_offset == segments[-1].next_offset:
                segments[-1].append_stamped(batch, header)

    def _cut_unacknowledged(self, segments: list[Segment], offset: int) -> None:
        """Cut the batches from `offset` on, which were not acknowledged, and keep a copy. Raises DamagedLog if earlier records are missing."""
        if not segments:
            if offset:
                raise DamagedLog(self._folder, 0, f"all records before offset {offset} are missing")
            return
        last = segments[-1]
        if last.next_offset < offset:
            raise last.damaged_at(f"it ends before offset {offset}")
        position = last.position_from(offset)
        if position < last.size:
            kept = copy_cut_bytes(self._disk, self._folder, [(last.log_path, position)])
            reason = "it was not acknowledged"
            self.truncation = Truncation(last.log_path, position, last.size - position, reason, kept)
        cut(last, position)

    def _rewrite_unflushed(self, handles: Handles, segments: list[Segment]) -> list[Segment]:
        """Write the unflushed records into a new file, since after a failed flush the old pages may never reach the disk.

        The old bytes are cut once the new file is synced.
        """
        old = segments[-1]
        new = self._rewrite_segment(handles, old, max(self._flushed_offset, old.base))
        if new.base == old.base:
            return [*segments[:-1], new]
        cut(old, old.position_from(new.base))
        return [*segments, new]

    def _rewrite_unflushed_in_place(self, handles: Handles, segments: list[Segment]) -> list[Segment]:
        """Rewrite each segment that is not flushed to its end, in place."""
        return [
            self._rewrite_segment(handles, segment, segment.base) if segment.next_offset > self._flushed_offset else segment
            for segment in segments
        ]

    def _rewrite_segment(self, handles: Handles, old: Segment, base: int) -> Segment:
        new = Segment(handles, self._folder, base)
        path = f"{new.log_path}{REWRITING}"
        file = self._disk.open(path, create=True)
        try:
            file.truncate(0)
            for chunk in old.chunks(base, old.next_offset):
                file.write(file.size(), chunk)
            file.sync()
        finally:
            file.close()
        handles.forget(new.log_path)
        self._disk.rename(path, new.log_path)
        self._disk.sync_folder(self._folder)
        if reason := check(new, from_start=True):
            raise new.damaged_at(reason)
        return new


def probe_path(folder: str) -> str:
    """The file that a repair writes to test the disk. It is beside the log's folder, not inside, since that folder may not exist.

    The file is named by a checksum, since the log folder's own name may already have 255 characters, the maximum of a file name.
    """
    parent, _, name = folder.rpartition("/")
    return f"{parent}/{_crc32c(name.encode()):08x}{PROBE}"


def remove_leftovers(disk: Disk, folder: str) -> None:
    """Remove the files of an interrupted repair."""
    if disk.exists(probe_path(folder)):
        disk.remove(probe_path(folder))
    for name in disk.list(folder):
        if name.endswith(REWRITING):
            disk.remove(f"{folder}/{name}")
