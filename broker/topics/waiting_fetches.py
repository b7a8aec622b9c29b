"""Parked fetches, woken only by appends to their partitions or by their deadline.

An append marks the fetches that wait for its partition; at the end of the turn each of them checks the partitions that grew. All
deadlines are in one heap; the entry of a fetch that was answered early stays there until it is due or the heap is compacted.
"""

from __future__ import annotations

from collections.abc import Collection
from heapq import heapify, heappop, heappush
from typing import Protocol

from broker.net.connection import Connection
from broker.runtime.clock import Clock
from broker.runtime.contain import report_broken
from broker.runtime.turn import NEVER, TurnEnd
from broker.topics.partition import Partition

ANSWERED_PER_TURN = 256
ENDED_ENTRIES_MIN = 1_000  # before the heap is compacted


class ParkableFetch(Protocol):
    """A fetch that can be parked."""

    def has_enough(self, grown: Collection[Partition]) -> bool:
        """Whether there are enough bytes for an answer, after these partitions have grown."""
        ...

    def complete(self) -> None:
        """Answer with the available records."""
        ...


class Scheduler(Protocol):
    def call_first_at_turn_end(self, target: TurnEnd) -> None: ...

    def wake_by(self, at: int) -> None: ...


class ParkedFetch:
    """One parked fetch, notified by its partitions when they grow, and by its connection when the connection ends."""

    __slots__ = ("_connection", "_fetches", "ended", "fetch", "grown_partitions", "partitions")

    def __init__(self, fetches: ParkedFetches, fetch: ParkableFetch, partitions: Collection[Partition], connection: Connection) -> None:
        self.fetch = fetch
        self.partitions = partitions
        self.grown_partitions: dict[Partition, None] = {}
        self.ended = False
        self._fetches = fetches
        self._connection = connection
        connection.on_lost = self.end
        for partition in partitions:
            partition.waiters[self] = None

    def grown(self, partition: Partition) -> None:
        if not self.grown_partitions:
            self._fetches.mark(self)
        self.grown_partitions[partition] = None

    def end(self, in_heap: bool = True) -> None:
        """Stop waiting: the fetch is answered, or its connection has ended. `in_heap`: its deadline is still in the heap."""
        if self.ended:
            return
        self.ended = True
        self._connection.on_lost = None
        for partition in self.partitions:
            partition.waiters.pop(self, None)
        self.partitions = ()
        self.grown_partitions.clear()
        if in_heap:
            self._fetches.ended()

    def handle_defect(self, error: Exception, in_heap: bool = True) -> None:
        """Close the connection of a fetch that raised."""
        self.end(in_heap)
        report_broken(self._connection, "a fetch failed inside the broker while it waited", error)


class ParkedFetches:
    """All parked fetches and their deadlines."""

    def __init__(self, turn: Scheduler, clock: Clock) -> None:
        self._turn = turn
        self._clock = clock
        self._heap: list[tuple[int, int, ParkedFetch]] = []  # deadline, sequence number, fetch
        self._number = 0
        self._ended_entries = 0
        self._marked: dict[ParkedFetch, None] = {}

    def __len__(self) -> int:
        return len(self._heap) - self._ended_entries

    def park(self, fetch: ParkableFetch, partitions: Collection[Partition], connection: Connection, wait_ms: int) -> None:
        """Park `fetch` until it has enough, `wait_ms` have passed, or its connection ends."""
        waiting = ParkedFetch(self, fetch, partitions, connection)
        at = self._clock.now + wait_ms
        self._number += 1
        heappush(self._heap, (at, self._number, waiting))
        self._turn.wake_by(at)

    def mark(self, waiting: ParkedFetch) -> None:
        if not self._marked:
            self._turn.call_first_at_turn_end(self)
        self._marked[waiting] = None

    def ended(self) -> None:
        """Count an ended fetch in the heap, and compact the heap if most entries are ended."""
        self._ended_entries += 1
        if self._ended_entries > ENDED_ENTRIES_MIN and 2 * self._ended_entries > len(self._heap):
            self._heap = [entry for entry in self._heap if not entry[2].ended]
            heapify(self._heap)
            self._ended_entries = 0

    def end_turn(self) -> None:
        marked, self._marked = self._marked, {}
        answered = 0
        for waiting in marked:
            if waiting.ended:
                continue
            if answered == ANSWERED_PER_TURN:
                self.mark(waiting)
                continue
            try:
                if waiting.fetch.has_enough(waiting.grown_partitions):
                    answered += 1
                    waiting.end()
                    waiting.fetch.complete()
                else:
                    waiting.grown_partitions.clear()
            except Exception as error:
                waiting.handle_defect(error)

    def handle_defect(self) -> None:
        """Check the marked fetches in the next turn, after an exception in this one."""
        if self._marked:
            self._turn.call_first_at_turn_end(self)

    @property
    def wake_at(self) -> int:
        return self._heap[0][0] if self._heap else NEVER

    def advance(self, now: int) -> None:
        answered = 0
        while self._heap and self._heap[0][0] <= now and answered < ANSWERED_PER_TURN:
            waiting = heappop(self._heap)[2]
            if waiting.ended:
                self._ended_entries -= 1
                continue
            answered += 1
            try:
                waiting.end(in_heap=False)
                waiting.fetch.complete()
            except Exception as error:
                waiting.handle_defect(error, in_heap=False)
