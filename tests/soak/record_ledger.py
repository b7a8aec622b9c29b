"""The batches of producers, their replies and the records of a reader, and the guarantees for them. No sockets and no clock.

Guarantees: an acknowledged record is at its acknowledged offset, and stays there; the records of one producer in one partition are in
order, without gaps or duplicates; offsets are consecutive; a record that was read once is in every later read. Each producer numbers its records by
partition from 0 on, and a restarted producer is another one.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol.errors import ErrorCode

# Codes after which a careful client continues; any other would have stopped it, or lost a record.
OPENING = (ErrorCode.NOT_LEADER_OR_FOLLOWER,)
EXPECTED: dict[str, tuple[int, ...]] = {
    "Produce": (*OPENING, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    "Fetch": OPENING,
    "InitProducerId": (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR),
}


class Mark(NamedTuple):
    """The identity of a record, which is part of its value."""

    producer: str
    number: int


class RecordLedger:
    def __init__(self, partitions: int) -> None:
        self.broker_run = 0  # how often the broker was restarted
        self.violations: list[str] = []
        self.counts: dict[str, int] = {}
        self._log: list[list[Mark]] = [[] for _ in range(partitions)]  # the records that were read, by offset
        self._promised: list[dict[int, Mark]] = [{} for _ in range(partitions)]  # by offset: records that are acknowledged and not read yet
        self._ends = [0] * partitions  # the end offset after all acknowledged records
        self._floors = [0] * partitions  # `_ends` as of the last restart
        self._names: dict[tuple[int, int], str] = {}
        self._sent: dict[tuple[str, int], int] = {}  # by producer and partition: how many records it has numbered
        self._read: dict[tuple[str, int], int] = {}  # how many of these records were read
        self._acknowledged_end: dict[tuple[str, int], tuple[int, int]] = {}  # after the newest acknowledged record: the next number and offset

    def report_violation(self, problem: str) -> None:
        self.violations.append(f"run {self.broker_run}: {problem}")

    def count(self, action: str, times: int = 1) -> None:
        self.counts[action] = self.counts.get(action, 0) + times

    def restarted(self) -> None:
        self.broker_run += 1
        self._floors = list(self._ends)

    def answered(self, client: str, api: str, code: int) -> None:
        """Check an error reply."""
        self.count(f"{api} {code}")
        if code not in EXPECTED[api]:
            self.report_violation(f"unexpected code: {api} of {client} was answered {code}")

    def producer_id_assigned(self, producer: str, producer_id: tuple[int, int]) -> None:
        """Note the producer id and epoch of a producer; no other producer may get the same."""
        owner = self._names.setdefault(producer_id, producer)
        if owner != producer:
            self.report_violation(f"producer id assigned twice: {producer} got {producer_id}, which {owner} has")

    def sent(self, partition: int, first: Mark, count: int) -> None:
        assert self._sent.get((first.producer, partition), 0) == first.number
        self._sent[first.producer, partition] = first.number + count

    def acknowledged(self, partition: int, first: Mark, count: int, offset: int) -> None:
        producer, number = first
        self.count("acknowledged", count)
        newest = self._acknowledged_end.get((producer, partition), (0, 0))
        if (number < newest[0]) != (offset < newest[1]):
            self.report_violation(f"order: {first} is at {offset} of partition {partition}, and its producer's records before number {newest[0]} end at offset {newest[1]}")
        self._acknowledged_end[producer, partition] = max(newest, (number + count, offset + count))
        self._ends[partition] = max(self._ends[partition], offset + count)
        log, promised = self._log[partition], self._promised[partition]
        for at in range(offset, offset + count):
            mark = Mark(producer, number + at - offset)
            stored = log[at] if at < len(log) else promised.get(at, mark)
            if stored != mark:
                self.report_violation(f"two at one offset: {mark} was acknowledged at {at} of partition {partition}, where {stored} is")
            if at >= len(log):
                promised[at] = mark

    # The reader.

    def end(self, partition: int) -> int:
        """The least end offset that the partition must have: a lower one means lost records."""
        return max(self._ends[partition], len(self._log[partition]))

    def high_watermark(self, partition: int, offset: int, end: int) -> None:
        """Check a reply. `end`: the result of `end()` before the request."""
        if offset < end:
            self.report_violation(f"lost records: partition {partition} ends at {offset}, {end} was acknowledged or read")

    def read(self, partition: int, offset: int, mark: Mark) -> None:
        log = self._log[partition]
        if offset < len(log):
            self.count("read again")
            if log[offset] != mark:
                self.report_violation(f"changed record: offset {offset} of partition {partition} was {log[offset]} and is {mark}")
            return
        self.count("read")
        if offset > len(log):
            self.report_violation(f"a gap: offset {offset} of partition {partition} follows {len(log) - 1}")
            return
        sequence = mark.producer, partition
        expected = self._read.get(sequence, 0)
        if mark.number < expected:
            self.report_violation(f"twice: {mark} is at {offset} of partition {partition} again")
        elif mark.number >= self._sent.get(sequence, 0):
            self.report_violation(f"invented record: {mark} is at {offset} of partition {partition}")
        elif mark.number > expected:
            self.report_violation(f"left out: {mark} is at {offset} of partition {partition}, without number {expected} before it")
        self._read[sequence] = mark.number + 1
        promised = self._promised[partition].pop(offset, mark)
        if promised != mark:
            self.report_violation(f"lost record: {promised} was acknowledged at {offset} of partition {partition}, where {mark} is")
        log.append(mark)

    def read_up_to_the_restart(self, positions: list[int]) -> bool:
        return all(position >= floor for position, floor in zip(positions, self._floors, strict=True))

    def all_read(self, positions: list[int]) -> bool:
        return all(position >= self.end(partition) for partition, position in enumerate(positions))
