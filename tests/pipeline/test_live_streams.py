"""Streams of live logs, of our broker and of Apache Kafka: every record once through stops and restarts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pipeline.inputs import Inputs
from pipeline.jobs import Steps
from pipeline.rows import Record as Row
from pipeline.tables import Tables
from tests.kafka_process import free_ports, kafka_folder, running_kafka
from tests.pipeline.building import ENGINE
from tests.pipeline.decoded import check_stored, decoded
from tests.pipeline.fake_cluster import commit_offsets
from tests.pipeline.limits import limit
from tests.pipeline.segments import rows_of_spark
from tests.running import broker
from tests.spark.session import await_that

pytestmark = pytest.mark.spark

SECONDS = 300.0


class Live:
    """A broker that can be stopped and restarted, on the same port with the same data."""

    def __init__(self, port: int, start: Any) -> None:
        self.port = port
        self._start = start
        self._running = ExitStack()

    def start(self) -> None:
        self._running.enter_context(self._start())

    def stop(self) -> None:
        self._running.close()


@contextmanager
def live_tenure(folder: Path) -> Iterator[Live]:
    (port,) = free_ports(1)
    settings = ("--profile", "test", "--data", str(folder / "data"), "--set", "offsets.topic.num.partitions=2")
    yield Live(port, lambda: broker(*settings, "--listen", f"127.0.0.1:{port}"))


@contextmanager
def live_kafka(folder: Path) -> Iterator[Live]:
    with kafka_folder(offsets_topic_num_partitions="2", group_initial_rebalance_delay_ms="0") as (home, port):
        yield Live(port, lambda: running_kafka(home, port))


class Stream:
    """A streaming query that writes its rows to Parquet files; each new run continues from the checkpoint."""

    def __init__(self, spark: Any, folder: Path, source: str) -> None:
        self._spark = spark
        self._folder = folder
        self._source = source

    def run(self, **trigger: object) -> Any:
        frame = self._spark.readStream.format("koffsets").options(**limit(60)).load(self._source)
        writer = frame.writeStream.format("parquet").option("checkpointLocation", f"{self._folder}/checkpoint")
        return writer.trigger(**trigger).start(f"{self._folder}/rows")

    def finish(self) -> None:
        query = self.run(availableNow=True)
        assert query.awaitTermination(SECONDS)
        assert query.exception() is None

    def check_running(self, query: Any) -> bool:
        if query.exception() is not None:
            raise query.exception()
        return True

    def rows(self) -> list[Row]:
        return rows_of_spark(self._spark.read.parquet(f"{self._folder}/rows"))


def ingested(out: Path, source: str) -> list[Row]:
    """All records that are stored now, read without Spark."""
    made, inputs = Tables.open(out, create=True), Inputs.of([source])
    ENGINE.round(made, inputs, Steps(builds=False))
    rows = decoded(inputs)
    check_stored(made, rows)
    return rows


@pytest.mark.parametrize("start", [live_tenure, pytest.param(live_kafka, marks=pytest.mark.kafka)])
def test_a_live_stream_delivers_every_record_once(spark: Any, tmp_path: Path, start: Any) -> None:
    with start(tmp_path) as live:
        live.start()
        try:
            source = f"kafka://127.0.0.1:{live.port}"
            stream = Stream(spark, tmp_path, source)
            commit_offsets(live.port, 0)
            stream.finish()  # a run with the trigger availableNow
            assert len([row for row in stream.rows() if row.kind == "offset"]) == 60
            commit_offsets(live.port, 1)
            query = stream.run(processingTime="200 milliseconds")
            await_that(lambda: stream.check_running(query) and len(stream.rows()) >= 120, lambda: query.status)
            live.stop()  # while the query runs
            live.start()
            commit_offsets(live.port, 2)
            await_that(lambda: stream.check_running(query) and len(stream.rows()) >= 180, lambda: query.status)
            query.stop()
            commit_offsets(live.port, 3)  # while no query runs
            stream.finish()
            streamed = stream.rows()
            at_once = ingested(tmp_path / "out", source)
            assert len([row for row in at_once if row.kind == "offset"]) == 240
            ends = {(row.log, row.partition): row.offset for row in streamed}  # the broker may have written a note since
            assert in_order(streamed) == in_order([row for row in at_once if row.log == "offsets" or row.offset <= ends.get((row.log, row.partition), -1)])
        finally:
            live.stop()


def in_order(rows: list[Row]) -> list[Row]:
    """The rows without the position of their batch, which differs between a file and a reply."""
    return [row._replace(file_pos=0) for row in rows]
