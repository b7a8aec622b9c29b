"""Fetches that wait for more: woken by what is appended, or by their deadline, and by nothing in between.

An append marks those that wait for its partition; at the end of the same turn each of them looks at what has grown.
All deadlines are in one heap. A fetch that was answered before its time leaves its place there to be found empty.
"""

from __future__ import annotations

from collections.abc import Collection
from heapq import heapify, heappop, heappush
from typing import Protocol

from broker.net.connection import Connection
from broker.runtime.clock import Clock
from broker.runtime.contain import broken
from broker.runtime.turn import NEVER, TurnEnd
from broker.topics.partition import Partition

ANSWERED_AT_ONCE = 256  # what more are due leave a turn to others
EMPTY_PLACES_MIN = 1_000


class Fetch(Protocol):
    """A fetch as far as waiting goes."""

    def enough(self, grown: Collection[Partition]) -> bool:
        """Whether what there is now, these having grown, is worth an answer."""
        ...

    def complete(self) -> None:
        """Answer with what there is; it does not wait any more."""
        ...


class Scheduler(Protocol):
    def schedule_append(self, journal: TurnEnd) -> None: ...

    def wake_by(self, at: int) -> None: ...


class Waiting:
    """One parked fetch: who waits for its partitions, and who hears that its connection ended."""

    __slots__ = ("_connection", "_fetches", "fetch", "grown_partitions", "over", "partitions")

    def __init__(self, fetches: Fetches, fetch: Fetch, partitions: Collection[Partition], connection: Connection) -> None:
        self.fetch = fetch
        self.partitions = partitions
        self.grown_partitions: dict[Partition, None] = {}
        self.over = False
        self._fetches = fetches
        self._connection = connection
        connection.leave = self.end
        for partition in partitions:
            partition.waiters[self] = None

    def grown(self, partition: Partition) -> None:
        if not self.grown_partitions:
            self._fetches.mark(self)
        self.grown_partitions[partition] = None

    def end(self, in_heap: bool = True) -> None:
        """It waits no more, for whatever reason."""
        if self.over:
            return
        self.over = True
        self._connection.leave = None
        for partition in self.partitions:
            partition.waiters.pop(self, None)
        self.partitions = ()
        self.grown_partitions.clear()
        if in_heap:
            self._fetches.ended()

    def broken(self, error: Exception, in_heap: bool = True) -> None:
        """It raised: its connection waits for nothing more, and ends."""
        self.end(in_heap)
        broken(self._connection, "a fetch failed inside the broker while it waited", error)


class Fetches:
    """All fetches that wait; an actor whose deadlines are theirs."""

    def __init__(self, turn: Scheduler, clock: Clock) -> None:
        self._turn = turn
        self._clock = clock
        self._heap: list[tuple[int, int, Waiting]] = []  # of equal deadlines the first to come is the first
        self._number = 0
        self._empty_places = 0
        self._marked: dict[Waiting, None] = {}

    def __len__(self) -> int:
        return len(self._heap) - self._empty_places

    @property
    def places(self) -> int:
        return len(self._heap)

    def park(self, fetch: Fetch, partitions: Collection[Partition], connection: Connection, wait_ms: int) -> None:
        """Until `fetch` has enough, or that time is over, or its connection."""
        waiting = Waiting(self, fetch, partitions, connection)
        at = self._clock.now + wait_ms
        self._number += 1
        heappush(self._heap, (at, self._number, waiting))
        self._turn.wake_by(at)

    def mark(self, waiting: Waiting) -> None:
        if not self._marked:
            self._turn.schedule_append(self)
        self._marked[waiting] = None

    def ended(self) -> None:
        """One of them waits no more, and its place is still there."""
        self._empty_places += 1
        if self._empty_places > EMPTY_PLACES_MIN and 2 * self._empty_places > len(self._heap):
            self._heap = [place for place in self._heap if not place[2].over]
            heapify(self._heap)
            self._empty_places = 0

    def end_turn(self) -> None:
        marked, self._marked = self._marked, {}
        answered = 0
        for waiting in marked:
            if waiting.over:
                continue
            if answered == ANSWERED_AT_ONCE:
                self.mark(waiting)
                continue
            try:
                if waiting.fetch.enough(waiting.grown_partitions):
                    answered += 1
                    waiting.end()
                    waiting.fetch.complete()
                else:
                    waiting.grown_partitions.clear()
            except Exception as error:
                waiting.broken(error)

    def broken(self) -> None:
        """A turn of it was lost: those that are marked get the next one."""
        if self._marked:
            self._turn.schedule_append(self)

    @property
    def wake_at(self) -> int:
        return self._heap[0][0] if self._heap else NEVER

    def advance(self, now: int) -> None:
        answered = 0
        while self._heap and self._heap[0][0] <= now and answered < ANSWERED_AT_ONCE:
            waiting = heappop(self._heap)[2]
            if waiting.over:
                self._empty_places -= 1
                continue
            answered += 1
            try:
                waiting.end(in_heap=False)
                waiting.fetch.complete()
            except Exception as error:
                waiting.broken(error, in_heap=False)
