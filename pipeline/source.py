"""The data source `koffsets`: coordinator logs as rows of `rows.Record` for any query of Spark's, once or as a stream.

    spark.dataSource.register(CoordinatorLogs)
    spark.read.format("koffsets").load("/var/lib/kafka/data")
    spark.readStream.format("koffsets").option("maxRecordsPerTrigger", 100000).load("kafka://127.0.0.1:9092")

Options: `path` (directories or kafka://host:port, several with commas between them), `notes`, `cluster`, `onCorrupt`. Filters on log,
partition and offset leave out whole logs and splits before anything is read; Spark applies all of them again.
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
from pipeline.reading import Changed, read_split
from pipeline.resuming import Cursor
from pipeline.schema import schema_of
from pipeline.splits import Split, plan, plan_between
from pipeline.wire_reading import WireRead, WireSplit, plan_wire
from protocol.batch_record import INT64_MAX

NAME: Final = "koffsets"
ATTEMPTS: Final = 10  # to plan a split anew

_COMPARED: Final = {
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
    paths = _listed(options.get("path", ""))
    if not paths:
        raise BadInput(f"{NAME}: give a path: data directories of brokers, or kafka://host:port, with commas between them")
    return Inputs.of(paths, _listed(options.get("notes", "")), cluster=options.get("cluster"), on_corrupt=options.get("onCorrupt", QUARANTINE))


def _listed(text: str) -> list[str]:
    """Separated by commas; an address without a scheme after one of kafka:// belongs to it."""
    found: list[str] = []
    for one in filter(None, (part.strip() for part in text.split(","))):
        if found and found[-1].startswith(WIRE) and "/" not in one:
            found[-1] += f",{one}"
        else:
            found.append(one)
    return found


class Part(InputPartition):
    """The input of one task: of a split the rows from one offset to before another."""

    def __init__(self, inputs: Inputs, split: Split | WireSplit, begin: int = 0, end: int = INT64_MAX) -> None:
        self.inputs = inputs
        self.split = split
        self.begin = begin
        self.end = end


class Reader(DataSourceReader):
    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self.only: dict[str, set[Any]] = {}
        self.least: dict[str, int] = {}
        self.most: dict[str, int] = {}

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        for one in filters:
            self._note(one)
            yield one

    def _note(self, one: Any) -> None:
        name = one.attribute[0] if getattr(one, "attribute", None) else ""
        if name in ("cluster", "log", "partition") and isinstance(one, EqualTo | In):
            values = {one.value} if isinstance(one, EqualTo) else set(one.value)
            self.only[name] = self.only.get(name, values) & values
        elif name == "offset" and type(one) in _COMPARED:
            below, above = _COMPARED[type(one)]
            if below:
                self.least[name] = max(self.least.get(name, one.value), one.value)
            if above:
                self.most[name] = min(self.most.get(name, one.value), one.value)

    def partitions(self) -> Sequence[InputPartition]:
        planned = plan(self.inputs, {})
        splits: list[Split | WireSplit] = [*planned.splits, *plan_wire(self.inputs, planned.cursors)]
        return [Part(self.inputs, split) for split in splits if self._wanted(split)]

    def _wanted(self, split: Split | WireSplit) -> bool:
        for name, values in self.only.items():
            if getattr(split.id, name) not in values:
                return False
        least, most = self.least.get("offset"), self.most.get("offset")
        if isinstance(split, WireSplit):
            return (least is None or split.end > least) and (most is None or split.begin <= most)
        return (least is None or split.last >= least) and (most is None or split.first <= most)

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
    """If a cleaner has swapped the segment since, read the file that has the same offsets now."""
    rows = read_split(split)
    try:
        first = next(rows, None)
    except Changed:
        if not attempts:
            raise
        for one in plan_between(inputs, {split.id: Cursor(split.first)}, {split.id: split.last + 1}):
            yield from _read_split(inputs, one, attempts - 1)
        return
    if first is not None:
        yield first
        yield from rows
