"""One log: segments in a folder, of which the last one grows.

`append` is a write to the operating system; what makes it durable is a flush, in three steps, because the middle one
blocks and runs in another thread: `start_flush` and `finish_flush` belong to the owner, who may append in between. After
a failure the log is repaired in three steps likewise. A log rolls only when everything before is flushed, so nothing but
the end of its last segment can be lost.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from protocol.batch import Fact, span_of, stamp
from storage.disk import Disk, File
from storage.epochs import Epochs, read_epochs, with_epoch, write_epochs
from storage.errors import AppendFailed, DamagedLog, Fenced
from storage.handles import Handles
from storage.opening import Recovery, Repair, open_segments, remove_leftovers, sync
from storage.reading import Reading
from storage.segment import RELATIVE_OFFSET_MAX, Segment
from storage.swap import Cleaned, Closed, exchange, finish_exchanges, set_aside

SEGMENT_BYTES_MAX: Final = (1 << 31) - 1
METADATA: Final = "partition.metadata"  # Kafka's: which topic the folder belongs to


class Flush:
    """One flush under way: `run` may be called in any thread, everything else belongs to the log's owner."""

    __slots__ = ("disk", "file", "folder", "is_new", "offset", "segment", "size", "topic_id")

    def __init__(
        self, offset: int, segment: Segment | None, file: File | None, disk: Disk, folder: str, is_new: bool = False, topic_id: str = ""
    ) -> None:
        self.offset = offset  # everything before it is durable when `run` returns
        self.segment = segment
        self.size = segment.size if segment is not None else 0
        self.file = file
        self.disk = disk
        self.folder = folder  # whose names are to be made safe too, or ""
        self.is_new = is_new  # the folder itself was made since the last flush
        self.topic_id = topic_id

    def run(self) -> None:
        if self.file is not None:
            self.file.sync()
        if self.folder:
            sync_names(self.disk, self.folder, self.is_new, self.topic_id)


def sync_names(disk: Disk, folder: str, is_new: bool, topic_id: str) -> None:
    """What is in the folder, and where it was made itself, is there after a crash."""
    if is_new:
        write_topic_id(disk, folder, topic_id)
    disk.sync_folder(folder)
    if is_new:
        disk.sync_folder(folder.rpartition("/")[0])


def write_topic_id(disk: Disk, folder: str, topic_id: str) -> None:
    """Where Kafka keeps it, unless there is one."""
    path = f"{folder}/{METADATA}"
    if topic_id and not disk.exists(path):
        disk.replace_text(path, f"version: 0\ntopic_id: {topic_id}")


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
        self._topic_id = ""
        self._flushing = False
        self._flush_failed = False  # what is not flushed may be in memory alone, and stay there
        self._flushed_size = 0  # of the last segment
        self._names_unsynced = False
        self._is_new = False  # the folder was made, and its own name is not safe yet
        self._exchange_failed = False  # halfway: what the folder holds is not what `_segments` says

    @staticmethod
    def open(
        handles: Handles, folder: str, segment_bytes: int, recovery_point: int, clean: bool, topic_id: str = ""
    ) -> tuple[Log, Recovery]:
        """The log in `folder`, which need not exist yet; a torn tail of the last segment is cut off.

        `recovery_point`: everything before it was flushed. `topic_id`, in 22 characters, is written where Kafka keeps it,
        unless there is one. Raises DamagedLog for damage anywhere but at the end, and
        OSError as the disk does.
        """
        log = Log(handles, folder, segment_bytes)
        log._topic_id = topic_id
        recovery = Recovery()
        if handles.disk.exists(folder):
            if not clean:
                remove_leftovers(handles.disk, folder)
            finish_exchanges(handles.disk, folder)
            with contextlib.suppress(OSError):  # a full disk is no reason not to read
                write_topic_id(handles.disk, folder, topic_id)
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
        log._flushed_size = log._segments[-1].size if log._segments else 0
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
        last_delta, max_timestamp = span_of(stamped, 0)
        try:
            segment = self._segment_for(len(stamped), offset + last_delta)
            self._note_epoch(offset)
            segment.append(stamped, offset, offset + last_delta, max_timestamp, epoch)
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
        return self._begin_segment(sync=bool(self._segments))

    def _complete(self, active: Segment) -> None:
        """Nothing comes behind it any more. Blocks for what the flushes have left, once a segment."""
        if active.unsynced:
            try:
                self._handles.file(active.log_path).sync()
            except OSError:
                self._flush_failed = True
                raise
            active.unsynced = False
        if self._names_unsynced:
            sync_names(self._disk, self.folder, self._is_new, self._topic_id)
            self._names_unsynced = self._is_new = False
        self.flushed_offset = self.next_offset
        if not active.index_saved:
            active.save_index()
        active.close()

    def _begin_segment(self, sync: bool) -> Segment:
        """An empty last segment; its name is safe, or the next flush makes it so, in another thread."""
        if not self._made:
            self._disk.make_folder(self.folder, safe=False)
            self._made = self._is_new = True
        segment = Segment(self._handles, self.folder, self.next_offset)
        try:
            self._handles.file(segment.log_path, create=True)
            if sync:
                self._disk.sync_folder(self.folder)
            self._names_unsynced = not sync
        except OSError:
            self._remove_unused(segment)
            raise
        self._segments.append(segment)
        self._flushed_size = 0
        return segment

    def roll(self, unflushed_bytes_max: int) -> bool:
        """Close the last segment before it is full, so that it can be cleaned; whether none but an empty one is open now.

        False where that would have to wait: a flush is under way, or more bytes than this came since the last one.
        Raises AppendFailed as `append` does.
        """
        if not self.usable or self._flushing:
            return False
        active = self._segments[-1] if self._segments else None
        if active is None or not active.size:
            return True
        if active.unsynced and active.size - self._flushed_size > unflushed_bytes_max:
            return False
        try:
            self._complete(active)
            self._begin_segment(sync=False)
        except OSError as error:
            self.usable = self.usable and not self._flush_failed
            raise AppendFailed(told(error, self.folder)) from error
        return True

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
        folder = self.folder if self._names_unsynced else ""
        return Flush(self.next_offset, active, file, self._disk, folder, self._is_new, self._topic_id)

    def finish_flush(self, flush: Flush, failure: Exception | None) -> None:
        """`flush.run` returned, or raised `failure`. Raises AppendFailed then; the log is not usable any more."""
        self._flushing = False
        if flush.file is not None:
            self._handles.unpin(flush.file)
        if failure is not None:
            self.usable = False
            self._flush_failed = True
            raise AppendFailed(told(failure, self.folder)) from failure
        if flush.folder:
            self._names_unsynced = self._is_new = False
        self.flushed_offset = max(self.flushed_offset, flush.offset)
        self._flushed_size = flush.size
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
        return Repair(self._disk, self.folder, self.flushed_offset, end, self._flush_failed, self._exchange_failed)

    def finish_repair(self, repair: Repair) -> None:
        """`repair.run` returned: the log is usable again. When it raised, start another one later."""
        # Closed segments are what they were: who reads them reads on, and what was verified is.
        known = {} if self._exchange_failed else {(segment.base, segment.size): segment for segment in self._segments[:-1]}
        self._segments = [*(known.get((segment.base, segment.size), segment) for segment in repair.segments[:-1]), *repair.segments[-1:]]
        self.use(self._handles)
        self.flushed_offset = self.next_offset
        self._flushed_size = self._segments[-1].size if self._segments else 0
        self._flush_failed = self._names_unsynced = self._is_new = self._exchange_failed = False
        self.usable = True

    def recover(self, keep_unflushed: bool) -> None:
        """All three steps here and now; raises as `Repair.run` does."""
        repair = self.start_repair(keep_unflushed)
        repair.run()
        self.finish_repair(repair)

    # Cleaning and dropping: what is closed gives way.

    @property
    def closed(self) -> list[Closed]:
        """All segments but the last one, which grows."""
        return [Closed(segment.base, segment.size) for segment in self._segments[:-1]]

    @property
    def last_base(self) -> int:
        """Where the closed segments end."""
        return self._segments[-1].base if self._segments else 0

    def bytes_since(self, offset: int) -> int:
        """How large the segments are that do not end before `offset`."""
        return sum(segment.size for segment in self._segments if segment.next_offset > offset)

    def exchange(self, cleaned: Sequence[Cleaned], promoted: Sequence[Segment]) -> list[int]:
        """Promoted segments take the place of those that they were made from; the bases of the files set aside.

        A few renames for each; who reads the old segments reads on. Raises AppendFailed, with the log to be repaired,
        when that fails halfway.
        """
        bases: list[int] = []
        try:
            for new, segment in zip(cleaned, promoted, strict=True):
                first = self._bases.index(new.base)
                behind = first + len(new.replaces)
                assert self._bases[first:behind] == list(new.replaces)
                assert behind < len(self._segments), "the last segment grows"
                self._give_up(first, behind)
                exchange(self._disk, segment, new.replaces, self.folder)
                segment.handles = self._handles
                self._segments[first:behind] = [segment]
                bases += new.replaces
        except OSError as error:
            self.usable = False
            self._exchange_failed = True
            raise AppendFailed(told(error, self.folder)) from error
        return bases

    def drop_before(self, timestamp: int) -> list[int]:
        """Set aside the closed segments at the log's beginning in which everything is older; the bases of their files.

        Raises AppendFailed as `exchange` does.
        """
        count = 0
        while count < len(self._segments) - 1 and 0 <= self._segments[count].max_timestamp < timestamp:
            count += 1
        bases = self._bases[:count]
        try:
            self._give_up(0, count)
            for base in bases:
                set_aside(self._disk, self.folder, base)
        except OSError as error:
            self.usable = False
            self._exchange_failed = True
            raise AppendFailed(told(error, self.folder)) from error
        del self._segments[:count]
        return bases

    @property
    def _bases(self) -> list[int]:
        return [segment.base for segment in self._segments]

    def _give_up(self, first: int, behind: int) -> None:
        for segment in self._segments[first:behind]:
            segment.keep_for_readers()
            segment.close()

    # Reading.

    def scan(self, offset: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Whole batches from the one that holds `offset` up to `end`, or to what is the end now; about a MiB at a time.

        Raises DamagedLog where they are not as they were written.
        """
        stop = self.next_offset if end is None else end
        segments = self._between(offset, stop)
        return Reading(segments, chain.from_iterable([segment.chunks(offset, stop) for segment in segments]))

    def _between(self, offset: int, end: int) -> list[Segment]:
        return [segment for segment in self._segments if segment.next_offset > offset and segment.base < end]

    def facts(self, end: int | None = None) -> Iterator[list[Fact]]:
        """Key and value of every record of the log, up to `end`, or to what is the end now; some thousand at a time.

        Raises DamagedLog as `scan` does, after what is before the damage or without some of it.
        """
        stop = self.next_offset if end is None else end
        segments = self._between(-1, stop)
        return Reading(segments, chain.from_iterable([segment.facts(stop) for segment in segments]))

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
