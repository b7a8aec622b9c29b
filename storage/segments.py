"""The segments of one log, in order: reading what they hold, and what closed ones give way to.

The half of a log that does not grow; flushed.py has what is on the disk for good, log.py what grows.
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
from storage.reading import Reading
from storage.segment import Segment
from storage.swap import Cleaned, Closed, exchange, set_aside
from storage.times import Found, find_time, first_timestamp, latest

# Steps of the clock below a minute count at once, so what was written just now may lie as far ahead; or twice, after one ahead and one back.
AHEAD_MS: Final = 120_000


class Segments:
    """What is there, up to `next_offset`. `start_offset` is where it begins for those who read: in the first segment, or at it."""

    __slots__ = (
        "_ahead",
        "_disk",
        "_epochs",
        "_exchange_failed",
        "_handles",
        "_segments",
        "at_work",
        "compacting",
        "epoch",
        "folder",
        "start_offset",
        "usable",
    )

    def __init__(self, handles: Handles, folder: str) -> None:
        self.folder = folder
        self.usable = True
        self.epoch = 0
        self.start_offset = 0
        self.at_work = 0  # threads and processes that use the folder by its name: it is not renamed or repaired meanwhile
        self.compacting = False  # closed segments stay what they are
        self._handles = handles
        self._disk: Disk = handles.disk
        self._segments: list[Segment] = []
        self._epochs: Epochs = []
        self._ahead: dict[int, tuple[int, int]] = {}  # segments later than the clock: their size, and when that was seen first
        self._exchange_failed = False  # halfway: what the folder holds is not what `_segments` says

    def use(self, handles: Handles) -> None:
        """From now on these open files: the log was opened in another thread, with handles of its own."""
        self._handles = handles
        for segment in self._segments:
            segment.use(handles)

    @property
    def next_offset(self) -> int:
        return self._segments[-1].next_offset if self._segments else self.start_offset

    @property
    def high_watermark(self) -> int:
        """One replica: what is written is committed."""
        return self._segments[-1].next_offset if self._segments else self.start_offset

    @property
    def size(self) -> int:
        return sum([segment.size for segment in self._segments])

    @property
    def segments(self) -> int:
        """How many there are."""
        return len(self._segments)

    @property
    def newest_timestamp(self) -> int:
        return max([segment.max_timestamp for segment in self._segments], default=-1)

    # Reading.

    def read(self, offset: int, bytes_max: int, end: int = -1) -> bytes:
        """Whole batches from the one that holds `offset` on, of one segment; b"" at the end, which is `end` where that is given.

        As many as fit, or some KiB less where that is much; but one at least. Checksums are the reader's to verify, as in
        Kafka; DamagedLog where no batch can be.
        """
        if not self._segments:
            return b""
        return self._segment_at(offset).read(offset, bytes_max, end if end >= 0 else self.next_offset)

    def extent(self, offset: int, bytes_max: int, end: int = -1, one_at_least: bool = True) -> Extent | None:
        """What `read` would give, found and not read; None at the end, and where the first batch is too large and need not be had."""
        if not self._segments:
            return None
        segment = self._segment_at(offset)
        closed = segment is not self._segments[-1]
        return extent_of(segment, offset, bytes_max, end if end >= 0 else self.next_offset, closed, one_at_least)

    def _segment_at(self, offset: int) -> Segment:
        """The one with the first batch that ends at `offset` or behind it; the last one where there is none."""
        segments = self._segments
        if offset < segments[-1].base:  # nearly everybody reads in the last one
            for number in range(max(bisect_right(segments, offset, key=_base_of) - 1, 0), len(segments)):
                segment = segments[number]
                if offset < segment.next_offset and segment.size:
                    return segment
        return segments[-1]

    def _between(self, offset: int, end: int) -> list[Segment]:
        return [segment for segment in self._segments if segment.next_offset > offset and segment.base < end]

    def facts(self, end: int | None = None) -> Iterator[list[Fact]]:
        """Key and value of every record of the log, up to `end`, or to what is the end now; some thousand at a time.

        Raises DamagedLog where batches are not as they were written, after what is before the damage or without some of it.
        """
        stop = self.next_offset if end is None else end
        segments = self._between(0, stop)
        return Reading(segments, chain.from_iterable([segment.facts(stop) for segment in segments]))

    def find_time(self, timestamp: int) -> Iterator[Found | None]:
        """The first record that is at least as late, in the end, if there is one; None behind each step before.

        Segments that give way meanwhile are read on. Raises DamagedLog and OSError.
        """
        segments = self._between(self.start_offset, self.next_offset)
        return Reading(segments, find_time(segments, timestamp, self.start_offset))

    def latest_record(self) -> Iterator[Found | None]:
        """The record with the largest timestamp, the first of several; in steps as `find_time`."""
        segments = self._between(self.start_offset, self.next_offset)
        return Reading(segments, latest(segments, self.start_offset))

    def epoch_at(self, offset: int) -> int:
        """Under which epoch the record at `offset` was written; -1 where nobody knows."""
        return epoch_at(self._epochs, offset)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The newest epoch not above `epoch`, and the offset where it ended: as Kafka's OffsetForLeaderEpoch has it.

        (-1, -1) for one that there is not, or not yet.
        """
        if epoch == UNKNOWN:
            return UNKNOWN, UNKNOWN
        if epoch == self.epoch:
            return epoch, self.next_offset
        # The newest has begun, though nothing may be written under it.
        return epoch_end(with_epoch(self._epochs, self.epoch, self.next_offset), epoch)

    # Cleaning and dropping: what is closed gives way.

    @property
    def closed(self) -> list[Closed]:
        """All segments but the last one, which grows."""
        return [Closed(segment.base, segment.size) for segment in self._segments[:-1]]

    @property
    def last_base(self) -> int:
        """Where the closed segments end."""
        return self._segments[-1].base if self._segments else self.start_offset

    def closed_before(self, timestamp: int) -> tuple[list[Closed], int]:
        """The closed segments up to the first that has a record later than `timestamp`, and where they end: the others must
        not be compacted yet.
        """
        found: list[Closed] = []
        for segment in self._segments[:-1]:
            if self._written_at(segment) > timestamp:
                return found, segment.base
            found.append(Closed(segment.base, segment.size))
        return found, self.last_base

    def _written_at(self, segment: Segment) -> int:
        """By its records; by its first batch where a compaction has left none; by its file where there are no timestamps."""
        written = segment.max_timestamp if segment.max_timestamp >= 0 else first_timestamp(segment)
        return written if written >= 0 else self._disk.modified_ms(segment.log_path)

    def bytes_since(self, offset: int) -> int:
        """How large the segments are that do not end before `offset`."""
        return sum([segment.size for segment in self._segments if segment.next_offset > offset])

    def first_timestamp_since(self, offset: int) -> int:
        """Of the first batch in the segments that do not end before `offset`; -1 where there is none."""
        for segment in self._segments:
            if segment.next_offset > offset and segment.size:
                return first_timestamp(segment)
        return -1

    def begin_compaction(self) -> None:
        """Until `end_compaction` the folder and its closed segments belong to the compaction."""
        assert not self.compacting, "one compaction at a time"
        self.compacting = True
        self.at_work += 1

    def end_compaction(self) -> None:
        self.compacting = False
        self.at_work -= 1

    def leave_half_exchanged(self) -> None:
        """Promoted segments could not be taken back: before anything else happens to the log, a repair gives them their place."""
        self.usable = False
        self._exchange_failed = True

    @property
    def half_exchanged(self) -> bool:
        return self._exchange_failed

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
                segment.use(self._handles)
                self._segments[first:behind] = [segment]
                bases += new.replaces
        except OSError as error:
            self.leave_half_exchanged()
            raise AppendFailed(describe_error(error, self.folder)) from error
        return bases

    def drop_old(self, now: int, monotonic: int, retention_ms: int) -> list[int]:
        """Set aside the closed segments at the log's beginning in which everything is older; the bases of their files.

        Raises AppendFailed as `exchange` does.
        """
        if self.compacting:
            return []
        return self._drop(self._count_old(0, len(self._segments) - 1, now, monotonic, retention_ms))

    def drop_first(self) -> list[int]:
        """Set aside the first segment, where it is closed; otherwise as `drop_old`."""
        return self._drop(1) if len(self._segments) > 1 and not self.compacting else []

    def _count_old(self, count: int, end: int, now: int, monotonic: int, retention_ms: int) -> int:
        """How many segments go, `count` of them in any case, and none from number `end` on.

        What lies ahead of the clock was written by a wrong one, here or at the client. It ages from when it was written, as far as
        was seen by calls of this: `monotonic` is the time for that.
        """
        seen, self._ahead = self._ahead, {}
        still = True
        for number, segment in enumerate(self._segments):
            age = now - self._written_at(segment)
            if age < -AHEAD_MS:
                known = seen.get(segment.base)
                if known is None or known[0] != segment.size:
                    known = segment.size, monotonic
                self._ahead[segment.base] = known
                age = monotonic - known[1]
            if still and count <= number < end:
                still = age > retention_ms
                count += still
        return count

    def _drop(self, count: int) -> list[int]:
        """The first so many segments, of which the last one stays."""
        bases = self._bases[:count]
        try:
            self._give_up(0, count)
            for base in bases:
                set_aside(self._disk, self.folder, base)
        except OSError as error:
            self.leave_half_exchanged()
            raise AppendFailed(describe_error(error, self.folder)) from error
        del self._segments[:count]
        if bases:
            self._begins_at(max(self.start_offset, self._segments[0].base))
        return bases

    def _begins_at(self, offset: int) -> None:
        self.start_offset = offset
        self._epochs = from_offset(self._epochs, offset)

    @property
    def _bases(self) -> list[int]:
        return [segment.base for segment in self._segments]

    def _give_up(self, first: int, behind: int) -> None:
        for segment in self._segments[first:behind]:
            segment.keep_for_readers()
            segment.close()


def _base_of(segment: Segment) -> int:
    return segment.base
