"""Splits packed into tasks, and the reading of a task. Tasks of about the same size, and few of them: each task costs time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heapreplace
from typing import Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from pipeline.blocks import Block, Divider
from pipeline.inputs import FAIL, BadInput, Inputs
from pipeline.reading import ReadResult, SegmentReplaced, read_split
from pipeline.resuming import Cursor
from pipeline.splits import Plan, Split, plan_between
from pipeline.wire_reading import WireRead, WireSplit
from protocol.batch_record import INT64_MAX

ATTEMPTS: Final = 10  # to plan again
REPLACED: Final = "{}: its segment is replaced faster than it can be read; copy the directory, or stop its broker"
WIRE_RECORD_BYTES: Final = 100  # about

Result = TypeVar("Result")


class Packing(NamedTuple):
    tasks: int  # as many, if there are so many splits
    task_records: int  # more tasks, so that each has about so many records


class SplitPart(NamedTuple):
    """The rows of a split with offsets from `begin` to before `end`."""

    split: Split | WireSplit
    begin: int = 0
    end: int = INT64_MAX

    @property
    def weight(self) -> int:
        return self.split.bytes if isinstance(self.split, Split) else self.split.records * WIRE_RECORD_BYTES


def packed(parts: Sequence[SplitPart], packing: Packing) -> list[list[SplitPart]]:
    """The parts of each task, in the order of their logs."""
    records = sum(part.split.records for part in parts)
    count = min(len(parts), max(packing.tasks, -(-records // packing.task_records)))
    tasks: list[list[int]] = [[] for _ in range(count)]
    sizes = [(0, number) for number in range(count)]
    heapify(sizes)
    for index in sorted(range(len(parts)), key=lambda index: -parts[index].weight):
        size, number = sizes[0]
        tasks[number].append(index)
        heapreplace(sizes, (size + parts[index].weight, number))
    return [[parts[index] for index in sorted(task)] for task in tasks]


# Records


def records_in(inputs: Inputs, part: SplitPart) -> Iterator[pa.RecordBatch]:
    if isinstance(part.split, WireSplit):
        rows = WireRead(part.split).rows()
    else:
        rows = _read_split(inputs, part.split, ATTEMPTS)
        part = part._replace(begin=max(part.begin, part.split.first), end=min(part.end, part.split.last + 1))  # a merged segment has more
    for batch in rows:
        offsets = batch.column("offset").to_numpy()
        first, last = np.searchsorted(offsets, [part.begin, part.end])
        if first < last:
            yield batch.slice(first, last - first)


def _read_split(inputs: Inputs, split: Split, attempts: int) -> Iterator[pa.RecordBatch]:
    """Read a split. If a cleaner has replaced the segment, read the file that contains the offsets now."""
    rows = read_split(split)
    try:
        first = next(rows, None)
    except SegmentReplaced:
        if not attempts:
            raise BadInput(REPLACED.format(split.path)) from None
        for new_split in plan_between(inputs, {split.id: Cursor(split.first)}, {split.id: split.last + 1}):
            yield from _read_split(inputs, new_split, attempts - 1)
        return
    if first is not None:
        yield first
        yield from rows


# Blocks


def blocks_of(inputs: Inputs, splits: Sequence[Split | WireSplit], chunks: int) -> Iterator[Block]:
    """The records of these splits as blocks, and what was learned in reading. Raises SegmentReplaced: then the whole plan is no longer true."""
    divider = Divider(chunks)
    for split in splits:
        if isinstance(split, WireSplit):
            reading = WireRead(split)
            for batch in reading.rows():
                yield from divider.add(batch)
            for batch in reading.waiting:
                yield from divider.add(batch, waits=True)
            segments, coverage, cursor = reading.finish()
            name = str(split.id)
            ended = {str(producer): committed for producer, committed in reading.ended.items()}
            yield Block.of_facts({"segments": segments, "coverage": coverage, "cursors": {name: cursor.as_json()}, "ended": {name: ended}})
            continue
        read = ReadResult()
        for batch in read_split(split, read):
            yield from divider.add(batch, waits=split.waits)
        if read.holes:
            if inputs.on_corrupt == FAIL:
                raise BadInput(f"{split.path}: offset {read.holes[0].first}: unreadable batch; --on-corrupt=quarantine skips and counts it")
            lost = 0 if split.waits else split.records - read.records
            yield Block.of_facts({"holes": [[*split.id, split.path, split.waits, lost, read.bytes, read.holes]]})
    yield from divider.finish()


def again_if_replaced(read: Callable[[], Result]) -> Result:
    """The result of a function that plans and reads, again if a cleaner replaces a segment between the two."""
    for _ in range(ATTEMPTS):
        try:
            return read()
        except SegmentReplaced as error:
            replaced = error
    raise BadInput(REPLACED.format(replaced))


def facts_of(plan: Plan) -> Block:
    """What planning learned about the logs."""
    return Block.of_facts(
        {
            "segments": plan.segments,
            "coverage": plan.coverage,
            "lost": plan.lost,
            "cursors": {str(id): cursor.as_json() for id, cursor in sorted(plan.cursors.items())},
            "ended": {str(id): {str(producer): committed for producer, committed in ended.items()} for id, ended in plan.ended.items() if ended},
        }
    )
