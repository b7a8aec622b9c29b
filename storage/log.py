"""One log: segments in a folder, of which the last one grows.

`append` is a write to the operating system; what makes it durable is a flush, in three steps, because the middle one
blocks and runs in another thread: `start_flush` and `finish_flush` belong to the owner, who may append in between. After
a failure the log is repaired in three steps likewise. A log rolls only when everything before is flushed, so nothing but
the end of its last segment can be lost.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Final

from protocol.batch import Fact, read_header, stamp
from storage.disk import File
from storage.epochs import Epochs, read_epochs, with_epoch, write_epochs
from storage.errors import AppendFailed, DamagedLog, Fenced
from storage.handles import Handles
from storage.opening import Recovery, Repair, open_segments, remove_leftovers, sync
from storage.segment import Segment

RELATIVE_OFFSET_MAX: Final = (1 << 31) - 1
SEGMENT_BYTES_MAX: Final = (1 << 31) - 1


class Flush:
    """One flush under way: `run` may be called in any thread, everything else belongs to the log's owner."""

    __slots__ = ("file", "offset", "segment")

    def __init__(self, offset: int, segment: Segment | None, file: File | None) -> None:
        self.offset = offset  # everything before it is durable when `run` returns
        self.segment = segment
        self.file = file

    def run(self) -> None:
        if self.file is not None:
            self.file.sync()


class Log:
    """Appends, flushes, reads. After a failed flush it is not `usable` until it is repaired."""

    def __init__(self, handles: Handles, folder: str, segment_bytes: int) -> None:
        self.folder = folder
        self.flushed_offset = 0
        self.usable = True
        self.epoch = 0
        self._handles = handles
        self._disk = handles.disk
        self._segment_bytes = min(segment_bytes, SEGMENT_BYTES_MAX)
        self._segments: list[Segment] = []
        self._epochs: Epochs = []
        self._made = False
        self._flushing = False
        self._flush_failed = False  # what is not flushed may be in memory alone, and stay there

    @staticmethod
    def open(handles: Handles, folder: str, segment_bytes: int, recovery_point: int, clean: bool) -> tuple[Log, Recovery]:
        """The log in `folder`, which need not exist yet; a torn tail of the last segment is cut off.

        `recovery_point`: everything before it was flushed. Raises DamagedLog for damage anywhere but at the end, and
        OSError as the disk does.
        """
        log = Log(handles, folder, segment_bytes)
        recovery = Recovery()
        if handles.disk.exists(folder):
            if not clean:
                remove_leftovers(handles.disk, folder)
            log._made = clean  # otherwise the next roll makes sure that its name is safe
            log._epochs = read_epochs(handles.disk, folder)
            log._segments, recovery = open_segments(handles, folder, recovery_point, clean)
            if log._segments and not clean:
                # What is read from here on must not be gone after the next crash.
                sync(handles, folder, log._segments)
        for segment in log._segments:
            if segment.epoch > (log._epochs[-1][0] if log._epochs else -1):  # the checkpoint did not survive
                log._epochs = with_epoch(log._epochs, segment.epoch, segment.epoch_start)
        log.epoch = log._epochs[-1][0] + 1 if log._epochs else 0
        log.flushed_offset = log.next_offset
        return log, recovery

    def use(self, handles: Handles) -> None:
        """From now on these open files: the log was opened in another thread, with handles of its own."""
        self._handles = handles
        for segment in self._segments:
            segment.handles = handles

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
            raise AppendFailed(f"{self.folder} waits to be repaired")
        offset = self.next_offset
        stamped = bytearray(batch)
        stamp(stamped, 0, offset, epoch)
        header = read_header(stamped, 0)
        try:
            segment = self._segment_for(len(stamped), header.last_offset)
            self._note_epoch(offset)
            segment.append(stamped, header)
        except OSError as error:
            # Was the half batch cut off? If not, the log ends in it until it is repaired.
            self.usable = self.usable and not self._flush_failed and self._ends_well()
            raise AppendFailed(told(error, self.folder)) from error
        return offset

    def _segment_for(self, size: int, last_offset: int) -> Segment:
        if self._segments:
            active = self._segments[-1]
            # With a flush under way it is not time to roll: who of the two hears of a failure would be chance.
            limit = SEGMENT_BYTES_MAX if self._flushing else self._segment_bytes
            if not active.size or (active.size + size <= limit and last_offset - active.base <= RELATIVE_OFFSET_MAX):
                return active
            if self._flushing:
                raise OSError(errno.EFBIG, "the segment is full and its flush does not end")
            self._complete(active)
        return self._begin_segment()

    def _complete(self, active: Segment) -> None:
        """Nothing comes behind it any more. Blocks for what the flushes have left, once a segment."""
        if active.unsynced:
            try:
                self._handles.file(active.log_path).sync()
            except OSError:
                self._flush_failed = True
                raise
            active.unsynced = False
        self.flushed_offset = self.next_offset
        if not active.index_saved:
            active.save_index()
        active.close()

    def _begin_segment(self) -> Segment:
        if not self._made:
            self._disk.make_folder(self.folder)
            self._disk.sync_folder(self.folder.rpartition("/")[0])
            self._made = True
        segment = Segment(self._handles, self.folder, self.next_offset)
        try:
            self._handles.file(segment.log_path, create=True)
            self._disk.sync_folder(self.folder)
        except OSError:
            self._remove_unused(segment)
            raise
        self._segments.append(segment)
        return segment

    def _remove_unused(self, segment: Segment) -> None:
        """Were its file left, and a smaller batch then fitted into the segment before, the two would overlap."""
        try:
            segment.close()
            if self._disk.exists(segment.log_path):
                self._disk.remove(segment.log_path)
                self._disk.sync_folder(self.folder)
        except OSError:
            self.usable = False

    def _note_epoch(self, offset: int) -> None:
        if self._epochs and self._epochs[-1][0] == self.epoch:
            return
        epochs = with_epoch(self._epochs, self.epoch, offset)
        write_epochs(self._disk, self.folder, epochs)
        self._epochs = epochs

    def _ends_well(self) -> bool:
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
        """Raises AppendFailed on a log that waits to be repaired: a flush that failed is never tried again.

        The system may have dropped the pages and forgotten the failure.
        """
        assert not self._flushing, "one flush at a time"
        if not self.usable:
            raise AppendFailed(f"{self.folder} waits to be repaired")
        active = self._segments[-1] if self._segments else None
        file: File | None = None
        if active is not None and active.unsynced:
            try:
                file = self._handles.pin(active.log_path)
            except OSError as error:
                self.usable = False
                self._flush_failed = True
                raise AppendFailed(told(error, self.folder)) from error
        self._flushing = True
        return Flush(self.next_offset, active, file)

    def finish_flush(self, flush: Flush, failure: Exception | None) -> None:
        """`flush.run` returned, or raised `failure`. Raises AppendFailed then; the log is not usable any more."""
        self._flushing = False
        if flush.file is not None:
            self._handles.unpin(flush.file)
        if failure is not None:
            self.usable = False
            self._flush_failed = True
            raise AppendFailed(told(failure, self.folder)) from failure
        self.flushed_offset = max(self.flushed_offset, flush.offset)
        if flush.segment is not None and flush.segment.next_offset == flush.offset:
            flush.segment.unsynced = False

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

    # Repairing.

    def start_repair(self, keep_unflushed: bool) -> Repair:
        """The log must be left alone until `finish_repair`.

        What was not flushed goes, unless somebody was told of it.
        """
        assert not self._flushing, "its flush has to end first"
        self.usable = False
        for segment in self._segments:
            segment.close()
        end = self.next_offset if keep_unflushed else self.flushed_offset
        return Repair(self._disk, self.folder, self.flushed_offset, end, self._flush_failed)

    def finish_repair(self, repair: Repair) -> None:
        """`repair.run` returned: the log is usable again. When it raised, start another one later."""
        self._segments = repair.segments
        self.use(self._handles)
        self.flushed_offset = self.next_offset
        self._flush_failed = False
        self.usable = True

    def recover(self, keep_unflushed: bool) -> None:
        """All three steps here and now; raises as `Repair.run` does."""
        repair = self.start_repair(keep_unflushed)
        repair.run()
        self.finish_repair(repair)

    # Reading.

    def scan(self, offset: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Whole batches from the one that holds `offset` up to `end`, or to what is the end now; about a MiB at a time.

        Raises DamagedLog where they are not as they were written.
        """
        return self._scan(offset, self.next_offset if end is None else end)

    def _scan(self, offset: int, end: int) -> Iterator[bytes]:
        for segment in list(self._segments):
            if segment.next_offset > offset and segment.base < end:
                yield from segment.chunks(offset, end)

    def facts(self, end: int | None = None) -> Iterator[list[Fact]]:
        """Key and value of every record of the log, up to `end`, or to what is the end now; some thousand at a time.

        Raises DamagedLog as `scan` does, after what is before the damage or without some of it.
        """
        return self._facts(self.next_offset if end is None else end)

    def _facts(self, end: int) -> Iterator[list[Fact]]:
        for segment in list(self._segments):
            if segment.base < end:
                yield from segment.facts(end)

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Whole batches from the one that holds `offset` on, of one segment: as many as fit, but one at least; b"" at the end.

        Checksums are the reader's to verify, as in Kafka; DamagedLog where no batch can be.
        """
        for segment in self._segments:
            if offset < segment.next_offset and segment.size:
                return segment.read(offset, bytes_max)
        return b""

    def find_time(self, timestamp: int) -> tuple[int, int] | None:
        """Timestamp and offset of the first record that is at least as late."""
        for segment in self._segments:
            found = segment.find_time(timestamp)
            if found is not None:
                return found
        return None

    def close(self) -> None:
        """After a last flush: the indexes are written where they are not as stored, the files closed."""
        for segment in self._segments:
            if segment.size and not segment.index_saved:
                segment.save_index()
            segment.close()


def told(error: Exception, folder: str) -> str:
    """Why, in words for people."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"the disk of {folder} is full"
    if isinstance(error, DamagedLog):
        return str(error)
    return f"{folder}: {(error.strerror if isinstance(error, OSError) else None) or error}"
