"""The table `blocks` of the source `koffsets`, which `tenure analyze` reads itself: see `blocks.py`.

The place of the stream is not Spark's checkpoint but the newest published batch of the tables, whose cursors are more than offsets: they know open
transactions. A batch is read between these cursors and the end that Spark was told before it began, so that reading it again gives the same blocks.
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
from pipeline.rounds import cursors_of
from pipeline.source import packing_of
from pipeline.splits import Plan, Split, plan
from pipeline.stream import AvailableNow, from_offset, to_offset
from pipeline.tables import Tables
from pipeline.wire_reading import WireSplit, plan_wire

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

BATCH: Final = "batch"  # in an offset: there is news besides records
Planned = tuple[Plan, list[WireSplit]]


def options_of(tables: Tables, inputs: Inputs, chunks: int, *, ends: bool) -> dict[str, str]:
    """The options of the source. `ends`: the query ends with the records that exist at its start."""
    return {
        "table": "blocks",
        "inputs": json.dumps(asdict(inputs)),
        "chunks": str(chunks),
        "out": tables.folder,
        "outOptions": json.dumps(tables.store.options),
        "ends": str(ends).lower(),
    }


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
        self.options = dict(options)
        self.inputs = inputs_from(self.options["inputs"])
        self.chunks = int(self.options["chunks"])
        self.tables = Tables.open(self.options["out"], create=True, options=json.loads(self.options.get("outOptions", "{}")))

    def tasks(self, planned: Planned) -> list[InputPartition]:
        splits = [SplitPart(split) for split in (*planned[0].splits, *planned[1])]
        tasks: list[InputPartition] = [BlockTask(self.inputs, [], self.chunks, facts_of(planned[0]))]
        return tasks + [BlockTask(self.inputs, [part.split for part in task], self.chunks) for task in packed(splits, packing_of(self.options))]

    def plan(self, begins: Mapping[LogId, Cursor], ends: Mapping[LogId, int] | None = None) -> Planned:
        planned = plan(self.inputs, begins, ends)
        wire = plan_wire(self.inputs, begins)
        if ends is not None:
            wire = [split._replace(end=min(split.end, ends.get(split.id, split.begin))) for split in wire]
            wire = [split for split in wire if split.begin < split.end]
        changed = {id: cursor for id, cursor in planned.cursors.items() if begins.get(id) != cursor}
        return planned._replace(cursors=changed), wire


class BlockReader(_Blocks, DataSourceReader):
    """All blocks, in a batch."""

    def partitions(self) -> Sequence[InputPartition]:
        return self.tasks(self.plan({}))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_blocks(partition)


class BlockStream(_Blocks, DataSourceStreamReader, AvailableNow):
    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._planned: tuple[int, dict[str, str], Planned] | None = None  # of the batch after this one, up to this offset

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planned": None, "tables": None}

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 (Spark's names)
        return to_offset(cursors_of(self.tables.published()))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        pass

    def reportLatestOffset(self) -> dict[str, str] | None:  # noqa: N802
        return None

    def latestOffset(self, start: dict[str, str] | None = None, limit: ReadLimit | None = None) -> dict[str, str]:  # noqa: N802
        published = self.tables.published()
        if self._planned is not None and self.options["ends"] == "true":
            return self._planned[1]
        begins = cursors_of(published)
        planned = self.plan(begins)
        ends = {**begins, **planned[0].cursors, **{split.id: Cursor(split.end) for split in planned[1]}}
        offset = to_offset(ends)
        asks = bool(self.inputs.brokers) and self.options["ends"] != "true"
        if asks or planned[0].segments or planned[0].coverage or planned[0].lost:
            offset[BATCH] = json.dumps([published.batch + 1, int(time.time()) if asks else 0])
        self._planned = published.batch, offset, planned
        return offset

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        published = self.tables.published()
        if self._planned is not None and self._planned[:2] == (published.batch, end):
            return self.tasks(self._planned[2])
        ends = from_offset({name: text for name, text in end.items() if name != BATCH})
        return self.tasks(self.plan(cursors_of(published), {id: cursor.next_offset for id, cursor in ends.items()}))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_blocks(partition)
