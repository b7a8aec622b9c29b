"""Reads a range of a live log, with the same results as from directories: missing, aborted and damaged offsets."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
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
from pipeline.wire import EARLIEST, LATEST, TIMEOUT_S, Client
from protocol.batch import COMPRESSION_MASK, CONTROL, TRANSACTIONAL, Compression, CorruptBatch, read_header, records
from protocol.errors import ErrorCode
from protocol.messages.fetch import PartitionData

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
    whole_batches_only: bool = True  # exclude a batch that extends past the end

    @property
    def records(self) -> int:
        return self.end - self.begin


def check_limits(inputs: Inputs, folders: Sequence[Folder]) -> None:
    """Raise NoSuchLog if `inputs.until` limits a partition that is neither in these folders nor in a live cluster."""
    unknown = set(inputs.until) - {folder.id.partition for folder in folders if folder.id.log == "offsets"}
    for source, topics in inputs.brokers if unknown else ():
        with Client(source) as client:
            unknown -= {id.partition for id, topic in _logs(client, topics, inputs) if topic == OFFSETS_TOPIC}
    if unknown:
        raise NoSuchLog(f"there is no {OFFSETS_TOPIC}-{min(unknown)} in the input")


def plan_wire(inputs: Inputs, cursors: Mapping[LogId, Cursor], timeout_s: float = TIMEOUT_S) -> list[WireSplit]:
    """The splits of live clusters: each log from its cursor to its last stable offset. Raises BadInput."""
    splits: list[WireSplit] = []
    for source, topics in inputs.brokers:
        with Client(source, timeout_s, reached_before=bool(cursors)) as client:
            for id, topic in _logs(client, topics, inputs):
                cursor = cursors.get(id, Cursor(0))
                end = client.offset(topic, id.partition, LATEST)
                if cursor.next_offset > end:
                    raise BadInput(f"{id}: was read up to offset {cursor.next_offset}, and ends at {end}: it was created again; use another --out")
                if id.log == "offsets":
                    end = min(end, inputs.until.get(id.partition, end))
                if cursor.next_offset < end and (id in cursors or client.offset(topic, id.partition, EARLIEST) < end):
                    splits.append(WireSplit(id, source, topic, cursor.next_offset, end, cursor.last, inputs.on_corrupt))
    return splits


def wire_between(inputs: Inputs, begins: Mapping[LogId, Cursor], ends: Mapping[LogId, int]) -> list[WireSplit]:
    """The splits of live logs between cursors and ends."""
    splits: list[WireSplit] = []
    for source, topics in inputs.brokers:
        with Client(source, reached_before=True) as client:
            for id, topic in _logs(client, topics, inputs):
                cursor = begins.get(id, Cursor(0))
                if cursor.next_offset < ends.get(id, 0):
                    splits.append(WireSplit(id, source, topic, cursor.next_offset, ends[id], cursor.last, inputs.on_corrupt, False))
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
        self._aborted = 0
        self._ended = False  # whether the next batch is after the end

    def rows(self) -> Iterator[pa.RecordBatch]:
        split = self.split
        with Client(split.source, TIMEOUT_S, reached_before=True) as client:
            deadline = time.monotonic() + TIMEOUT_S
            while self.position < split.end and not self._ended:
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
                after_end = (columns["last"] if self.split.whole_batches_only else columns["base"]) >= self.split.end
                self._ended = bool(after_end.any())
                in_range = (columns["last"] >= self.position) & ~after_end
                aborted = self._aborted_batches(part, positions, columns, reply) & in_range
                self._aborted += int(columns["count"][aborted].sum())
                selected = [positions[index] for index in np.flatnonzero(in_range & ~aborted).tolist()]
                if selected:
                    yield from read_batches(self.split.id, f"{self.split.topic}-{self.split.id.partition}", part, selected, None, self.read)
                if in_range.any():
                    self._batches.append(columns[in_range])
                    self.position = int(columns["last"][in_range][-1]) + 1
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

    def _aborted_batches(self, data: bytes, positions: list[int], columns: NDArray[Any], reply: PartitionData) -> NDArray[np.bool_]:
        """Mark the batches of aborted transactions, which the reply lists by producer and first offset."""
        aborted = np.zeros(len(columns), bool)
        pending = sorted((aborted_transaction.first_offset, aborted_transaction.producer_id) for aborted_transaction in reply.aborted_transactions or [])
        if not pending:
            return aborted
        aborted_producers: set[int] = set()
        for index, column in enumerate(columns):
            while pending and pending[0][0] <= column["last"]:
                aborted_producers.add(pending.pop(0)[1])
            producer, attributes = int(column["producer_id"]), int(column["attributes"])
            if attributes & CONTROL:
                key = records(data, positions[index])[0].key or b""
                if key[2:4] == b"\0\0":
                    aborted_producers.discard(producer)
            elif attributes & TRANSACTIONAL and producer in aborted_producers:
                aborted[index] = True
        return aborted

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
            records=self.read.records,
            missing_offsets=span - record_count,
            codecs=",".join(CODECS[codec] for codec in sorted(set((batches["attributes"] & COMPRESSION_MASK).tolist()))),
            torn_bytes=0,
            damaged_batches=self._damaged + len(self.read.holes),
            quarantined_bytes=self._bytes + self.read.bytes,
            aborted=self._aborted,
            diverged=0,
        )
        return [row], coverage_rows, Cursor(max(self.position, split.begin), last=last)

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
