"""One log: segments in a folder, of which the last one grows.

`append` is a write to the operating system; what makes it durable is a flush, in three steps, because the middle one
blocks and runs in another thread: `start_flush` and `finish_flush` belong to the owner, who may append in between.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from protocol.batch import read_header, stamp, validate
from storage.disk import File
from storage.errors import AppendFailed, Fenced
from storage.handles import Handles
from storage.segment import NAME_DIGITS, Segment

RELATIVE_OFFSET_MAX: Final = (1 << 31) - 1
SEGMENT_BYTES_MAX: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening found: bytes cut from the end of which file, and why; nothing cut is the ordinary case."""

    path: str = ""
    position: int = 0
    cut_bytes: int = 0
    reason: str = ""


class Flush:
    """One flush under way: `run` may be called in any thread, everything else belongs to the log's owner."""

    __slots__ = ("files", "offset", "paths")

    def __init__(self, offset: int) -> None:
        self.offset = offset  # everything before it is durable when `run` returns
        self.files: list[File] = []
        self.paths: list[str] = []

    def run(self) -> None:
        for file in self.files:
            file.sync()


class Log:
    """Appends, flushes, reads. After a failed flush it is not `usable` until `recover` has cut it back."""

    def __init__(self, handles: Handles, folder: str, segment_bytes: int) -> None:
        self.folder = folder
        self.flushed_offset = 0
        self.usable = True
        self.epoch = 0
        self._handles = handles
        self._disk = handles.disk
        self._segment_bytes = min(segment_bytes, SEGMENT_BYTES_MAX)
        self._segments: list[Segment] = []
        self._epochs: list[tuple[int, int]] = []  # (epoch, the first offset written under it)
        self._made = False

    @staticmethod
    def open(handles: Handles, folder: str, segment_bytes: int, recovery_point: int, clean: bool) -> tuple[Log, Recovery]:
        """The log in `folder`, which need not exist yet; a torn tail of the last segment is cut off.

        `recovery_point`: everything before it was flushed. Raises DamagedLog for damage anywhere but at the end.
        """
        log = Log(handles, folder, segment_bytes)
        recovery = Recovery()
        disk = handles.disk
        if disk.exists(folder):
            log._made = True
            log._epochs = _read_epochs(disk.read_text(f"{folder}/leader-epoch-checkpoint")) if log._has("leader-epoch-checkpoint") else []
            recovery = log._open_segments(recovery_point, clean)
        log.epoch = log._epochs[-1][0] + 1 if log._epochs else 0
        if clean:
            log.flushed_offset = log.next_offset
        else:
            log.flush()  # what is read from here on must not be gone after the next crash
        return log, recovery

    def _has(self, name: str) -> bool:
        return self._disk.exists(f"{self.folder}/{name}")

    def _open_segments(self, recovery_point: int, clean: bool) -> Recovery:
        bases = sorted(
            int(name[:NAME_DIGITS])
            for name in self._disk.list(self.folder)
            if name.endswith(".log") and name[:NAME_DIGITS].isdecimal() and len(name) == NAME_DIGITS + 4
        )
        recovery = Recovery()
        for number, base in enumerate(bases):
            segment = Segment(self._handles, self.folder, base)
            last = number == len(bases) - 1
            if self._segments and base < self._segments[-1].next_offset:
                # Recovery was interrupted: this segment has the rewritten tail, the one in front still has the old one.
                self._segments[-1].cut(self._segments[-1].position_from(base))
            verify = not clean and (last or bases[number + 1] > recovery_point)
            reason = segment.check(from_start=verify)
            if reason:
                # Only what was never flushed may be torn: the end of the last segment, after a crash.
                if clean or not last or segment.next_offset < recovery_point:
                    raise segment.damaged_at(reason)
                file = self._handles.file(segment.log_path)
                recovery = Recovery(segment.log_path, segment.size, file.size() - segment.size, reason)
                file.truncate(segment.size)
            segment.unsynced = verify
            self._segments.append(segment)
        return recovery

    @property
    def start_offset(self) -> int:
        return self._segments[0].base if self._segments else 0

    @property
    def next_offset(self) -> int:
        return self._segments[-1].next_offset if self._segments else 0

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def newest_timestamp(self) -> int:
        return max((segment.max_timestamp for segment in self._segments), default=-1)

    # Appending.

    def append(self, batch: bytes, epoch: int) -> int:
        """Write one batch with its offsets and epoch stamped; the offset of its first record.

        Raises AppendFailed, and Fenced when somebody claimed the log since; the log is then as it was before.
        """
        if epoch != self.epoch:
            raise Fenced(f"{self.folder} is owned at epoch {self.epoch}, not {epoch} any more")
        if not self.usable:
            raise AppendFailed(f"{self.folder} was not flushed and waits to be recovered")
        offset = self.next_offset
        stamped = bytearray(batch)
        stamp(stamped, 0, offset, epoch)
        header = read_header(stamped, 0)
        try:
            segment = self._segment_for(len(stamped), header.last_offset)
            self._note_epoch(offset)
            segment.append(stamped, header)
        except OSError as error:
            # Was the half batch cut off? If not, the log ends in it until it is recovered.
            self.usable = self._cut_is_sound()
            raise AppendFailed(_told(error, self.folder)) from error
        return offset

    def _segment_for(self, size: int, last_offset: int) -> Segment:
        active = self._segments[-1] if self._segments else None
        if active is not None and (
            not active.size or (active.size + size <= self._segment_bytes and last_offset - active.base <= RELATIVE_OFFSET_MAX)
        ):
            return active
        return self._roll()

    def _roll(self) -> Segment:
        """A new last segment; the one before it is complete from now on."""
        base = self.next_offset
        if not self._made:
            self._disk.make_folder(self.folder)
            self._disk.sync_folder(self.folder.rpartition("/")[0])
            self._made = True
        segment = Segment(self._handles, self.folder, base)
        self._handles.file(segment.log_path, create=True)
        self._disk.sync_folder(self.folder)
        if self._segments:
            self._segments[-1].save_index()
        self._segments.append(segment)
        return segment

    def _note_epoch(self, offset: int) -> None:
        if self._epochs and self._epochs[-1][0] == self.epoch:
            return
        epochs = [*self._epochs, (self.epoch, offset)]
        lines = [f"{epoch} {start}" for epoch, start in epochs]
        self._disk.replace_text(f"{self.folder}/leader-epoch-checkpoint", "\n".join(["0", str(len(lines)), *lines, ""]))
        self._epochs = epochs

    def _cut_is_sound(self) -> bool:
        if not self._segments:
            return True
        active = self._segments[-1]
        try:
            return self._handles.file(active.log_path).size() == active.size
        except OSError:
            return False

    def claim(self) -> int:
        """A new owner: whoever appends at an older epoch is refused from now on."""
        self.epoch += 1
        return self.epoch

    # Flushing.

    def start_flush(self) -> Flush:
        flush = Flush(self.next_offset)
        for segment in self._segments:
            if segment.unsynced:
                flush.files.append(self._handles.pin(segment.log_path))
                flush.paths.append(segment.log_path)
        return flush

    def finish_flush(self, flush: Flush, failure: OSError | None) -> None:
        """`flush.run` returned, or raised `failure`. Raises AppendFailed then; the log is not usable any more.

        A flush that failed is never tried again: the system may have dropped the pages and forgotten the failure.
        """
        for path in flush.paths:
            self._handles.unpin(path)
        if failure is not None:
            self.usable = False
            raise AppendFailed(_told(failure, self.folder)) from failure
        self.flushed_offset = max(self.flushed_offset, flush.offset)
        for segment in self._segments:
            if segment.next_offset <= self.flushed_offset:
                segment.unsynced = False

    def flush(self) -> int:
        """All three steps here and now; the offset up to which everything is durable."""
        flush = self.start_flush()
        failure: OSError | None = None
        try:
            flush.run()
        except OSError as error:
            failure = error
        self.finish_flush(flush, failure)
        return self.flushed_offset

    def recover(self, keep_unflushed: bool) -> None:
        """Make the log usable again after a failure; raises OSError while the disk still refuses.

        What was not flushed goes, unless somebody was told of it: then it is read back, checked and written anew, for
        the pages of a failed flush may never reach the disk.
        """
        if keep_unflushed:
            self._rewrite_tail()
        else:
            self.truncate_to(self.flushed_offset)
            self._sync_all()
        self.flushed_offset = self.next_offset
        self.usable = True

    def _rewrite_tail(self) -> None:
        tail = b"".join(self.scan(self.flushed_offset))
        if not tail:
            self.truncate_to(self.next_offset)
            self._sync_all()
            return
        at = 0
        while at < len(tail):
            at += validate(tail, at, len(tail)).size
        segment = Segment(self._handles, self.folder, read_header(tail, 0).base_offset)
        new = f"{segment.path}.rewritten"
        file = self._handles.file(new, create=True)
        file.truncate(0)
        file.write(0, tail)
        file.sync()
        self._handles.forget(new)
        self._handles.forget(segment.log_path)
        self._disk.rename(new, segment.log_path)
        self._disk.sync_folder(self.folder)
        for old in [old for old in self._segments if old.base > segment.base]:
            self._remove(old)
            self._segments.remove(old)
        if self._segments and self._segments[-1].base == segment.base:
            self._segments.pop()
        elif self._segments:
            self._segments[-1].cut(self._segments[-1].position_from(segment.base))
        segment.check(from_start=True)
        self._segments.append(segment)
        self._sync_all()

    def _sync_all(self) -> None:
        for segment in self._segments:
            if segment.unsynced:
                self._handles.file(segment.log_path).sync()
                segment.unsynced = False

    def truncate_to(self, offset: int) -> None:
        """Remove every batch that does not end before `offset`."""
        while self._segments and self._segments[-1].base >= offset and len(self._segments) > 1:
            self._remove(self._segments.pop())
        if self._segments:
            active = self._segments[-1]
            active.cut(active.position_from(offset))
        self.flushed_offset = min(self.flushed_offset, self.next_offset)

    def _remove(self, segment: Segment) -> None:
        segment.close()
        for ending in (".log", ".index", ".timeindex"):
            if self._disk.exists(segment.path + ending):
                self._disk.remove(segment.path + ending)

    # Reading.

    def scan(self, offset: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Whole batches from the one that holds `offset` up to `end`, or to what is the end now; about a MiB at a time."""
        if end is None:
            end = self.next_offset
        for segment in list(self._segments):
            if segment.next_offset > offset and segment.base < end:
                yield from segment.chunks(offset, end)

    def close(self) -> None:
        """After a last flush: the indexes are written, the files closed."""
        for segment in self._segments:
            if segment is self._segments[-1] and segment.size:
                segment.save_index()
            segment.close()


def _read_epochs(text: str) -> list[tuple[int, int]]:
    """Kafka's checkpoint: a version, a count, and a line each. One that cannot be read tells nothing."""
    try:
        lines = text.split("\n")
        pairs = [line.split() for line in lines[2 : 2 + int(lines[1])]]
        return [(int(epoch), int(start)) for epoch, start in pairs]
    except (ValueError, IndexError):
        return []


def _told(error: OSError, folder: str) -> str:
    if error.errno == errno.ENOSPC:
        return f"the disk of {folder} is full"
    return f"{folder}: {error.strerror or error}"
