"""kill -9 or Ctrl-C of the driver on Spark while rows are written: the next run stores each record once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.ingest import Inputs, ingest
from pipeline.progress import Progress
from pipeline.rows import Record as Row
from pipeline.runner import SequentialRunner
from pipeline.schema import rows_of
from pipeline.warehouse import Warehouse
from tests.pipeline.segments import random_batches, reference, write_segment
from tests.running import ROOT, wait_until

pytestmark = pytest.mark.spark
SECONDS = 300.0


@contextmanager
def started(*command: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    process = subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def await_any(process: subprocess.Popen[str], folder: Path, pattern: str) -> None:
    wait_until(lambda: process.poll() is not None or list(folder.glob(pattern)), SECONDS)
    assert process.poll() is None


def test_a_driver_killed_while_reading_has_published_nothing(data: Path, tmp_path: Path) -> None:
    out, marks = tmp_path / "out", tmp_path / "marks"
    marks.mkdir()
    with started("-m", "tests.pipeline.ingesting", str(data), str(out), str(marks)) as driver:
        await_any(driver, marks, "*")
        driver.kill()
        assert driver.wait(SECONDS) == -signal.SIGKILL
    assert list(out.rglob("*.parquet"))  # written, and not published
    assert Warehouse.open(out).current().run == 0
    assert read(data, out) == all_rows(data)


def test_an_interrupted_run_leaves_no_files(data: Path, tmp_path: Path) -> None:
    out, temporary = tmp_path / "out", tmp_path / "temporary"
    temporary.mkdir()
    run = ("-P", "-m", "tenure", "analyze", "run", "--follow", "--offsets", str(data), "--out", str(out), "--master", "local[1]", "--quiet")
    with started(*run, TMPDIR=str(temporary)) as driver:
        await_any(driver, out, "bronze/records/run=1/*")
        driver.send_signal(signal.SIGINT)
        assert driver.wait(SECONDS) == 0
        assert driver.stderr is not None
        assert driver.stderr.read() == ""
    assert not [path for path in temporary.iterdir() if path.name.startswith("tenure-")]
    assert read(data, out) == all_rows(data)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    pytest.importorskip("pyspark")
    for partition in range(4):
        write_segment(tmp_path / "data" / f"__consumer_offsets-{partition}", random_batches(partition, 60))
    return tmp_path / "data"


def read(data: Path, out: Path) -> list[Row]:
    quiet = Progress()
    warehouse = Warehouse.open(out)
    with warehouse.locked():
        ingest(warehouse, SequentialRunner(quiet), Inputs.of([str(data)]), quiet)
    return rows_of(Row, warehouse.read("records"))


def all_rows(data: Path) -> list[Row]:
    return [row for partition in range(4) for row in reference(data / f"__consumer_offsets-{partition}")]
