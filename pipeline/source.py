"""The Spark data source `koffsets`: coordinator logs as rows of `rows.Record`, as a batch or a stream.

    spark.dataSource.register(CoordinatorLogs)
    spark.read.format("koffsets").load("/var/lib/kafka/data")
    spark.readStream.format("koffsets").option("maxRecordsPerTrigger", 100000).load("kafka://127.0.0.1:9092")

Options: `path` (directories or kafka://host:port, separated by commas), `notes`, `cluster`, `onCorrupt`. Filters on log, partition and
offset exclude logs and splits before reading; Spark applies them again to the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from pipeline.inputs import QUARANTINE, WIRE, BadInput, Inputs
from pipeline.reading import SegmentReplaced, read_split
from pipeline.resuming import Cursor
from pipeline.schema import schema_of
from pipeline.splits import Split, plan, plan_between
from pipeline.wire_reading import WireRead, WireSplit, plan_wire
from protocol.batch_record import INT64_MAX

NAME: Final = "koffsets"
ATTEMPTS: Final = 10  # to plan a split again

_BOUNDS: Final = {
    EqualTo: (True, True),
    GreaterThan: (True, False),
    GreaterThanOrEqual: (True, False),
    LessThan: (False, True),
    LessThanOrEqual: (False, True),
}


class CoordinatorLogs(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return from_arrow_schema(schema_of("records"))

    def reader(self, schema: StructType) -> DataSourceReader:
        return Reader(inputs_of(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        from pipeline.stream import LogStream

        return LogStream(inputs_of(self.options), int(self.options.get("maxRecordsPerTrigger", 0)))


def inputs_of(options: Mapping[str, str]) -> Inputs:
    paths = _sources(options.get("path", ""))
    if not paths:
        raise BadInput(f"{NAME}: set `path` to data directories of brokers or kafka://host:port, separated by commas")
    return Inputs.of(paths, _sources(options.get("notes", "")), cluster=options.get("cluster"), on_corrupt=options.get("onCorrupt", QUARANTINE))


def _sources(text: str) -> list[str]:
    """The sources in a comma-separated text. HOST:PORT after a kafka:// address is another address of the same cluster."""
    sources: list[str] = []
    for source in filter(None, (part.strip() for part in text.split(","))):
        if sources and sources[-1].startswith(WIRE) and "/" not in source:
            sources[-1] += f",{source}"
        else:
            sources.append(source)
    return sources


class Part(InputPartition):
    """The input of one task: the rows of a split with offsets from `begin` to before `end`."""

    def __init__(self, inputs: Inputs, split: Split | WireSplit, begin: int = 0, end: int = INT64_MAX) -> None:
        self.inputs = inputs
        self.split = split
        self.begin = begin
        self.end = end


class Reader(DataSourceReader):
    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self.allowed: dict[str, set[Any]] = {}
        self.lowest_offset: int | None = None
        self.highest_offset: int | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        for filter in filters:
            self._add_filter(filter)
            yield filter

    def _add_filter(self, filter: Any) -> None:
        name = filter.attribute[0] if getattr(filter, "attribute", None) else ""
        if name in ("cluster", "log", "partition") and isinstance(filter, EqualTo | In):
            values = {filter.value} if isinstance(filter, EqualTo) else set(filter.value)
            self.allowed[name] = self.allowed.get(name, values) & values
        elif name == "offset" and type(filter) in _BOUNDS:
            is_lower_bound, is_upper_bound = _BOUNDS[type(filter)]
            if is_lower_bound:
                self.lowest_offset = filter.value if self.lowest_offset is None else max(self.lowest_offset, filter.value)
            if is_upper_bound:
                self.highest_offset = filter.value if self.highest_offset is None else min(self.highest_offset, filter.value)

    def partitions(self) -> Sequence[InputPartition]:
        planned = plan(self.inputs, {})
        splits: list[Split | WireSplit] = [*(split for split in planned.splits if not split.waits), *plan_wire(self.inputs, planned.cursors)]
        return [Part(self.inputs, split) for split in splits if self._matches(split)]

    def _matches(self, split: Split | WireSplit) -> bool:
        for name, values in self.allowed.items():
            if getattr(split.id, name) not in values:
                return False
        lowest, highest = self.lowest_offset, self.highest_offset
        if isinstance(split, WireSplit):
            return (lowest is None or split.end > lowest) and (highest is None or split.begin <= highest)
        return (lowest is None or split.last >= lowest) and (highest is None or split.first <= highest)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_part(partition)


def read_part(partition: Any) -> Iterator[pa.RecordBatch]:
    part: Part = partition
    if isinstance(part.split, WireSplit):
        rows = WireRead(part.split).rows()
    else:
        rows = _read_split(part.inputs, part.split, ATTEMPTS)
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
            raise
        for new_split in plan_between(inputs, {split.id: Cursor(split.first)}, {split.id: split.last + 1}):
            yield from _read_split(inputs, new_split, attempts - 1)
        return
    if first is not None:
        yield first
        yield from rows
