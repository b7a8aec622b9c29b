"""On Spark, with any number of workers and partitions, in any slices: the tables of a run without Spark, to the last row."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.build import build
from pipeline.demo import write_world
from pipeline.ingest import ingest
from pipeline.inputs import Inputs
from pipeline.progress import Progress
from pipeline.rows import TABLES
from pipeline.rows import Record as Row
from pipeline.runner import Runner, SequentialRunner, SparkFailed, SparkRunner
from pipeline.samples import record_directories
from pipeline.schema import rows_of
from pipeline.session import session
from pipeline.warehouse import Warehouse
from tests.pipeline.building import SLICED, difference
from tests.pipeline.limits import limit
from tests.pipeline.segments import rows_of_spark
from tests.spark.session import SETTINGS

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("jvm")]

QUIET = Progress()
SEED = random.randrange(1 << 16)  # part of the tests' names, so that a failure can be repeated


@pytest.fixture(scope="module")
def log_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("world") / "data"
    write_world(directory, seed=SEED, days=0.06)
    return directory


def analyzed(out: Path, log_folder: Path, runner: Runner, cuts: Sequence[float] = ()) -> Warehouse:
    """Analyse in several runs, one for each part of the log in `cuts`; a last run reads everything."""
    warehouse = Warehouse.open(out, create=True)
    ends = {} if not cuts else ends_of(log_folder)
    for until in [*({number: int(end * cut) for number, end in ends.items()} for cut in cuts), {}]:
        with warehouse.locked():
            inputs = Inputs.of([str(log_folder)], until=until)
            ingest(warehouse, runner, inputs, QUIET)
            record_directories(warehouse, inputs)
            build(warehouse, runner)
    return warehouse


def ends_of(log_folder: Path) -> dict[int, int]:
    bytes_of = {int(path.name.rpartition("-")[2]): sum(file.stat().st_size for file in path.glob("*.log")) for path in log_folder.glob("__consumer_offsets-*")}
    return {number: size // 100 for number, size in bytes_of.items()}  # a rough number of records


@pytest.fixture(scope="module")
def reference_tables(log_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    warehouse = analyzed(tmp_path_factory.mktemp("none") / "out", log_folder, SequentialRunner(QUIET))
    tables = {name: warehouse.read(name) for name in TABLES}
    assert all(len(tables[name]) for name in ("commits", "rebalances", "lag_1m", "status"))
    return tables


@contextmanager
def on_spark(master: str, partitions: int) -> Iterator[Any]:
    with session(master, {**SETTINGS, "spark.sql.shuffle.partitions": str(partitions)}) as spark:
        yield spark


def compare(warehouse: Warehouse, expected: dict[str, pa.Table], sliced: bool = False) -> None:
    for name, table in expected.items():
        if not (sliced and name in SLICED):
            read = warehouse.read(name)
            assert read.equals(table), difference(name, read, table)


@pytest.mark.parametrize(("master", "partitions", "slices"), [("local[1]", 1, 0), ("local[2]", 64, 2)], ids=lambda value: f"{value}-{SEED}")
def test_tables_are_those_of_a_run_without_spark(
    log_folder: Path, reference_tables: dict[str, pa.Table], tmp_path: Path, master: str, partitions: int, slices: int
) -> None:
    cuts = sorted(random.Random(SEED).uniform(0.05, 0.95) for _ in range(slices))
    with on_spark(master, partitions) as spark:
        compare(analyzed(tmp_path / "out", log_folder, SparkRunner(spark, QUIET), cuts), reference_tables, bool(cuts))


def test_a_stream_and_queries_have_the_records_of_the_tables(log_folder: Path, reference_tables: dict[str, pa.Table], tmp_path: Path) -> None:
    from pipeline.source import CoordinatorLogs

    with on_spark("local[2]", 4) as spark:
        spark.dataSource.register(CoordinatorLogs)
        stream = spark.readStream.format("koffsets").options(**limit(len(reference_tables["records"]) // 2)).load(str(log_folder))
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
        assert query.awaitTermination(300)
        assert query.exception() is None
        assert rows_of_spark(spark.read.parquet(str(tmp_path / "out"))) == sorted(
            rows_of(Row, reference_tables["records"]), key=lambda row: (row.log, row.partition, row.offset)
        )
        kinds = Counter(reference_tables["records"]["kind"].to_pylist())
        frame = spark.read.format("koffsets").load(str(log_folder))
        for partitions in (1, 4, 64):
            spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
            assert {row["kind"]: row["count"] for row in frame.groupBy("kind").count().collect()} == kinds


def test_a_task_that_fails_is_reported_in_one_line() -> None:
    with on_spark("local[1]", 1) as spark, pytest.raises(SparkFailed) as failed:
        SparkRunner(spark, QUIET).run("dividing", lambda task: 1 // task, [1, 0], lambda task: 1)
    assert str(failed.value) == "Spark gave up dividing: ZeroDivisionError: integer division or modulo by zero"
