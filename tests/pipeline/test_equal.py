"""On Spark, with any number of workers and partitions, in any slices: the tables of a run without Spark, to the last row."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.demo import write_world
from pipeline.inputs import Inputs
from pipeline.jobs import Engine, PlainEngine, Steps
from pipeline.progress import Progress
from pipeline.rows import TABLES
from pipeline.rows import Record as Row
from pipeline.schema import rows_of
from pipeline.session import SparkFailed, session
from pipeline.tables import Tables
from protocol.messages.kinds import NoteKind
from tests.pipeline.building import SLICED, difference
from tests.pipeline.limits import limit
from tests.pipeline.segments import rows_of_spark
from tests.running import ROOT
from tests.spark.session import SETTINGS

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("jvm")]

QUIET = Progress()
SEED = random.randrange(1 << 16)  # part of the tests' names, so that a failure can be repeated


@pytest.fixture(scope="module")
def log_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("world") / "data"
    write_world(directory, seed=SEED, days=0.06)
    return directory


def analyzed(out: Path, log_folder: Path, engine: Engine, cuts: Sequence[float] = ()) -> Tables:
    """Analyse in several runs, one for each part of the log in `cuts`; a last run reads everything."""
    tables = Tables.open(out, create=True)
    ends = {} if not cuts else ends_of(log_folder)
    for until in [*({number: int(end * cut) for number, end in ends.items()} for cut in cuts), {}]:
        engine.round(tables, Inputs.of([str(log_folder)], until=until), Steps())
    return tables


def ends_of(log_folder: Path) -> dict[int, int]:
    bytes_of = {int(path.name.rpartition("-")[2]): sum(file.stat().st_size for file in path.glob("*.log")) for path in log_folder.glob("__consumer_offsets-*")}
    return {number: size // 100 for number, size in bytes_of.items()}  # a rough number of records


@pytest.fixture(scope="module")
def reference_tables(log_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    made = analyzed(tmp_path_factory.mktemp("none") / "out", log_folder, PlainEngine(QUIET))
    tables = {name: made.read(name) for name in TABLES}
    assert all(len(tables[name]) for name in ("commits", "rebalances", "lag_1m", "status"))
    return tables


@contextmanager
def on_spark(master: str, partitions: int) -> Iterator[Any]:
    from pyspark_koffsets import DefaultSource

    with session(master, {**SETTINGS, "spark.sql.shuffle.partitions": str(partitions)}) as spark:
        spark.dataSource.register(DefaultSource)
        yield spark


def compare(made: Tables, expected: dict[str, pa.Table], sliced: bool = False) -> None:
    for name, table in expected.items():
        if not (sliced and name in SLICED):
            read = made.read(name)
            assert read.equals(table), difference(name, read, table)


@pytest.mark.parametrize(("master", "partitions", "slices"), [("local[1]", 1, 0), ("local[2]", 64, 2)], ids=lambda value: f"{value}-{SEED}")
def test_tables_are_those_of_a_run_without_spark(
    log_folder: Path, reference_tables: dict[str, pa.Table], tmp_path: Path, master: str, partitions: int, slices: int
) -> None:
    from pipeline.spark_engine import SparkEngine

    cuts = sorted(random.Random(SEED).uniform(0.05, 0.95) for _ in range(slices))
    with on_spark(master, partitions) as spark:
        compare(analyzed(tmp_path / "out", log_folder, SparkEngine(spark, QUIET), cuts), reference_tables, bool(cuts))


def test_a_stream_and_queries_have_the_records_of_the_tables(log_folder: Path, reference_tables: dict[str, pa.Table], tmp_path: Path) -> None:
    with on_spark("local[2]", 4) as spark:
        stream = spark.readStream.format("koffsets").options(**limit(len(reference_tables["records"]) // 2)).load(str(log_folder))
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
        assert query.awaitTermination(300)
        assert query.exception() is None
        streamed = rows_of_spark(spark.read.parquet(str(tmp_path / "out")))
        kept = [row for row in streamed if row.kind != "offset" and not (row.log == "notes" and row.group == "" and is_end_offsets(row))]
        assert kept == sorted(rows_of(Row, reference_tables["records"]), key=lambda row: (row.log, row.partition, row.offset))
        commits = Counter((row.group, row.topic, row.topic_partition, row.offset) for row in streamed if row.kind == "offset")
        assert commits == Counter(zip(*(reference_tables["commits"][name].to_pylist() for name in ("group", "topic", "topic_partition", "offset")), strict=True))
        kinds = Counter(row.kind for row in streamed)
        frame = spark.read.format("koffsets").load(str(log_folder))
        for partitions in (1, 4, 64):
            spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
            assert {row["kind"]: row["count"] for row in frame.groupBy("kind").count().collect()} == kinds


def is_end_offsets(row: Row) -> bool:
    return row.value_raw is not None and row.value_raw[2] == NoteKind.END_OFFSETS


def test_the_plan_is_a_scan_a_shuffle_by_chunk_and_a_map_in_arrow(log_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pipeline.block_stream import options_of
    from pipeline.spark_engine import DONE
    from pyspark_koffsets import chunk_function

    with on_spark("local[1]", 2) as spark:
        options = options_of(Inputs.of([str(log_folder)]), 6, {}, ends=True)
        blocks = spark.read.format("koffsets").options(**options).load()
        blocks.where("chunk <> -1").groupBy("cluster", "chunk").applyInArrow(chunk_function(b""), DONE).explain()
        plan = capsys.readouterr().out
        assert [name for name in ("FlatMapGroupsInArrow", "Exchange hashpartitioning", "BatchScan") if name not in plan] == []
        counted = blocks.where("kind = 'counts'").toArrow()
        kinds = {row["kind"]: row["records"] for row in blocks.groupBy("kind").sum("records").withColumnRenamed("sum(records)", "records").collect()}
        records = spark.read.format("koffsets").load(str(log_folder)).count()
        assert kinds["commits"] + kinds["events"] + kinds["ends"] == records
        assert len(counted)


def test_nothing_of_the_pipeline_uses_the_first_api_of_spark() -> None:
    sources = [*(ROOT / "pipeline").rglob("*.py"), ROOT / "pyspark_koffsets" / "__init__.py"]
    assert [str(path) for path in sources if re.search(r"sparkContext|\.rdd\b|_jvm\b|_jsc\b", path.read_text())] == []


def test_a_task_that_fails_is_reported_in_one_line(log_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.spark_engine import SparkEngine

    made = Tables.open(tmp_path / "out", create=True)
    monkeypatch.setattr("pipeline.spark_engine.ChunkWork", lambda *parts: ())  # the tasks cannot use it
    with on_spark("local[1]", 1) as spark, pytest.raises(SparkFailed) as failed:
        SparkEngine(spark, QUIET).round(made, Inputs.of([str(log_folder)]), Steps())
    assert "\n" not in str(failed.value)
    assert str(failed.value).startswith("Spark gave the run up: AttributeError: ")
    assert made.published().batch == 0


def test_the_reason_of_a_failure_is_found_in_a_mixed_traceback() -> None:
    from pipeline.spark_engine import failure_of

    text = "[STREAM_FAILED] Query ended\nTraceback (most recent call last):\n  File x\npipeline.inputs.BadInput: /data: is empty\n\tat org.apache"
    assert repr(failure_of(Exception(text))) == "BadInput('/data: is empty')"
