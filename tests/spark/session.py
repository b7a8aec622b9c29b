"""A small Spark in one JVM, and topics as its DataFrames."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

SECONDS = 60.0  # a tenth is enough unless the machine is busy
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"  # quick to start, not to run long

# Small plans on small data: Spark's optimizations for large data only cost time here.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "768m",
    "spark.driver.extraJavaOptions": JVM,
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
    "spark.log.level": "ERROR",
}
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
}


def has_delta(jars: Sequence[Path]) -> bool:
    return any(jar.name.startswith("delta-spark") for jar in jars)


@contextmanager
def session(jars: Sequence[Path], folder: Path) -> Iterator[Any]:
    """A SparkSession whose files are under `folder`; its JVM ends with it."""
    saved_environment, cwd = dict(os.environ), os.getcwd()
    for name in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_", "HADOOP_"))]:
        del os.environ[name]  # use no other Spark
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", SPARK_LOCAL_HOSTNAME="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    try:
        os.chdir(folder)  # Spark puts some folders where it is started
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2]").appName("tenure")
        for name, value in {**SETTINGS, **(DELTA if has_delta(jars) else {})}.items():
            builder = builder.config(name, value)
        builder = builder.config("spark.jars", ",".join(map(str, jars)))
        spark = builder.config("spark.sql.warehouse.dir", f"{folder}/warehouse").config("spark.local.dir", f"{folder}/local").getOrCreate()
    finally:
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(saved_environment)
    try:
        yield spark
    finally:
        spark.stop()
        end_jvm()


def end_jvm() -> None:
    """End the JVM of this process; the next use of Spark starts another."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends with its standard input
    gateway.proc.wait(SECONDS)


class Record(NamedTuple):
    """A record as Spark reads it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class SparkTopics:
    """The topics of one broker, read and written by Spark."""

    def __init__(self, spark: Any, bootstrap: str) -> None:
        self.spark = spark
        self.bootstrap = bootstrap

    def frame(self, rows: list[tuple[Any, ...]], columns: str) -> Any:
        """A DataFrame of these rows, without a Python worker."""
        return self.spark.createDataFrame(rows, columns)

    def write(self, frame: Any, topic: str | None = None, **options: object) -> None:
        topic_option = {} if topic is None else {"topic": topic}
        frame.write.format("kafka").options(**self._options(options | topic_option)).save()

    def read(self, topic: str = "", **options: object) -> Any:
        return self.spark.read.format("kafka").options(**self._options(self._subscribed(topic) | options)).load()

    def stream(self, topic: str = "", **options: object) -> Any:
        return self.spark.readStream.format("kafka").options(**self._options(self._subscribed(topic) | options)).load()

    def records(self, topic: str = "", **options: object) -> list[Record]:
        """The records found by a batch read, by partition and offset."""
        rows = self.read(topic, includeHeaders="true", **options).collect()
        return sorted(Record(row.partition, row.offset, some_bytes(row.key), some_bytes(row.value), headers(row)) for row in rows)

    def values(self, topic: str = "", **options: object) -> list[int]:
        """The values, which must be numbers, in the order of partition and offset."""
        return [int(record.value or b"") for record in self.records(topic, **options)]

    def _subscribed(self, topic: str) -> dict[str, object]:
        return {"subscribe": topic} if topic else {}

    def _options(self, options: dict[str, object]) -> dict[str, str]:
        """Spark's options: names that begin with `kafka_` have underscores in place of dots."""
        dotted = {name.replace("_", ".") if name.startswith("kafka_") else name: str(value) for name, value in options.items()}
        return {"kafka.bootstrap.servers": self.bootstrap} | dotted


def some_bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def headers(row: Any) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((header.key, some_bytes(header.value)) for header in row.headers or ())


@contextmanager
def running(writer: Any) -> Iterator[Any]:
    """A started streaming query, stopped at the end."""
    query = writer.start()
    try:
        yield query
    finally:
        query.stop()


def finish(writer: Any) -> Any:
    """Run a query that ends by itself."""
    with running(writer) as query:
        assert query.awaitTermination(SECONDS), query.status
    return query


def await_that(holds: Callable[[], bool], state: Callable[[], object]) -> None:
    until = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < until, state()
        time.sleep(0.05)
