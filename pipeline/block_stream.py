"""The table `blocks` of the source `koffsets`, which `tenure analyze` reads itself: see `blocks.py`.

A query begins at the cursors of the newest published batch of the tables, which it gets as an option, and not at a checkpoint of Spark's. An offset of the
stream has a cursor for each log, which also knows open transactions. A batch is read up to an end that Spark was told before it began, so that reading it
again gives the same blocks. Of a live log only the end is known before it is read: a query that goes on reads such logs up to their last stable offset.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from pipeline.blocks import Block, batch_of
from pipeline.inputs import Inputs, LogId
from pipeline.packing import SplitPart, blocks_of, facts_of, packed
from pipeline.resuming import Cursor
from pipeline.source import packing_of
from pipeline.splits import Plan, Split, plan
from pipeline.stream import AvailableNow, from_offset, to_offset
from pipeline.wire_reading import WireSplit, plan_wire

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

ROUND: Final = "round"  # in an offset: there is news besides records
Planned = tuple[Plan, list[WireSplit]]
Offset = dict[str, str]


def options_of(inputs: Inputs, chunks: int, cursors: Mapping[LogId, Cursor], *, ends: bool) -> Offset:
    """The options of the source. `ends`: the query ends with the records that exist at its start."""
    place = json.dumps(to_offset(cursors))
    return {"table": "blocks", "inputs": json.dumps(asdict(inputs)), "chunks": str(chunks), "cursors": place, "ends": str(ends).lower()}


def inputs_from(text: str) -> Inputs:
    values = json.loads(text)
    values["until"] = {int(partition): offset for partition, offset in values["until"].items()}
    return Inputs(**{**values, "offsets": tuple(values["offsets"]), "notes": tuple(values["notes"])})


class BlockTask(InputPartition):
    """Splits to read, or a block that planning has made."""

    def __init__(self, inputs: Inputs, splits: Sequence[Split | WireSplit], chunks: int, facts: Block | None = None) -> None:
        self.inputs, self.splits, self.chunks, self.facts = inputs, splits, chunks, facts


def read_blocks(task: Any) -> Iterator[pa.RecordBatch]:
    if task.facts is not None:
        yield batch_of([task.facts])
    for block in blocks_of(task.inputs, task.splits, task.chunks) if task.splits else ():
        yield batch_of([block])


class _Blocks:
    def __init__(self, options: Mapping[str, str]) -> None:
        self.inputs = inputs_from(options["inputs"])
        self.chunks = int(options["chunks"])
        self.packing = packing_of(options)
        self._initial: Offset = json.loads(options["cursors"])

    def tasks(self, planned: Planned) -> list[InputPartition]:
        splits: list[Split | WireSplit] = [*planned[0].splits, *planned[1]]
        parts = [SplitPart(split) for split in splits]
        tasks: list[InputPartition] = [BlockTask(self.inputs, [], self.chunks, facts_of(planned[0]))]
        return tasks + [BlockTask(self.inputs, [part.split for part in task], self.chunks) for task in packed(parts, self.packing)]

    def plan(self, begins: Mapping[LogId, Cursor], ends: Mapping[LogId, int] | None = None, *, stable: bool = False) -> Planned:
        planned = plan(self.inputs, begins, ends)
        wire = plan_wire(self.inputs, begins, stable=stable)
        if ends is not None:
            wire = [split._replace(end=min(split.end, ends.get(split.id, split.begin))) for split in wire]
        return planned.moved(begins), [split for split in wire if split.begin < split.end]


class BlockReader(_Blocks, DataSourceReader):
    """The blocks after the cursors, in a batch."""

    def partitions(self) -> Sequence[InputPartition]:
        return self.tasks(self.plan(cursors_at(self._initial)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_blocks(partition)


class BlockStream(_Blocks, DataSourceStreamReader, AvailableNow):
    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._ends = options["ends"] == "true"
        self._known = self._initial  # the place of the query: PySpark 4.1 does not tell it
        self._planned: tuple[Offset, Offset, Planned] | None = None  # between these offsets

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planned": None}

    def initialOffset(self) -> Offset:  # noqa: N802 (Spark's names)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        pass

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        return None

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:  # noqa: N802
        if self._planned is not None and self._ends:
            return self._planned[1]
        begin = self._known if start is None else start
        planned = self.plan(cursors_at(begin), stable=not self._ends)
        end = {**without_round(begin), **to_offset({**planned[0].cursors, **{split.id: Cursor(split.end) for split in planned[1]}})}
        asks = bool(self.inputs.brokers) and not self._ends  # for the end offsets of topics, which change without commits
        if asks or planned[0].segments or planned[0].coverage or planned[0].lost:
            end[ROUND] = str(time.time_ns())
        elif ROUND in begin:
            end[ROUND] = begin[ROUND]
        self._planned = begin, end, planned
        return end

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        self._known = end
        if self._planned is not None and self._planned[:2] == (start, end):
            return self.tasks(self._planned[2])
        ends = {id: cursor.next_offset for id, cursor in cursors_at(end).items()}
        return self.tasks(self.plan(cursors_at(start), ends, stable=not self._ends))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_blocks(partition)


def without_round(offset: Offset) -> Offset:
    return {name: text for name, text in offset.items() if name != ROUND}


def cursors_at(offset: Offset) -> dict[LogId, Cursor]:
    return from_offset(without_round(offset))
