"""On a Spark cluster whose workers have Python and the listed packages, and no Tenure: the tables of a run without Spark."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.demo import write_world
from pipeline.rows import TABLES
from pipeline.tables import Tables
from tests.pipeline import standalone
from tests.running import ROOT

pytestmark = pytest.mark.spark

SECONDS = 400
PACKAGES = ("tenure", "protocol", "storage", "coordinator", "history", "secured", "broker", "pipeline", "pyspark_koffsets", "cli")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("world") / "data"
    write_world(directory, seed=1, days=0.05)
    return directory


@pytest.fixture(scope="module")
def reference_tables(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    out = tmp_path_factory.mktemp("none") / "out"
    command = [sys.executable, "-P", "-m", "tenure", "analyze", "run", "--offsets", str(data), "--out", str(out), "--master", "none", "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=SECONDS, cwd=ROOT)
    return tables(out)


def tables(out: Path) -> dict[str, pa.Table]:
    made = Tables.open(out)
    return {name: made.read(name) for name in TABLES}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("pyspark")
    with standalone.standalone(tmp_path_factory.mktemp("cluster")) as url:
        yield url


def arguments(data: Path, out: Path) -> list[str]:
    return ["analyze", "run", "--offsets", str(data), "--out", str(out), "--report", str(out.parent / "report.html")]


def check(done: subprocess.CompletedProcess[str], out: Path, expected: dict[str, pa.Table]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    written = tables(out)
    for name, table in expected.items():
        assert written[name].equals(table), name
    assert (out.parent / "report.html").stat().st_size > 100_000


def test_the_command_ships_its_code_to_a_spark_master(cluster: str, data: Path, reference_tables: dict[str, pa.Table], tmp_path: Path) -> None:
    python = standalone.bare_python(tmp_path / "python", *standalone.WORKER_PACKAGES)
    assert "No module named 'protocol'" in subprocess.run([python, "-I", "-c", "import protocol"], capture_output=True, text=True, check=False).stderr
    command = [sys.executable, "-P", "-m", "tenure", *arguments(data, tmp_path / "out"), "--master", cluster]
    command += ["--conf", f"spark.pyspark.python={python}", "--conf", "spark.executor.memory=500m"]
    done = subprocess.run(command, cwd=tmp_path, env=standalone.environment(), capture_output=True, text=True, timeout=SECONDS, check=False)
    check(done, tmp_path / "out", reference_tables)


def test_spark_submit_brings_the_code_to_driver_and_executors(cluster: str, data: Path, reference_tables: dict[str, pa.Table], tmp_path: Path) -> None:
    python = str(standalone.bare_python(tmp_path / "python", *standalone.WORKER_PACKAGES, *standalone.DRIVER_PACKAGES))
    shutil.copy(ROOT / "tenure" / "__main__.py", tmp_path / "main.py")
    subprocess.run([sys.executable, "-m", "zipfile", "-c", tmp_path / "tenure.zip", *(ROOT / name for name in PACKAGES)], check=True)
    command = [standalone.spark_program("spark-submit"), "--master", cluster, "--executor-memory", "500m"]
    command += ["--py-files", str(tmp_path / "tenure.zip"), str(tmp_path / "main.py"), *arguments(data, tmp_path / "out")]
    environment = standalone.environment(PYSPARK_PYTHON=python, TENURE_DEBUG="1")
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    check(done, tmp_path / "out", reference_tables)


@pytest.mark.skipif(sys.platform != "linux", reason="finds the parents of a process in /proc")
def test_a_killed_worker_and_a_killed_executor_change_nothing(cluster: str, data: Path, reference_tables: dict[str, pa.Table], tmp_path: Path) -> None:
    python = standalone.bare_python(tmp_path / "python", *standalone.WORKER_PACKAGES)
    marks = tmp_path / "marks"
    marks.mkdir()
    command = [sys.executable, "-P", "-m", "tests.pipeline.build_with_lost_workers", cluster, *map(str, (python, data, tmp_path / "out", marks))]
    environment = standalone.environment(PYTHONPATH=str(ROOT))
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.name for path in marks.iterdir()} == {"worker", "executor"}
    written = tables(tmp_path / "out")
    assert [name for name in reference_tables if not written[name].equals(reference_tables[name])] == []
    made = Tables.open(tmp_path / "out")
    published = made.published()
    named = {f"{made.store.place(name)}/{file.path}" for name in published.versions for file in made.files_of(published, name)}
    assert {str(path) for path in (tmp_path / "out").rglob("*.parquet") if "_delta_log" not in path.parts} - named  # files of killed processes do not count
