"""One log: a folder of segments, the last of which is active and grows.

`append` writes to the operating system; a flush (flushed.py) makes the records durable. After a failure the owner repairs the log:
`start_repair`, then `Repair.run`, which blocks and runs in another thread, then `finish_repair`.

A log begins a new segment only when all earlier ones are flushed, so a crash can tear only the end of its last segment. A `deferred`
log leaves flushing to the operating system, as Kafka does for topics: after a crash an opening verifies everything after the recovery
point and cuts at the first torn batch.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from typing import Final

from protocol.batch import stamp_whole, validate
from storage.epochs import read_epochs, with_epoch, write_epochs
from storage.errors import AppendFailed, Fenced, describe_error
from storage.flush import failed_flushes, write_topic_id
from storage.flushed import FlushedSegments
from storage.handles import Handles
from storage.index import RELATIVE_OFFSET_MAX
from storage.opening import Repair, Truncation, open_deferred, open_segments, remove_leftovers, remove_segments, sync
from storage.producers import Producers
from storage.rebuilding import rebuild, save_producers
from storage.removal import set_folder_aside
from storage.segment import Segment
from storage.swap import finish_exchanges
from storage.times import first_timestamp

SEGMENT_BYTES_MAX: Final = (1 << 31) - 1


class Log(FlushedSegments):
    """A log, as its owner appends to it and repairs it. Flushing is in flushed.py, reading in segments.py."""

    __slots__ = (
        "_deferred",
        "_first_seen_base",
        "_first_seen_ms",
        "_folder_exists",
        "_producers",
        "_written_epoch",
        "segment_bytes",
        "segment_ms",
    )

    def __init__(self, handles: Handles, folder: str, segment_bytes: int) -> None:
        super().__init__(handles, folder)
        self.segment_bytes = min(segment_bytes, SEGMENT_BYTES_MAX)
        self.segment_ms = 0  # Kafka's segment.ms, measured by the batches' timestamps; 0: no limit
        self._folder_exists = False  # True: the folder's name is synced, or the next flush syncs it
        self._deferred = False
        self._producers: Producers | None = None
        self._written_epoch = -1  # epoch last written to leader-epoch-checkpoint
        self._first_seen_base = -1  # active segment at the last `roll_if_old`, and the time of the first call that saw it
        self._first_seen_ms = 0

    @staticmethod
    def open(
        handles: Handles,
        folder: str,
        segment_bytes: int,
        recovery_point: int,
        clean: bool,
        topic_id: str = "",
        *,
        deferred: bool = False,
        start_offset: int = 0,
        producers: Producers | None = None,
        batch_copies: Callable[[], list[bytes]] = list,
        cut_damage: bool = False,
    ) -> tuple[Log, Truncation]:
        """Open the log in `folder`, which need not exist yet; a torn end of the last segment is cut.

        `recovery_point`: records before it are flushed. `topic_id`, 22 characters, is written to partition.metadata if that is
        missing. `start_offset`: records before it are deleted. `producers` is filled from the log, and saved in its snapshot
        files from then on; the caller of `append` updates it. `batch_copies` returns the log's batches that are also in a turn
        log (turn_log.py). `cut_damage`: cut any damage at the end, as in a deferred log. Raises DamagedLog for damage elsewhere,
        and OSError.
        """
        log = Log(handles, folder, segment_bytes)
        log._topic_id = topic_id
        log.start_offset = start_offset
        log._deferred = deferred
        log._producers = producers
        truncation = Truncation()
        if handles.disk.exists(folder):
            if not clean:
                remove_leftovers(handles.disk, folder)
            finish_exchanges(handles.disk, folder)
            with contextlib.suppress(OSError):  # the log must open on a full disk too
                write_topic_id(handles.disk, folder, topic_id)
            log._folder_exists = clean  # otherwise the next roll syncs the folder's name
            log._epochs = read_epochs(handles.disk, folder)
            opened = open_deferred if deferred else open_segments
            log._segments, truncation = opened(handles, folder, recovery_point, clean, batch_copies, cut_damage)
            if deferred and log.next_offset < start_offset:
                # As in Kafka, the log continues at its start offset, since no offset may be used twice.
                remove_segments(handles, folder, [segment.base for segment in log._segments])
                log._segments = []
            if deferred and not clean:
                # After a crash the disk may lack the names of the folder and its files: the next flush syncs them too.
                log._names_unsynced = log._is_new = True
                if failed_flushes(handles.disk, folder):
                    sync(handles, folder, log._segments, recovery_point)
            elif log._segments and not clean:
                # Readers may see these records from now on, so they must survive the next crash.
                sync(handles, folder, log._segments, recovery_point)
            log.start_offset = max(start_offset, log._segments[0].base) if log._segments else start_offset
            if producers is not None:
                rebuild(handles.disk, folder, log._segments, log.next_offset, producers, clean)
        for segment in log._segments:
            if segment.epoch > (log._epochs[-1][0] if log._epochs else -1):  # leader-epoch-checkpoint lacks this epoch
                log._epochs = with_epoch(log._epochs, segment.epoch, segment.epoch_start)
        log.epoch = log._epochs[-1][0] + 1 if log._epochs else 0
        log._epochs = [known for known in log._epochs if known[1] < log.next_offset]
        log._set_start(log.start_offset)
        log.flushed_offset = min(recovery_point, log.next_offset) if deferred and not clean else log.next_offset
        log._flushed_size = log._segments[-1].size if log._segments else 0
        return log, truncation

    # Appending.

    def append(self, batch: bytes | bytearray, epoch: int) -> int:
        """Stamp offsets and epoch into the batch (a bytearray in place), write it, and return its first offset.

        Raises AppendFailed. Raises Fenced, and leaves the log unchanged, if the log has a newer owner.
        """
        if epoch != self.epoch:
            raise Fenced(f"{self.folder} is owned at epoch {self.epoch}, no longer at {epoch}")
        if not self.usable:
            raise AppendFailed(f"{self.folder} waits to be repaired")
        stamped = batch if isinstance(batch, bytearray) else bytearray(batch)
        offset = self._segments[-1].next_offset if self._segments else self.next_offset
        last_delta, max_timestamp = stamp_whole(stamped, offset, epoch)
        last_offset = offset + last_delta
        try:
            segment = self._segment_for(len(stamped), last_offset, max_timestamp)
            if self._written_epoch != epoch:
                self._write_epoch(offset)
            segment.append(stamped, offset, last_offset, max_timestamp, epoch)
        except OSError as error:
            # Usable only if the partial batch was cut off; otherwise the log must be repaired.
            self.usable = not self._flush_failed and self._ends_at_active_size()
            raise AppendFailed(describe_error(error, self.folder)) from error
        return offset

    def restore(self, batch: bytes) -> bool:
        """Append a batch that already has its offset and epoch, if that offset is the next one; return whether it is. Raises OSError."""
        header = validate(batch, 0, len(batch))
        offset = self.next_offset
        if header.base_offset != offset:
            return False
        self._segment_for(len(batch), header.last_offset, header.max_timestamp).append_stamped(batch, header)
        if header.leader_epoch > (self._epochs[-1][0] if self._epochs else -1):
            self._epochs = with_epoch(self._epochs, header.leader_epoch, offset)
        self.epoch = max(self.epoch, header.leader_epoch + 1)
        return True

    def _segment_for(self, size: int, last_offset: int, max_timestamp: int) -> Segment:
        if self._segments:
            active = self._segments[-1]
            # Do not roll during a flush: both would sync the active segment, and the system would report a failure to only one.
            must_wait = self._flushing and not self._deferred
            limit = SEGMENT_BYTES_MAX if must_wait else self.segment_bytes
            if not active.size or (
                active.size + size <= limit
                and last_offset - active.base <= RELATIVE_OFFSET_MAX
                and not (self.segment_ms and 0 <= first_timestamp(active) < max_timestamp - self.segment_ms)
            ):
                return active
            if must_wait:
                raise OSError(errno.EFBIG, "the segment is full and its flush does not end")
            self._close_active(active)
        return self._begin_segment()

    def _close_active(self, active: Segment) -> None:
        """Close the active segment. Unless the log is deferred, blocks to sync unflushed records."""
        if not self._deferred:
            self._sync_all(active)
        active.save_index()
        active.close()
        if self._producers is not None:
            with contextlib.suppress(OSError):  # an older snapshot and the batches after it give the same state
                save_producers(self._disk, self.folder, self.next_offset, self._producers)

    def _begin_segment(self) -> Segment:
        """Add an empty active segment; the next flush syncs its name."""
        if not self._folder_exists:
            self._disk.make_folder(self.folder, durable=False)
            # Write the id before any record: without it, the records could be mistaken for those of another topic of this name.
            write_topic_id(self._disk, self.folder, self._topic_id, durable=False)
            self._folder_exists = self._is_new = True
        segment = Segment(self._handles, self.folder, self.next_offset)
        self._handles.file(segment.log_path, create=True)
        self._names_unsynced = True
        self._segments.append(segment)
        self._flushed_size = 0
        return segment

    def roll(self, unflushed_bytes_max: int) -> bool:
        """Close the active segment before it is full, so that it can be compacted; return whether the active segment is now empty.

        Does nothing and returns False if the log is not usable; unless the log is deferred (see above), also during a flush, or when more
        than `unflushed_bytes_max` bytes are unflushed. Raises AppendFailed as `append` does.
        """
        if not self.usable or (self._flushing and not self._deferred):
            return False
        active = self._segments[-1] if self._segments else None
        if active is None or not active.size:
            return True
        if not self._deferred and active.unsynced and active.size - self._flushed_size > unflushed_bytes_max:
            return False
        try:
            self._close_active(active)
            self._begin_segment()
        except OSError as error:
            self.usable = not self._flush_failed
            raise AppendFailed(describe_error(error, self.folder)) from error
        return True

    def roll_if_old(self, now: int, segment_ms: int) -> bool:
        """Roll a segment that has been active for `segment_ms`, whatever its timestamps, so that it can be compacted in an idle log too.

        Call it at intervals. Raises AppendFailed as `append` does.
        """
        if not self._segments or not self._segments[-1].size:
            return False
        base = self._segments[-1].base
        if base != self._first_seen_base:
            self._first_seen_base, self._first_seen_ms = base, now
        return now - self._first_seen_ms > segment_ms and self.roll(0)

    def _write_epoch(self, offset: int) -> None:
        epochs = with_epoch(self._epochs, self.epoch, offset)
        write_epochs(self._disk, self.folder, epochs)
        self._epochs = epochs
        self._written_epoch = self.epoch

    def _ends_at_active_size(self) -> bool:
        if not self._segments:
            return True
        active = self._segments[-1]
        try:
            return self._handles.file(active.log_path).size() == active.size
        except OSError:
            return False

    def claim(self) -> int:
        """Take ownership and return the new epoch. Appends at an older epoch are refused from now on."""
        self.epoch += 1
        return self.epoch

    # Retention.

    def delete_before(self, offset: int) -> None:
        """Delete records before `offset`; `apply_retention` removes the files."""
        self._set_start(min(max(self.start_offset, offset), self.next_offset))

    def apply_retention(self, now: int, monotonic: int, retention_ms: int, retention_bytes: int) -> list[int]:
        """Set aside the first segments that are before the log start, too old or over the size limit; return their base offsets.

        As in Kafka, only whole segments are deleted, the active one too if the limits require it. A limit of -1 does not apply. Does
        nothing during a compaction. `monotonic`: see `_count_old`. Raises AppendFailed as `exchange` does.
        """
        if self.compacting:
            return []
        count = self._count_outdated(now, monotonic, retention_ms, retention_bytes)
        if count and count == len(self._segments) and not self.roll(SEGMENT_BYTES_MAX):
            count -= 1
        return self._drop(count)

    def _count_outdated(self, now: int, monotonic: int, retention_ms: int, retention_bytes: int) -> int:
        segments = self._segments
        end = len(segments)
        if end and not segments[-1].size:
            end -= 1
        count = 0
        while count + 1 < len(segments) and segments[count + 1].base <= self.start_offset:
            count += 1
        if retention_bytes >= 0:
            excess_bytes = sum([segment.size for segment in segments[count:]]) - retention_bytes
            while count < end and excess_bytes >= segments[count].size:
                excess_bytes -= segments[count].size
                count += 1
        return self._count_old(count, end, now, monotonic, retention_ms) if retention_ms >= 0 else count

    def set_folder_aside(self, token: str) -> str:
        """Rename the folder of a deleted log; return its new path. After OSError the log stays usable."""
        assert not self.busy, "a flush or compaction would continue in the next folder of this name"
        if not self._disk.exists(self.folder):
            self.usable = False
            return ""
        self._release_files(0, len(self._segments))
        moved = set_folder_aside(self._disk, self.folder, token)
        self.usable = False
        return moved

    def retire(self) -> None:
        """Stop using the folder's files, since another owner takes the log over."""
        self.usable = False
        self._release_files(0, len(self._segments))

    # Repair.

    def start_repair(self, end: int, batch_copies: Callable[[], list[bytes]] = list) -> Repair:
        """Begin a repair; the log must not be used until `finish_repair`.

        Records from `end` on are cut: they were not acknowledged. `batch_copies`: batches of the log that are also in a turn log.
        """
        assert not self.busy, "its flush or compaction must end first"
        self.usable = False
        for segment in self._segments:
            segment.close()
        return Repair(self._disk, self.folder, self.flushed_offset, end, self._flush_failed, self._exchange_failed, self._deferred, batch_copies)

    def finish_repair(self, repair: Repair) -> None:
        """Apply the result of `repair.run`: the log is usable again. If `run` raised, start another repair later instead."""
        # Keep the objects of unchanged closed segments, with their readers and verified state.
        known = {} if self._exchange_failed else {(segment.base, segment.size): segment for segment in self._segments[:-1]}
        self._segments = [*(known.get((segment.base, segment.size), segment) for segment in repair.segments[:-1]), *repair.segments[-1:]]
        self.use(self._handles)
        self.flushed_offset = self.next_offset
        self._flushed_size = self._segments[-1].size if self._segments else 0
        self._flush_failed = self._names_unsynced = self._is_new = self._exchange_failed = False
        for segment in self._segments:
            segment.unsynced = False
        if self._segments:
            self._set_start(max(self.start_offset, self._segments[0].base))
        self.usable = True

    def close(self, indexes: bool = True) -> None:
        """Write changed indexes and close the files; the log must be flushed already.

        Without `indexes` no index is written: closing is faster, and the next opening reads more of the log.
        """
        for segment in self._segments:
            if indexes and segment.size:
                segment.save_index()
            segment.close()
        if self._producers is not None and self._segments:
            save_producers(self._disk, self.folder, self.next_offset, self._producers)
