"""Where partitions end, noted now and then in __coordinator_notes: what the lag of a group at some moment was can be told later.

A pass goes over all partitions in slices, between which the loop goes on, and notes those whose offsets are not what was noted
last. Passes that find much have to wait for room: notes of groups are worth more, and lie in the same logs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

from broker.groups.group_journal import GroupJournal
from broker.runtime.clock import Clock
from broker.runtime.contain import Contained
from broker.topics.partitions import Partitions
from broker.topics.registry import Topic, Topics
from coordinator.hold import BATCH_OVERHEAD_BYTES
from protocol.messages.coordinator_notes import EndOffsets, PartitionEnds

SLICE_SECONDS = 0.002
PAUSE_SECONDS = 0.005
PARTITIONS_IN_A_NOTE = 500
# A quarter of the room for notes, filled in a day; where notes have any room, so much a second.
SHARE = 4
DAY_MS = 86_400_000
BYTES_A_SECOND_UNBOUNDED = 4_096
BYTES_AT_ONCE = 64 * 1_024
NOTE_BYTES = BATCH_OVERHEAD_BYTES + 80  # besides the name and the partitions
PARTITION_BYTES = 21

Tell = Callable[[GroupJournal, EndOffsets], bool]


class _Noted:
    """What was noted of one topic."""

    __slots__ = ("ends", "looked_ms")

    def __init__(self) -> None:
        self.ends: dict[int, tuple[int, int]] = {}
        self.looked_ms = -1  # when the last look at all of its partitions began


class EndOffsetNotes:
    """Of all topics but internal ones."""

    def __init__(
        self,
        interval_ms: int,
        room_bytes: int,
        topics: Topics,
        partitions: Partitions,
        place: Callable[[str], GroupJournal],
        tell: Tell,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
    ) -> None:
        """`interval_ms`: 0: never. `room_bytes`: of all notes, below 0: any. `place`: the partition that a name belongs to."""
        self._seconds = interval_ms / 1_000
        self._topics = topics
        self._partitions = partitions
        self._place = place
        self._tell = tell
        self._loop = loop
        self._clock = clock
        rate = room_bytes / SHARE / DAY_MS * 1_000 if room_bytes >= 0 else BYTES_A_SECOND_UNBOUNDED
        self._bytes_a_pass = rate * self._seconds
        self._bytes = float(BYTES_AT_ONCE if room_bytes else 0)
        self._noted: dict[bytes, _Noted] = {}
        self._pass: Iterator[None] | None = None
        self._began = 0.0
        self._timer: asyncio.TimerHandle | None = None
        if interval_ms and room_bytes:
            self._next()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _next(self) -> None:
        self._timer = self._loop.call_later(self._seconds, Contained(self._go_on, self._anew))

    def _anew(self) -> None:
        """An exception of ours ended a pass: the next one begins at its time."""
        self._pass = None
        self._next()

    def _go_on(self) -> None:
        """Each interval: more may be noted, and the pass under way goes on, or another one begins."""
        self._bytes = min(self._bytes + self._bytes_a_pass, max(BYTES_AT_ONCE, self._bytes_a_pass))
        self._slice()

    def _slice(self) -> None:
        if self._pass is None:
            self._pass = self._look()
        self._clock.tick()
        until = time.monotonic() + SLICE_SECONDS
        while self._bytes > 0:
            if next(self._pass, self) is self:
                self._pass = None
                break
            if time.monotonic() >= until:
                self._timer = self._loop.call_later(PAUSE_SECONDS, Contained(self._slice, self._anew))
                return
        self._next()

    def _look(self) -> Iterator[None]:
        """One pass; what it yields between are places to rest."""
        for id in list(self._topics.by_id):
            topic = self._topics.by_id.get(id)
            if topic is not None and not topic.internal:
                yield from self._look_at(topic)
        self._noted = {id: noted for id, noted in self._noted.items() if id in self._topics.by_id}

    def _look_at(self, topic: Topic) -> Iterator[None]:
        noted = self._noted.setdefault(topic.id, _Noted())
        began = self._clock.wall
        complete = True
        changed: dict[int, tuple[int, int]] = {}
        for partition in list(self._partitions.of(topic)):
            yield
            if partition.error:
                if not self._partitions.has_nothing(partition):
                    complete = False
                    continue
                ends = 0, 0
            else:
                ends = partition.start_offset, partition.end_offset
            if noted.ends.get(partition.index) != ends:
                changed[partition.index] = ends
            if len(changed) == PARTITIONS_IN_A_NOTE:
                complete &= self._note(topic, noted, changed)
                changed = {}
        if changed:
            complete &= self._note(topic, noted, changed)
        if complete:
            noted.looked_ms = began

    def _note(self, topic: Topic, noted: _Noted, changed: dict[int, tuple[int, int]]) -> bool:
        """False: it cannot be noted now, and is looked at again."""
        entries = [PartitionEnds(index, start, end) for index, (start, end) in changed.items()]
        if not self._tell(self._place(topic.name), EndOffsets(topic.name, entries, noted.looked_ms)):
            return False
        self._bytes -= NOTE_BYTES + 3 * len(topic.name) + PARTITION_BYTES * len(entries)
        noted.ends.update(changed)
        return True
