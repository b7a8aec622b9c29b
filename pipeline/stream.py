"""Coordinator logs as a stream. Spark's checkpoint has the position in each log, where a restarted query continues.

An offset of the stream has a cursor for each log. The rows between two offsets are always the same, also after a crash: the end of each
log is a log offset before the records of transactions that were open.

PySpark 4.1 has no limits of a batch, and asks for the newest offset without the current one. So the stream remembers the newest that it has
named or was told: a restarted query begins with the partitions of the last batch of its checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pipeline.inputs import Inputs, LogId
from pipeline.packing import Packing, SplitPart
from pipeline.resuming import Cursor
from pipeline.source import read_task, tasks_of
from pipeline.splits import Split, plan, plan_between
from pipeline.wire_reading import WireSplit, plan_wire, wire_between

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

AvailableNow: Any = object  # in PySpark 4.1, where Spark itself ends such a query at the first end
try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:
    HAS_LIMITS = False
else:
    HAS_LIMITS = True
    AvailableNow = SupportsTriggerAvailableNow

Cursors = dict[LogId, Cursor]
START: Final = Cursor(0)


class LogStream(DataSourceStreamReader, AvailableNow):
    def __init__(self, inputs: Inputs, records_max: int, columns: Sequence[str], packing: Packing) -> None:
        self.inputs = inputs
        self.columns = list(columns)
        self.packing = packing
        self.records_max = records_max  # log offsets in one batch; 0: no limit
        self._ends_once = False  # whether the query ends with the records that exist at its start
        self._newest: Cursors = {}
        self._known: Cursors = {}

    # Offsets

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 (Spark's names)
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self.records_max) if self.records_max > 0 else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._ends_once = True

    def reportLatestOffset(self) -> dict[str, str] | None:  # noqa: N802
        return to_offset(self._newest) if self._newest else None

    def latestOffset(self, start: dict[str, str] | None = None, limit: ReadLimit | None = None) -> dict[str, str]:  # noqa: N802
        begin = self._known if start is None else from_offset(start)
        if not (self._ends_once and self._newest):
            self._newest = self._ends(begin)
        ends = self._newest
        if HAS_LIMITS and isinstance(limit, ReadMaxRows):
            ends = self._bounded(begin, ends, limit.max_rows)
        self._known = newer(begin, ends)
        return to_offset(self._known)

    def _ends(self, begin: Cursors) -> Cursors:
        planned = plan(self.inputs, begin)
        ends = {
            id: Cursor(min(transaction.offset for transaction in cursor.open), last=begin.get(id, START).last) if cursor.open else cursor
            for id, cursor in planned.cursors.items()
        }
        for split in plan_wire(self.inputs, ends, stable=True):
            ends[split.id] = Cursor(split.end, last=split.last)
        return ends

    def _bounded(self, begin: Cursors, ends: Cursors, offsets_max: int) -> Cursors:
        """The ends limited to `offsets_max` log offsets in total: a share for each log; unused shares go to the next logs."""
        bounded: Cursors = {}
        remaining = offsets_max
        for number, id in enumerate(sorted(ends)):
            start = begin.get(id, START).next_offset
            share = max(1, remaining // (len(ends) - number))
            if ends[id].next_offset - start <= share:
                bounded[id] = ends[id]
            else:
                bounded[id] = Cursor(start + share, last=begin.get(id, START).last)
            remaining = max(0, remaining - (bounded[id].next_offset - start))
        return bounded

    # Reading

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        begins, end_cursors = from_offset(start), from_offset(end)
        self._known = newer(self._known, newer(begins, end_cursors))
        ends = {id: to.next_offset for id, to in end_cursors.items() if id not in begins or to.next_offset > begins[id].next_offset}
        if not ends:
            return []
        splits: list[Split | WireSplit] = [*plan_between(self.inputs, begins, ends), *wire_between(self.inputs, begins, ends)]
        parts = [SplitPart(split, begins.get(split.id, START).next_offset, ends[split.id]) for split in splits]
        return tasks_of(self.inputs, parts, self.packing)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self.columns)


def newer(cursors: Cursors, others: Cursors) -> Cursors:
    later = {id: other for id, other in others.items() if id not in cursors or other.next_offset > cursors[id].next_offset}
    return {**cursors, **later}


def to_offset(cursors: Mapping[LogId, Cursor]) -> dict[str, str]:
    return {str(id): json.dumps(cursor.as_json(), separators=(",", ":")) for id, cursor in sorted(cursors.items())}


def from_offset(offset: Mapping[str, Any]) -> Cursors:
    return {LogId.from_text(name): Cursor.from_json(json.loads(text)) for name, text in offset.items()}
