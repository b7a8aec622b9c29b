"""The Spark data source `koffsets`: coordinator logs as rows of `rows.Record`, as a batch or a stream.

    spark.read.format("koffsets").load("/var/lib/kafka/data")
    spark.readStream.format("koffsets").option("maxRecordsPerTrigger", 100000).load("kafka://127.0.0.1:9092")

Spark finds it by itself where Tenure is installed (`pyspark_koffsets`). docs/spark.md has the options. With `pushdown`, filters on log, partition and offset
exclude logs and splits before reading; Spark applies them again to the rows. Splits are packed into few tasks, since each task costs time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

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

from pipeline.blocks import BLOCKS
from pipeline.inputs import QUARANTINE, WIRE, BadInput, Inputs
from pipeline.packing import Packing, SplitPart, packed, records_in
from pipeline.schema import schema_of, table_of
from pipeline.splits import Split, plan
from pipeline.wire_reading import WireSplit, plan_wire

NAME: Final = "koffsets"
RECORDS: Final = "records"
BLOCKS_TABLE: Final = "blocks"  # for `tenure analyze` itself
TABLES_READ: Final = (RECORDS, "segments", "coverage")
TASKS_MIN: Final = 8
TASK_RECORDS: Final = 250_000

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
        full = BLOCKS if self._table == BLOCKS_TABLE else schema_of(self._table)
        columns = names_in(self.options.get("columns", "")) or full.names
        unknown = [name for name in columns if name not in full.names]
        if unknown:
            raise BadInput(f"{NAME}: the table {self._table} has no column {', '.join(unknown)}; it has {', '.join(full.names)}")
        return from_arrow_schema(pa.schema([full.field(name) for name in columns]))

    @property
    def _table(self) -> str:
        table: str = self.options.get("table", RECORDS)
        if table not in (*TABLES_READ, BLOCKS_TABLE):
            raise BadInput(f"{NAME}: there is no table {table}: set `table` to {', '.join(TABLES_READ)}")
        return table

    @property
    def pushes_filters(self) -> bool:
        return self._table == RECORDS and self.options.get("pushdown", "false").lower() == "true"

    def reader(self, schema: StructType) -> DataSourceReader:
        if self._table == BLOCKS_TABLE:
            from pipeline.block_stream import BlockReader

            return BlockReader(self.options)
        inputs = inputs_of(self.options)
        if self._table != RECORDS:
            return PlanReader(inputs, self._table, schema.names)
        reader = FilteringReader if self.pushes_filters else Reader
        return reader(inputs, schema.names, packing_of(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        from pipeline.block_stream import BlockStream
        from pipeline.stream import HAS_LIMITS, LogStream

        if self._table == BLOCKS_TABLE:
            return BlockStream(self.options)
        if self._table != RECORDS:
            raise BadInput(f"{NAME}: only the table {RECORDS} can be streamed")
        records_max = number_in(self.options, "maxRecordsPerTrigger", 0)
        if records_max and not HAS_LIMITS:
            raise BadInput(f"{NAME}: maxRecordsPerTrigger needs PySpark 4.2 or newer")
        return LogStream(inputs_of(self.options), records_max, schema.names, packing_of(self.options))


def inputs_of(options: Mapping[str, str]) -> Inputs:
    paths = _sources(options.get("path", ""))
    if not paths:
        raise BadInput(f"{NAME}: set `path` to data directories of brokers or kafka://host:port, separated by commas")
    return Inputs.of(paths, _sources(options.get("notes", "")), cluster=options.get("cluster"), on_corrupt=options.get("onCorrupt", QUARANTINE), config=options.get("config", ""))


def _sources(text: str) -> list[str]:
    """The sources in a comma-separated text. HOST:PORT after a kafka:// address is another address of the same cluster."""
    sources: list[str] = []
    for source in filter(None, (part.strip() for part in text.split(","))):
        if sources and sources[-1].startswith(WIRE) and "/" not in source:
            sources[-1] += f",{source}"
        else:
            sources.append(source)
    return sources


def names_in(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]


def number_in(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal():
        raise BadInput(f"{NAME}: {name} must be a number, and is {text!r}")
    return int(text)


def packing_of(options: Mapping[str, str]) -> Packing:
    tasks = number_in(options, "tasks", max(TASKS_MIN, 2 * (os.cpu_count() or 1)))
    return Packing(max(1, tasks), max(1, number_in(options, "taskRecords", TASK_RECORDS)))


class Task(InputPartition):
    """The input of one task."""

    def __init__(self, inputs: Inputs, parts: Sequence[SplitPart]) -> None:
        self.inputs = inputs
        self.parts = parts


def tasks_of(inputs: Inputs, parts: Sequence[SplitPart], packing: Packing) -> list[Task]:
    return [Task(inputs, task) for task in packed(parts, packing)]


class Reader(DataSourceReader):
    def __init__(self, inputs: Inputs, columns: Sequence[str], packing: Packing) -> None:
        self.inputs = inputs
        self.columns = list(columns)
        self.packing = packing
        self.allowed: dict[str, set[Any]] = {}
        self.lowest_offset: int | None = None
        self.highest_offset: int | None = None

    def partitions(self) -> Sequence[InputPartition]:
        planned = plan(self.inputs, {})
        splits: list[Split | WireSplit] = [*(split for split in planned.splits if not split.waits), *plan_wire(self.inputs, planned.cursors)]
        return tasks_of(self.inputs, [SplitPart(split) for split in splits if self._matches(split)], self.packing)

    def _matches(self, split: Split | WireSplit) -> bool:
        for name, values in self.allowed.items():
            if getattr(split.id, name) not in values:
                return False
        lowest, highest = self.lowest_offset, self.highest_offset
        if isinstance(split, WireSplit):
            return (lowest is None or split.end > lowest) and (highest is None or split.begin <= highest)
        return (lowest is None or split.last >= lowest) and (highest is None or split.first <= highest)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self.columns)


class FilteringReader(Reader):
    """Gets conditions from Spark. Spark refuses such a reader unless `spark.sql.python.filterPushdown.enabled` is true."""

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


class PlanReader(DataSourceReader):
    """The tables of what there is to read, instead of the records themselves; one task."""

    def __init__(self, inputs: Inputs, table: str, columns: Sequence[str]) -> None:
        self.inputs = inputs
        self.table = table
        self.columns = list(columns)

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        planned = plan(self.inputs, {})
        rows: Sequence[tuple[object, ...]] = planned.segments if self.table == "segments" else planned.coverage
        yield from table_of(self.table, rows).select(self.columns).to_batches()


def read_task(task: Any, columns: list[str]) -> Iterator[pa.RecordBatch]:
    for part in task.parts:
        for batch in records_in(task.inputs, part):
            yield batch.select(columns)
