"""Periodically write the end offsets of partitions to __coordinator_notes (the history of groups), so that past lag can be computed.

A pass visits all partitions in slices, between which the loop runs, and notes offsets that changed since the last note. The rate of
bytes is limited, since the more important notes of groups share the same logs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

from broker.groups.group_journal import GroupJournal
from broker.runtime.clock import Clock
from broker.runtime.contain import Contained
from broker.topics.partitions import Partitions
from broker.topics.registry import Topic, TopicRegistry
from coordinator.hold import BATCH_OVERHEAD_BYTES
from protocol.messages.coordinator_notes import EndOffsets, PartitionEnds

SLICE_SECONDS = 0.002
PAUSE_SECONDS = 0.005
PARTITIONS_PER_NOTE_MAX = 500
# End offsets may fill a quarter of notes.retention.bytes per day. If that setting means no limit, BYTES_PER_SECOND_UNBOUNDED applies.
RETENTION_DIVISOR = 4
DAY_MS = 86_400_000
BYTES_PER_SECOND_UNBOUNDED = 4_096
BURST_BYTES = 64 * 1_024
NOTE_BYTES = BATCH_OVERHEAD_BYTES + 80  # without the topic name and the partitions
PARTITION_BYTES = 21

WriteEndOffsets = Callable[[GroupJournal, EndOffsets], bool]


class _Noted:
    """The noted end offsets of one topic."""

    __slots__ = ("ends", "scanned_ms")

    def __init__(self) -> None:
        self.ends: dict[int, tuple[int, int]] = {}
        self.scanned_ms = -1  # start of the last complete scan of its partitions


class EndOffsetNotes:
    """Notes the end offsets of all topics except internal topics."""

    def __init__(
        self,
        interval_ms: int,
        notes_retention_bytes: int,
        topics: TopicRegistry,
        partitions: Partitions,
        journal_of: Callable[[str], GroupJournal],
        write_end_offsets: WriteEndOffsets,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`interval_ms` 0: never. `notes_retention_bytes` below 0: no limit.

        `journal_of`: the partition of __consumer_offsets, by topic name, beside whose notes the topic's end offsets are written.
        """
        self._seconds = interval_ms / 1_000
        self._topics = topics
        self._partitions = partitions
        self._journal_of = journal_of
        self._write_end_offsets = write_end_offsets
        self._loop = loop
        self._clock = clock
        self._monotonic = monotonic
        rate = notes_retention_bytes / RETENTION_DIVISOR / DAY_MS * 1_000 if notes_retention_bytes >= 0 else BYTES_PER_SECOND_UNBOUNDED
        self._bytes_per_interval = rate * self._seconds
        self._budget_bytes = float(BURST_BYTES if notes_retention_bytes else 0)
        self._noted: dict[bytes, _Noted] = {}
        self._pass: Iterator[None] | None = None
        self._began = 0.0
        self._timer: asyncio.TimerHandle | None = None
        if interval_ms and notes_retention_bytes:
            self._schedule_next()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule_next(self) -> None:
        self._timer = self._loop.call_later(self._seconds, Contained(self._continue, self._drop_pass))

    def _drop_pass(self) -> None:
        """Drop a pass that raised; the next one begins on schedule."""
        self._pass = None
        self._schedule_next()

    def _continue(self) -> None:
        """Once per interval: refill the budget, and continue the pass or begin the next."""
        self._budget_bytes = min(self._budget_bytes + self._bytes_per_interval, max(BURST_BYTES, self._bytes_per_interval))
        self._slice()

    def _slice(self) -> None:
        if self._pass is None:
            self._pass = self._scan()
        self._clock.tick()
        until = self._monotonic() + SLICE_SECONDS
        while self._budget_bytes > 0:
            if next(self._pass, self) is self:
                self._pass = None
                break
            if self._monotonic() >= until:
                self._timer = self._loop.call_later(PAUSE_SECONDS, Contained(self._slice, self._drop_pass))
                return
        self._schedule_next()

    def _scan(self) -> Iterator[None]:
        """One pass over all topics; it may be suspended at each yield."""
        for id in list(self._topics.by_id):
            topic = self._topics.by_id.get(id)
            if topic is not None and not topic.internal:
                yield from self._scan_topic(topic)
        self._noted = {id: noted for id, noted in self._noted.items() if id in self._topics.by_id}

    def _scan_topic(self, topic: Topic) -> Iterator[None]:
        noted = self._noted.setdefault(topic.id, _Noted())
        began = self._clock.wall
        complete = True
        changed: dict[int, tuple[int, int]] = {}
        for partition in list(self._partitions.of_topic(topic)):
            yield
            if partition.error:
                if not self._partitions.was_never_written(partition):
                    complete = False
                    continue
                ends = 0, 0
            else:
                ends = partition.start_offset, partition.high_watermark
            if noted.ends.get(partition.index) != ends:
                changed[partition.index] = ends
            if len(changed) == PARTITIONS_PER_NOTE_MAX:
                complete &= self._note(topic, noted, changed)
                changed = {}
        if changed:
            complete &= self._note(topic, noted, changed)
        if complete:
            noted.scanned_ms = began

    def _note(self, topic: Topic, noted: _Noted, changed: dict[int, tuple[int, int]]) -> bool:
        """Write a note; False: not possible now, so the next pass tries again."""
        entries = [PartitionEnds(index, start, end) for index, (start, end) in changed.items()]
        if not self._write_end_offsets(self._journal_of(topic.name), EndOffsets(topic.name, entries, noted.scanned_ms)):
            return False
        self._budget_bytes -= NOTE_BYTES + 3 * len(topic.name) + PARTITION_BYTES * len(entries)
        noted.ends.update(changed)
        return True
