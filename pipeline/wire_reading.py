"""Reads a range of a live log, with the same results as from directories: missing, aborted and damaged offsets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.coverage import COMPACTED, DAMAGED, RETENTION, CoverageState, Hole, coverage
from pipeline.inputs import FAIL, LOGS, OFFSETS_TOPIC, BadInput, Folder, Inputs, LogId, NoSuchLog
from pipeline.reading import ReadResult, read_batches
from pipeline.resuming import Cursor
from pipeline.rows import Coverage, Segment
from pipeline.survey import EMPTY, columns_of, sound_batches
from pipeline.transactions import OpenTransaction, marker_type, verdicts
from pipeline.wire import COMMITTED, EARLIEST, LATEST, TIMEOUT_S, UNCOMMITTED, Client
from protocol.batch import COMPRESSION_MASK, Compression, CorruptBatch, read_header
from protocol.errors import ErrorCode
from protocol.messages.fetch import PartitionData

TRANSACTIONS_S: Final = 0.5  # much longer than a usual transaction from its offsets to its end
PAUSE_S: Final = 0.02
CODECS: Final = tuple(codec.name.lower() for codec in Compression)


class WireSplit(NamedTuple):
    """The records of one partition from `begin` to before `end`."""

    id: LogId
    source: str
    topic: str
    begin: int
    end: int
    last: CoverageState
    on_corrupt: str
    open: tuple[OpenTransaction, ...] = ()  # at `begin`
    config: str = ""  # the file with the settings for a secured cluster
    whole_batches_only: bool = True  # exclude a batch that extends past the end; otherwise read on until all transactions before the end are decided

    @property
    def records(self) -> int:
        return self.end - self.begin


def check_clusters(inputs: Inputs) -> None:
    """Raise BadInput for a live cluster that does not answer or does not let this client in."""
    for source, _ in inputs.brokers:
        with Client(source, config=inputs.config) as client:
            client.logs(())


def check_limits(inputs: Inputs, folders: Sequence[Folder]) -> None:
    """Raise NoSuchLog if `inputs.until` limits a partition that is neither in these folders nor in a live cluster."""
    unknown = set(inputs.until) - {folder.id.partition for folder in folders if folder.id.log == "offsets"}
    for source, topics in inputs.brokers if unknown else ():
        with Client(source, config=inputs.config) as client:
            unknown -= {id.partition for id, topic in _logs(client, topics, inputs) if topic == OFFSETS_TOPIC}
    if unknown:
        raise NoSuchLog(f"there is no {OFFSETS_TOPIC}-{min(unknown)} in the input")


def plan_wire(inputs: Inputs, cursors: Mapping[LogId, Cursor], timeout_s: float = TIMEOUT_S, *, stable: bool = False) -> list[WireSplit]:
    """The splits of live clusters: each log from its cursor to its end, with `stable` to its last stable offset. Raises BadInput."""
    splits: list[WireSplit] = []
    for source, topics in inputs.brokers:
        with Client(source, timeout_s, config=inputs.config, reached_before=bool(cursors)) as client:
            for id, topic in _logs(client, topics, inputs):
                cursor = cursors.get(id, Cursor(0))
                end = client.offset(topic, id.partition, LATEST, COMMITTED) if stable else _end_between_transactions(client, topic, id.partition)
                if stable and cursor.open:
                    end = max(end, cursor.next_offset)  # records of these transactions are after the last stable offset, and were read
                if cursor.next_offset > end:
                    raise BadInput(f"{id}: was read up to offset {cursor.next_offset}, and ends at {end}: it was created again; use another --out")
                if id.log == "offsets":
                    end = min(end, inputs.until.get(id.partition, end))
                if cursor.next_offset < end and (id in cursors or client.offset(topic, id.partition, EARLIEST) < end):
                    splits.append(WireSplit(id, source, topic, cursor.next_offset, end, cursor.last, inputs.on_corrupt, cursor.open, inputs.config))
    return splits


def _end_between_transactions(client: Client, topic: str, partition: int) -> int:
    """The end of a log, if possible at a moment without open transactions: their records need a second build when they count later."""
    until = time.monotonic() + TRANSACTIONS_S
    while True:
        stable, end = (client.offset(topic, partition, LATEST, isolation) for isolation in (COMMITTED, UNCOMMITTED))
        if stable >= end or time.monotonic() > until:
            return end
        time.sleep(PAUSE_S)


def wire_between(inputs: Inputs, begins: Mapping[LogId, Cursor], ends: Mapping[LogId, int]) -> list[WireSplit]:
    """The splits of live logs between cursors and ends."""
    splits: list[WireSplit] = []
    for source, topics in inputs.brokers:
        with Client(source, config=inputs.config, reached_before=True) as client:
            for id, topic in _logs(client, topics, inputs):
                cursor = begins.get(id, Cursor(0))
                if cursor.next_offset < ends.get(id, 0):
                    splits.append(WireSplit(id, source, topic, cursor.next_offset, ends[id], cursor.last, inputs.on_corrupt, config=inputs.config, whole_batches_only=False))
    return splits


def _logs(client: Client, topics: tuple[str, ...], inputs: Inputs) -> list[tuple[LogId, str]]:
    partitions = client.logs(topics)
    if not partitions:
        raise BadInput(f"{client.source}: has no topic {' or '.join(topics)} yet: it never had a consumer group")
    return [(LogId(inputs.cluster or client.cluster, LOGS[topic], partition), topic) for topic, partition in partitions]


class WireRead:
    """Reads one split, and collects the results apart from the rows."""

    def __init__(self, split: WireSplit) -> None:
        self.split = split
        self.read = ReadResult()
        self.position = split.begin
        self._batches: list[NDArray[Any]] = []
        self._lost: list[Hole] = []  # retention and damage
        self._damaged = 0
        self._bytes = 0
        self._records = 0  # without those of open transactions
        self._aborted = 0
        self._after_end = False  # whether the next batch is after the end
        self._clock = split.last.ms
        self._open = split.open
        self._waiting: dict[int, list[pa.RecordBatch]] = {}  # rows of open transactions, by producer
        self.ended: dict[int, bool] = {}  # of the transactions that were open at the begin: see `TransactionVerdicts.ended`

    @property
    def waiting(self) -> list[pa.RecordBatch]:
        """The rows of transactions that are still open."""
        return [rows for batches in self._waiting.values() for rows in batches]

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The rows, in log order except for those of transactions, which are known at their end."""
        split = self.split
        with Client(split.source, TIMEOUT_S, config=split.config, reached_before=True) as client:
            deadline = time.monotonic() + TIMEOUT_S
            while (self.position < split.end and not self._after_end) or (self._waiting and not split.whole_batches_only):
                before = self.position
                reply = client.fetch(split.topic, split.id.partition, self.position)
                if reply.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._skip_to(client.offset(split.topic, split.id.partition, EARLIEST))
                else:
                    yield from self._read_reply(reply)
                if self.position > before:
                    deadline = time.monotonic() + TIMEOUT_S
                elif time.monotonic() > deadline:
                    raise BadInput(f"{split.source}: {split.topic}-{split.id.partition}: no records arrive from offset {self.position} on")

    def _skip_to(self, first: int) -> None:
        if first <= self.position:
            raise BadInput(f"{self.split.id}: offset {self.position} is out of range: the log was truncated or created again; use another --out")
        self._lost.append(Hole(self.position, min(first, self.split.end) - 1, RETENTION))
        self.position = first

    def _read_reply(self, reply: PartitionData) -> Iterator[pa.RecordBatch]:
        data = bytes(reply.records or b"")
        at = 0
        while at < len(data):
            positions, used = sound_batches(data[at:])
            if positions:
                part = data[at : at + used]
                columns = columns_of(part, positions, at)
                new = columns["last"] >= self.position
                if self.split.whole_batches_only:
                    after_end = columns["last"] >= self.split.end
                    self._after_end = bool(after_end.any())
                    new &= ~after_end
                if new.any():
                    yield from self._read_new(part, np.array(positions)[new], columns[new])
                at += used
                continue
            try:
                size = read_header(data, at).size
            except CorruptBatch:
                return
            if size > len(data) - at:
                return  # incomplete until the next fetch
            header = read_header(data, at)
            if self.split.on_corrupt == FAIL:
                raise BadInput(f"{self.split.id}: offset {self.position}: a damaged batch; --on-corrupt=quarantine skips and counts it")
            self._damaged += 1
            self._bytes += size
            self._lost.append(Hole(self.position, max(self.position, header.last_offset), DAMAGED))
            self.position = max(self.position, header.last_offset) + 1
            at += size

    def _read_new(self, data: bytes, positions: NDArray[np.int64], columns: NDArray[Any]) -> Iterator[pa.RecordBatch]:
        earlier = {transaction.producer for transaction in self.split.open} - self.ended.keys()
        transactions = verdicts(columns, self._clock, lambda index: marker_type(data, int(positions[index])), self._open)
        for producer, committed in transactions.ended.items():
            if producer in earlier:
                self.ended[producer] = committed
            rows = self._waiting.pop(producer, [])
            if committed:
                yield from self._counted(rows)
            else:
                self._aborted += sum(batch.num_rows for batch in rows)
        in_range = columns["base"] < self.split.end
        self._aborted += int(columns["count"][transactions.aborted].sum())
        yield from self._counted(self._read(data, positions[in_range & ~transactions.aborted & ~transactions.waiting]))
        for index in np.flatnonzero(in_range & transactions.waiting).tolist():
            self._waiting.setdefault(int(columns["producer_id"][index]), []).extend(self._read(data, positions[index : index + 1]))
        self._batches.append(columns)
        self._clock = max(self._clock, int(columns["max_ms"].max()))
        self._open = transactions.open
        self.position = int(columns["last"][-1]) + 1

    def _read(self, data: bytes, positions: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        if len(positions):
            yield from read_batches(self.split.id, f"{self.split.topic}-{self.split.id.partition}", data, positions.tolist(), None, self.read)

    def _counted(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            self._records += batch.num_rows
            yield batch

    # Results

    def finish(self) -> tuple[list[Segment], list[Coverage], Cursor]:
        split = self.split
        batches = np.concatenate(self._batches) if self._batches else EMPTY
        coverage_rows, last = coverage(split.id, split.begin, batches, self._holes(batches), split.last)
        record_count = int(batches["count"].sum())
        span = int((batches["last"] - batches["base"] + 1).sum())
        row = Segment(
            *split.id,
            path=f"{split.source}/{split.topic}-{split.id.partition}",
            size=int(batches["size"].sum()),
            base_offset=split.begin,
            first_offset=int(batches["base"][0]) if len(batches) else None,
            last_offset=int(batches["last"][-1]) if len(batches) else None,
            first_ms=int(batches["first_ms"][0]) if len(batches) else None,
            last_ms=int(batches["max_ms"].max()) if len(batches) else None,
            batches=len(batches) - len(self.read.holes),
            records=self._records,
            missing_offsets=span - record_count,
            codecs=",".join(CODECS[codec] for codec in sorted(set((batches["attributes"] & COMPRESSION_MASK).tolist()))),
            torn_bytes=0,
            damaged_batches=self._damaged + len(self.read.holes),
            quarantined_bytes=self._bytes + self.read.bytes,
            aborted=self._aborted,
            diverged=0,
        )
        return [row], coverage_rows, Cursor(max(self.position, split.begin), last=last, open=self._open)

    def _holes(self, batches: NDArray[Any]) -> list[Hole]:
        holes = [*self._lost, *self.read.holes]
        expected = np.concatenate([[self.split.begin], batches["last"][:-1] + 1])
        for index in np.flatnonzero(batches["base"] > expected[: len(batches)]).tolist():
            first, last = int(expected[index]), int(batches["base"][index]) - 1
            known_hole = next((hole for hole in self._lost if hole.first <= first <= hole.last), None)
            if known_hole is not None:
                first = known_hole.last + 1
            if first <= last:
                holes.append(Hole(first, last, COMPACTED))
        compacted = np.flatnonzero(batches["count"] < batches["last"] - batches["base"] + 1)
        holes.extend(Hole(int(batches["base"][index]), int(batches["last"][index]), COMPACTED) for index in compacted.tolist())
        return sorted(holes)
