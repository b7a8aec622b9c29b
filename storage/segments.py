"""The segments of one log, in order: reading, exchange after a compaction, deletion of old segments.

flushed.py adds flushing, log.py appending and repair.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from protocol.batch import Fact
from storage.disk import Disk
from storage.epochs import UNKNOWN, Epochs, epoch_at, epoch_end, from_offset, with_epoch
from storage.errors import AppendFailed, describe_error
from storage.extents import Extent, extent_of
from storage.handles import Handles
from storage.reading import PinnedIterator
from storage.segment import Segment
from storage.swap import CleanedSegment, ClosedSegment, exchange, set_aside
from storage.times import SearchStep, find_time, first_timestamp, latest

# Clock steps below a minute are accepted, so a record's time may be up to two such steps (ahead, then back) in the future.
CLOCK_AHEAD_MAX_MS: Final = 120_000


class Segments:
    """The segments up to `next_offset`. `start_offset`, the first readable offset, may be after the first segment, until retention deletes that."""

    __slots__ = (
        "_disk",
        "_epochs",
        "_exchange_failed",
        "_future_segments",
        "_handles",
        "_segments",
        "compacting",
        "epoch",
        "folder",
        "folder_users",
        "start_offset",
        "usable",
    )

    def __init__(self, handles: Handles, folder: str) -> None:
        self.folder = folder
        self.usable = True
        self.epoch = 0
        self.start_offset = 0
        self.folder_users = 0  # number of threads and processes that use the folder by name: it must not be renamed or repaired
        self.compacting = False  # True: a compaction reads the closed segments, so they must not change
        self._handles = handles
        self._disk: Disk = handles.disk
        self._segments: list[Segment] = []
        self._epochs: Epochs = []
        self._future_segments: dict[int, tuple[int, int]] = {}  # segments with a future time: base -> size, and when it was first seen
        self._exchange_failed = False  # an exchange stopped halfway: the folder differs from `_segments`

    def use(self, handles: Handles) -> None:
        """Use these handles from now on: the log was opened in another thread, with other handles."""
        self._handles = handles
        for segment in self._segments:
            segment.use(handles)

    @property
    def next_offset(self) -> int:
        return self._segments[-1].next_offset if self._segments else self.start_offset

    @property
    def high_watermark(self) -> int:
        """The end of the log, since there is one replica."""
        return self._segments[-1].next_offset if self._segments else self.start_offset

    @property
    def size(self) -> int:
        return sum([segment.size for segment in self._segments])

    @property
    def segment_count(self) -> int:
        """The number of segments."""
        return len(self._segments)

    # Reading.

    def read(self, offset: int, bytes_max: int, end: int = -1) -> bytes:
        """Whole batches of one segment from the batch with `offset` on; b"" at the end of the log, or at `end`.

        At least one batch; a large read may be some KiB smaller than `bytes_max`. Clients verify checksums, as in Kafka.
        Raises DamagedLog if the segment's structure is damaged.
        """
        if not self._segments:
            return b""
        return self._segment_at(offset).read(offset, bytes_max, end if end >= 0 else self.next_offset)

    def extent(self, offset: int, bytes_max: int, end: int = -1, one_at_least: bool = True) -> Extent | None:
        """Locate the batches that `read` would return; None at the end, or if no batch fits and not `one_at_least`."""
        if not self._segments:
            return None
        segment = self._segment_at(offset)
        closed = segment is not self._segments[-1]
        return extent_of(segment, offset, bytes_max, end if end >= 0 else self.next_offset, closed, one_at_least)

    def _segment_at(self, offset: int) -> Segment:
        """The segment with the first batch that ends at `offset` or later; else the last segment."""
        segments = self._segments
        if offset < segments[-1].base:  # most reads are in the last segment
            for number in range(max(bisect_right(segments, offset, key=_base_of) - 1, 0), len(segments)):
                segment = segments[number]
                if offset < segment.next_offset and segment.size:
                    return segment
        return segments[-1]

    def _between(self, offset: int, end: int) -> list[Segment]:
        return [segment for segment in self._segments if segment.next_offset > offset and segment.base < end]

    def facts(self, end: int | None = None) -> Iterator[list[Fact]]:
        """Key and value of every record up to `end`, or to the current end, in lists of some thousands.

        Checksums are verified: raises DamagedLog, perhaps without returning all records before the damage.
        """
        stop = self.next_offset if end is None else end
        segments = self._between(0, stop)
        return PinnedIterator(segments, chain.from_iterable([segment.facts(stop) for segment in segments]))

    def find_time(self, timestamp: int) -> Iterator[SearchStep]:
        """Search in steps for the first record at or after `timestamp`; the record is yielded last, if any.

        Segments that are replaced meanwhile stay readable. Raises DamagedLog and OSError.
        """
        segments = self._between(self.start_offset, self.next_offset)
        return PinnedIterator(segments, find_time(segments, timestamp, self.start_offset))

    def latest_record(self) -> Iterator[SearchStep]:
        """Search in steps, as `find_time`, for the record with the newest timestamp: the first one, if several have it."""
        segments = self._between(self.start_offset, self.next_offset)
        return PinnedIterator(segments, latest(segments, self.start_offset))

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the record at `offset`; -1: unknown."""
        return epoch_at(self._epochs, offset)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The newest leader epoch not above `epoch`, and its end offset, as in Kafka's OffsetForLeaderEpoch.

        (-1, -1) for an epoch that does not exist yet.
        """
        if epoch == UNKNOWN:
            return UNKNOWN, UNKNOWN
        if epoch == self.epoch:
            return epoch, self.next_offset
        # The current epoch counts even without records.
        return epoch_end(with_epoch(self._epochs, self.epoch, self.next_offset), epoch)

    # Compaction and deletion of closed segments.

    @property
    def closed_segments(self) -> list[ClosedSegment]:
        """All segments but the active one."""
        return [ClosedSegment(segment.base, segment.size) for segment in self._segments[:-1]]

    @property
    def active_base(self) -> int:
        """The base offset of the active segment, which is the end offset of the closed ones."""
        return self._segments[-1].base if self._segments else self.start_offset

    def closed_before(self, timestamp: int) -> tuple[list[ClosedSegment], int]:
        """The closed segments before the first one with a record later than `timestamp`, and their end offset: the segments that
        min.compaction.lag.ms allows to compact.
        """
        closed: list[ClosedSegment] = []
        for segment in self._segments[:-1]:
            if self._written_at(segment) > timestamp:
                return closed, segment.base
            closed.append(ClosedSegment(segment.base, segment.size))
        return closed, self.active_base

    def _written_at(self, segment: Segment) -> int:
        """The time of the newest record; without records, of the first batch; without timestamps, the file's modification time."""
        written = segment.max_timestamp if segment.max_timestamp >= 0 else first_timestamp(segment)
        return written if written >= 0 else self._disk.modified_ms(segment.log_path)

    def bytes_since(self, offset: int) -> int:
        """The size of the segments that end after `offset`."""
        return sum([segment.size for segment in self._segments if segment.next_offset > offset])

    def first_timestamp_since(self, offset: int) -> int:
        """The timestamp of the first batch in the first segment that ends after `offset`; -1 for none."""
        for segment in self._segments:
            if segment.next_offset > offset and segment.size:
                return first_timestamp(segment)
        return -1

    def begin_compaction(self) -> None:
        """Reserve the folder and its closed segments for the compaction, until `end_compaction`."""
        assert not self.compacting, "one compaction at a time"
        self.compacting = True
        self.folder_users += 1

    def end_compaction(self) -> None:
        self.compacting = False
        self.folder_users -= 1

    def leave_half_exchanged(self) -> None:
        """Mark the log as unusable, since the folder has promoted segments (`.swap`): a repair must first move them into place."""
        self.usable = False
        self._exchange_failed = True

    @property
    def half_exchanged(self) -> bool:
        return self._exchange_failed

    def exchange(self, cleaned: Sequence[CleanedSegment], promoted: Sequence[Segment]) -> list[int]:
        """Replace segments by the promoted segments (swap.py) made from them; return the base offsets of the replaced ones.

        Each exchange takes a few renames; readers of the old segments continue. If a rename fails, raises AppendFailed, and the log
        must be repaired.
        """
        bases: list[int] = []
        try:
            for new, segment in zip(cleaned, promoted, strict=True):
                first = self._bases.index(new.base)
                end = first + len(new.replaces)
                assert self._bases[first:end] == list(new.replaces)
                assert end < len(self._segments), "the last segment grows"
                self._release_files(first, end)
                exchange(self._disk, segment, new.replaces, self.folder)
                segment.use(self._handles)
                self._segments[first:end] = [segment]
                bases += new.replaces
        except OSError as error:
            self.leave_half_exchanged()
            raise AppendFailed(describe_error(error, self.folder)) from error
        return bases

    def drop_old(self, now: int, monotonic: int, retention_ms: int) -> list[int]:
        """Set aside the first closed segments whose records are all older than `retention_ms`; return their base offsets.

        Raises AppendFailed as `exchange` does.
        """
        if self.compacting:
            return []
        return self._drop(self._count_old(0, len(self._segments) - 1, now, monotonic, retention_ms))

    def drop_first(self) -> list[int]:
        """Set aside the first segment, whatever its age, unless it is active or a compaction runs; return its base offset in a list.

        Raises AppendFailed as `exchange` does.
        """
        return self._drop(1) if len(self._segments) > 1 and not self.compacting else []

    def _count_old(self, count: int, end: int, now: int, monotonic: int, retention_ms: int) -> int:
        """The number of segments to delete: at least `count`, at most `end`.

        A segment whose time is in the future has it from a wrong clock, of the broker or a client. Its age counts, in `monotonic` time,
        from the first call that saw the segment with its current size.
        """
        previous, self._future_segments = self._future_segments, {}
        all_old = True
        for number, segment in enumerate(self._segments):
            age = now - self._written_at(segment)
            if age < -CLOCK_AHEAD_MAX_MS:
                known = previous.get(segment.base)
                if known is None or known[0] != segment.size:
                    known = segment.size, monotonic
                self._future_segments[segment.base] = known
                age = monotonic - known[1]
            if all_old and count <= number < end:
                all_old = age > retention_ms
                count += all_old
        return count

    def _drop(self, count: int) -> list[int]:
        """Set aside the first `count` segments."""
        bases = self._bases[:count]
        try:
            self._release_files(0, count)
            for base in bases:
                set_aside(self._disk, self.folder, base)
        except OSError as error:
            self.leave_half_exchanged()
            raise AppendFailed(describe_error(error, self.folder)) from error
        del self._segments[:count]
        if bases:
            self._set_start(max(self.start_offset, self._segments[0].base))
        return bases

    def _set_start(self, offset: int) -> None:
        self.start_offset = offset
        self._epochs = from_offset(self._epochs, offset)

    @property
    def _bases(self) -> list[int]:
        return [segment.base for segment in self._segments]

    def _release_files(self, first: int, end: int) -> None:
        for segment in self._segments[first:end]:
            segment.keep_for_readers()
            segment.close()


def _base_of(segment: Segment) -> int:
    return segment.base
