"""Makes `spark.read.format("koffsets")` work without registration: Spark looks for packages called `pyspark_*` that have a `DefaultSource`.

Spark imports this for any Python source, so it imports nothing of the pipeline before the source is used. What Spark pickles for its
workers are the classes of this module alone, whose import makes Tenure's own packages importable there (`tenure/start.py`).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.types import StructType

from tenure.start import use_own_packages

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

AvailableNow: Any = object  # in PySpark 4.1: see pipeline/stream.py, which is also sent to workers that lack this package
with suppress(ImportError):
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

    AvailableNow = SupportsTriggerAvailableNow


def _source(options: Mapping[str, str]) -> Any:
    use_own_packages()
    from pipeline.source import CoordinatorLogs

    return CoordinatorLogs(dict(options))


class DefaultSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "koffsets"

    def schema(self) -> StructType:
        schema: StructType = _source(self.options).schema()
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        reader = FilteringReader if _source(self.options).pushes_filters else Reader
        return reader(dict(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        return StreamReader(dict(self.options), schema)


class Task(InputPartition):
    def __init__(self, task: InputPartition) -> None:
        self.pickled = pickle.dumps(task)


class _Proxy:
    """Has the source's reader, which is made again where the proxy was unpickled."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._made: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}

    @property
    def _reader(self) -> Any:
        if self._made is None:
            self._made = self._make(_source(self._options))
        return self._made

    def _make(self, source: Any) -> Any:
        raise NotImplementedError

    def read(self, partition: Any) -> Iterator[Any]:
        reader = self._reader  # first: it makes the classes of the task importable
        return iter(reader.read(pickle.loads(partition.pickled)))


class Reader(_Proxy, DataSourceReader):
    def _make(self, source: Any) -> Any:
        return source.reader(self._schema)

    def partitions(self) -> Sequence[InputPartition]:
        return [Task(task) for task in self._reader.partitions()]


class FilteringReader(Reader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        return list(self._reader.pushFilters(filters))


class StreamReader(_Proxy, DataSourceStreamReader, AvailableNow):
    def _make(self, source: Any) -> Any:
        return source.streamReader(self._schema)

    def initialOffset(self) -> dict[str, str]:  # noqa: N802
        offset: dict[str, str] = self._reader.initialOffset()
        return offset

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit: ReadLimit = self._reader.getDefaultReadLimit()
        return limit

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._reader.prepareForTriggerAvailableNow()

    def reportLatestOffset(self) -> dict[str, str] | None:  # noqa: N802
        offset: dict[str, str] | None = self._reader.reportLatestOffset()
        return offset

    def latestOffset(self, start: dict[str, str] | None = None, limit: ReadLimit | None = None) -> dict[str, str]:  # noqa: N802
        offset: dict[str, str] = self._reader.latestOffset(start, limit)
        return offset

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        return [Task(task) for task in self._reader.partitions(start, end)]


def batch_function(pickled: bytes) -> Any:
    """The function of each batch of `tenure analyze`, for foreachBatch."""

    def run(blocks: Any, _batch: int) -> None:
        from pipeline.spark_engine import run_batch

        run_batch(pickled, blocks)

    return run


def chunk_function(pickled: bytes) -> Any:
    """The function of `tenure analyze` that makes the tables of a chunk, for applyInArrow."""

    def run(rows: Any) -> Any:
        from tenure.start import use_own_packages

        use_own_packages()
        from pipeline.spark_engine import run_chunk

        return run_chunk(pickled, rows)

    return run
