"""Topics that are deleted and created again under the same name, and the ledger of the records of each incarnation.

A record is sent once, or again only with its producer id and sequence: so its value is in the log once at most. A request without a reply may
have its effect at any later time, even for the next topic of the name, since Produce names a topic by its name: its records are *late*.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

Wrong = Callable[[str, str], None]  # the kind of a violation, and its description


class Acknowledged(NamedTuple):
    value: bytes
    node: int
    at: float


class PartitionLedger:
    def __init__(self) -> None:
        self.acknowledged: dict[int, Acknowledged] = {}  # by offset
        self.seen: dict[int, bytes] = {}  # by offset: what a reader was given
        self.end = 0  # after the highest acknowledged offset
        self.start = 0  # by acknowledged DeleteRecords; after a crash the log may begin before what a DeleteRecords without a reply has deleted
        self.start_max = 0  # the highest offset that a DeleteRecords asked for
        self.position = 0  # of the reader


class Incarnation:
    """One topic; its id is another one each time that the name is used."""

    def __init__(self, name: str, number: int, id: bytes, partitions: int, late: set[bytes], wrong: Wrong) -> None:
        self.name = name
        self.number = number
        self.id = id
        self.partitions = [PartitionLedger() for _ in range(partitions)]
        self._places: dict[bytes, tuple[int, int]] = {}  # by value
        self._sent: set[bytes] = set()
        self._late = late  # of all incarnations
        self._wrong = wrong
        self._count = 0
        self._turn = threading.Lock()

    def __str__(self) -> str:
        return f"{self.name} (incarnation {self.number})"

    def new_values(self, partition: int, count: int) -> list[bytes]:
        with self._turn:
            values = [b"%s/%d/%d/%d" % (self.name.encode(), self.number, partition, self._count + each) for each in range(count)]
            self._count += count
            self._sent.update(values)
        return values

    def not_sent(self, values: list[bytes]) -> None:
        with self._turn:
            self._sent.difference_update(values)

    def unanswered(self, values: list[bytes]) -> None:
        with self._turn:
            self._late.update(values)

    def acknowledge(self, partition: int, offset: int, values: list[bytes], node: int) -> None:
        ledger = self.partitions[partition]
        now = time.monotonic()
        with self._turn:
            for at, value in enumerate(values, offset):
                other = ledger.acknowledged.get(at)
                if other is not None and other.value != value:
                    self._report("two records acknowledged at one offset", partition, at, f"{value!r} by node {node}; before that {other.value!r} by node {other.node}")
                seen = ledger.seen.get(at)
                if seen is not None and seen != value:
                    self._report("acknowledged at an offset at which another record was read", partition, at, f"{value!r} by node {node}; {seen!r} was read")
                self._place(partition, at, value)
                ledger.acknowledged[at] = Acknowledged(value, node, now)
                ledger.end = max(ledger.end, at + 1)

    def promised(self, partition: int) -> tuple[int, int]:
        """The start and end that the log must have reached."""
        with self._turn:
            ledger = self.partitions[partition]
            return ledger.start, ledger.end

    def read(self, partition: int, records: Mapping[int, bytes]) -> None:
        """A reader was given these records."""
        ledger = self.partitions[partition]
        with self._turn:
            for at, value in records.items():
                known = ledger.acknowledged.get(at)
                if known is not None and known.value != value:
                    self._report("an acknowledged record was replaced", partition, at, f"{known.value!r}, acknowledged by node {known.node}; now {value!r}")
                seen = ledger.seen.get(at)
                if seen is not None and seen != value:
                    self._report("a record that was read has changed", partition, at, f"{seen!r}; now {value!r}")
                if value not in self._sent and value not in self._late:
                    self._report("a record of another topic", partition, at, f"{value!r}")
                self._place(partition, at, value)
                ledger.seen[at] = value

    def bounds_seen(self, partition: int, promised: tuple[int, int], start: int, end: int, node: int) -> None:
        """A node gave these start and end offsets, in reply to a request that was sent when `promised` was true."""
        start_promised, end_promised = promised
        ledger = self.partitions[partition]
        with self._turn:
            if start >= 0:
                if start < start_promised:
                    self._report("the start offset went back", partition, start, f"from {start_promised}, on node {node}")
                if start > ledger.start_max:
                    self._report("records were deleted that nobody asked for", partition, start, f"up to {ledger.start_max} was asked, on node {node}")
            if 0 <= end < end_promised:
                self._report("the end of the log went back", partition, end, f"from {end_promised}, on node {node}; {ledger.acknowledged.get(end)}")

    def deletion_asked(self, partition: int, offset: int) -> None:
        with self._turn:
            ledger = self.partitions[partition]
            ledger.start_max = max(ledger.start_max, offset)

    def deleted_before(self, partition: int, offset: int) -> None:
        with self._turn:
            ledger = self.partitions[partition]
            ledger.start = max(ledger.start, offset)

    def check_all(self, partition: int, start: int, end: int, records: Mapping[int, bytes]) -> None:
        """The whole log was read, from its first record on: everything that was acknowledged, or read before, must be there."""
        self.bounds_seen(partition, self.promised(partition), start, end, 0)
        self.read(partition, records)
        ledger = self.partitions[partition]
        for at, known in ledger.acknowledged.items():
            if at >= start and at not in records:
                self._report("an acknowledged record is lost", partition, at, f"{known.value!r}, acknowledged by node {known.node}; the log is [{start}, {end})")
        for at, value in ledger.seen.items():
            if at >= start and at not in records:
                self._report("a record that was read is lost", partition, at, f"{value!r}; the log is [{start}, {end})")

    def _place(self, partition: int, at: int, value: bytes) -> None:
        place = self._places.setdefault(value, (partition, at))
        if place != (partition, at):
            self._report("a record is in the log twice", partition, at, f"{value!r}, and at {place}")

    def _report(self, kind: str, partition: int, at: int, text: str) -> None:
        self._wrong(kind, f"{self} partition {partition} offset {at}: {text}")

    @property
    def records(self) -> int:
        return sum(len(ledger.acknowledged) for ledger in self.partitions)


class Topic:
    """A name, and the topic that has it now. Clients use it together; whoever deletes it uses it alone."""

    def __init__(self, name: str, partitions: int, wrong: Wrong) -> None:
        self.name = name
        self.partitions = partitions
        self.incarnations: list[Incarnation] = []
        self._late: set[bytes] = set()
        self._wrong = wrong
        self._users = 0
        self._closed = False
        self._changed = threading.Condition()

    @property
    def current(self) -> Incarnation:
        return self.incarnations[-1]

    def created(self, id: bytes) -> None:
        self.incarnations.append(Incarnation(self.name, len(self.incarnations) + 1, id, self.partitions, self._late, self._wrong))

    @contextmanager
    def shared(self) -> Iterator[Incarnation | None]:
        """None: the topic is being deleted."""
        with self._changed:
            current = None if self._closed or not self.incarnations else self.current
            self._users += current is not None
        try:
            yield current
        finally:
            if current is not None:
                with self._changed:
                    self._users -= 1
                    self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._users)
        try:
            yield
        finally:
            with self._changed:
                self._closed = False
