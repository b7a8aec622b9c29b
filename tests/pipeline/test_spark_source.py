"""The data source as users find it: an installed package, its options, and each example of docs/spark.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.rows import TABLES
from tests.pipeline.segments import random_batches, reference, rows_of_spark, write_segment

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
INSIDE = ("protocol", "coordinator", "storage", "history", "secured", "broker", "pipeline", "cli")
PROGRAM = """
import sys
from pyspark.sql import SparkSession

data, out, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1").getOrCreate()
print("batch", spark.read.format("koffsets").load(data).where("partition = 0").count())
query = spark.readStream.format("koffsets").load(data).writeStream.format("parquet").option("checkpointLocation", checkpoint).trigger(availableNow=True).start(out)
query.awaitTermination()
print("stream", spark.read.parquet(out).count())
spark.stop()
"""


def installed(folder: Path) -> Path:
    """A folder as a wheel leaves it in site-packages."""
    inside = folder / "tenure" / "_inside"
    inside.mkdir(parents=True)
    for name in INSIDE:
        (inside / name).symlink_to(ROOT / name)
    for module in ("__init__.py", "start.py"):
        (folder / "tenure" / module).write_text((ROOT / "tenure" / module).read_text())
    (folder / "pyspark_koffsets").symlink_to(ROOT / "pyspark_koffsets")
    return folder


def test_an_installed_package_needs_no_registration(tmp_path: Path) -> None:
    """Neither the driver nor the workers can import Tenure's packages by themselves."""
    data = tmp_path / "data"
    for partition in range(2):
        write_segment(data / f"__consumer_offsets-{partition}", random_batches(partition, 60))
    counts = [len(reference(data / f"__consumer_offsets-{partition}")) for partition in range(2)]
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    environment |= {"PYTHONPATH": str(installed(tmp_path / "site")), "PYSPARK_PYTHON": sys.executable, "PYTHONSAFEPATH": "1"}
    arguments = [str(data), str(tmp_path / "out"), str(tmp_path / "checkpoint")]
    ran = subprocess.run([sys.executable, str(script), *arguments], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr[-3_000:]
    assert ran.stdout.split("\n")[:2] == [f"batch {counts[0]}", f"stream {sum(counts)}"]


def test_splits_are_packed_into_few_tasks(spark: Any, tmp_path: Path) -> None:
    for partition in range(12):
        write_segment(tmp_path / f"__consumer_offsets-{partition}", random_batches(partition, 5 + 10 * (partition % 3)))
    expected = [row for partition in range(12) for row in reference(tmp_path / f"__consumer_offsets-{partition}")]
    source = spark.read.format("koffsets")
    for options, tasks in (({"tasks": 3}, 3), ({"tasks": 1}, 1), ({"tasks": 100}, 12), ({"tasks": 1, "taskRecords": len(expected) // 4 + 1}, 4)):
        frame = source.options(**{"taskRecords": 250_000, **options}).load(str(tmp_path))
        assert frame.selectExpr("spark_partition_id() AS task").distinct().count() == tasks
        assert sorted(rows_of_spark(frame)) == sorted(expected)


def test_columns_and_tables_may_be_chosen(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "__consumer_offsets-0"
    write_segment(folder, random_batches(5, 100))
    source = spark.read.format("koffsets")
    frame = source.option("columns", "group, offset").load(str(tmp_path)).where("offset >= 50")
    assert frame.columns == ["group", "offset"]
    assert sorted((row.offset, row.group) for row in frame.collect()) == [(row.offset, row.group) for row in reference(folder) if row.offset >= 50]
    for table in ("segments", "coverage"):
        frame = spark.read.format("koffsets").option("table", table).load(str(tmp_path))
        assert frame.columns == list(TABLES[table].row._fields)  # type: ignore[attr-defined]
        assert frame.where("partition = 0").count() >= 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"columns": "offset,ofset"}, "has no column ofset"),
        ({"table": "groups"}, "there is no table groups"),
        ({"tasks": "many"}, "tasks must be a number, and is 'many'"),
    ],
)
def test_a_wrong_option_is_named(spark: Any, tmp_path: Path, options: dict[str, str], words: str) -> None:
    write_segment(tmp_path / "__consumer_offsets-0", random_batches(5, 3))
    with pytest.raises(Exception, match=words):
        spark.read.format("koffsets").options(**options).load(str(tmp_path)).count()


def test_each_example_of_the_page_runs(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_segment(tmp_path / "data" / "__consumer_offsets-3", random_batches(8, 300))
    page = (ROOT / "docs" / "spark.md").read_text().replace("/var/lib/kafka/data", str(tmp_path / "data")).replace("my-table", str(tmp_path / "mine"))
    names: dict[str, Any] = {"spark": spark}
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 5
    for block in blocks:
        exec(compile(block, "docs/spark.md", "exec"), names)
    assert names["newest"].count() > 3
    assert names["per_minute"].count() > 0
    assert capsys.readouterr().out.count("|") > 100
