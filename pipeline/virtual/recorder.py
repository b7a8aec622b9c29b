"""Recorders for the two logs of each partition of a virtual world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from coordinator import Fact
from history import GroupRecord, NoteRecord, read_group_record
from protocol.batch import facts_of


class Recorder(Protocol):
    def append(self, partition: int, batch: bytearray, records: int, at_ms: int, epoch: int) -> int:
        """Append a batch to __consumer_offsets; return the offset of its first record."""
        ...

    def write_notes(self, partition: int, notes: Sequence[NoteRecord], at_ms: int) -> None:
        """Append a batch to __coordinator_notes."""
        ...


class Stored(NamedTuple):
    offset: int
    at_ms: int
    epoch: int
    fact: Fact


class MemoryRecorder:
    """Keeps both logs of each partition in memory."""

    def __init__(self) -> None:
        self.records: dict[int, list[Stored]] = {}
        self.notes: dict[int, list[NoteRecord]] = {}

    def append(self, partition: int, batch: bytearray, records: int, at_ms: int, epoch: int) -> int:
        log = self.records.setdefault(partition, [])
        begin = len(log)
        log += [Stored(begin + number, at_ms, epoch, fact) for number, fact in enumerate(facts_of(bytes(batch)))]
        assert len(log) == begin + records
        return begin

    def write_notes(self, partition: int, notes: Sequence[NoteRecord], at_ms: int) -> None:
        self.notes.setdefault(partition, []).extend(notes)

    def note_records(self, partition: int = 0) -> list[NoteRecord]:
        return self.notes.get(partition, [])

    def group_records(self, group: str, partition: int = 0) -> list[GroupRecord]:
        read = [read_group_record(group, stored.offset, stored.at_ms, stored.epoch, *stored.fact) for stored in self.records.get(partition, [])]
        return [record for record in read if record is not None]


class DiscardingRecorder:
    """Discards the logs, if only the true history is needed."""

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}

    def append(self, partition: int, batch: bytearray, records: int, at_ms: int, epoch: int) -> int:
        begin = self._ends.get(partition, 0)
        self._ends[partition] = begin + records
        return begin

    def write_notes(self, partition: int, notes: Sequence[NoteRecord], at_ms: int) -> None: ...
