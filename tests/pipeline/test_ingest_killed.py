"""kill -9 of the driver, or of a Python worker, while rows are written: the next run leaves each record once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.ingest import Inputs, ingest
from pipeline.progress import Progress
from pipeline.rows import Record as Row
from pipeline.runner import Sequential
from pipeline.schema import rows_of
from pipeline.warehouse import Warehouse
from tests.pipeline.segments import random_batches, reference, write_segment
from tests.running import ROOT

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("whom", ["driver", "worker"])
def test_what_dies_while_it_reads_has_published_nothing(tmp_path: Path, whom: str) -> None:
    pytest.importorskip("pyspark")
    data, out, marks = tmp_path / "data", tmp_path / "out", tmp_path / "marks"
    marks.mkdir()
    for partition in range(4):
        write_segment(data / f"__consumer_offsets-{partition}", random_batches(partition, 60))
    command = [sys.executable, "-m", "tests.pipeline.ingesting", str(data), str(out), str(marks)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MARKS": str(marks)}
    driver = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 120
        while not list(marks.iterdir()) and time.monotonic() < until:
            assert driver.poll() is None
            time.sleep(0.05)
        victim = driver.pid if whom == "driver" else int(next(marks.iterdir()).name)
        os.kill(victim, signal.SIGKILL)
        assert driver.wait(120) != 0
    finally:
        driver.kill()
        driver.wait(10)
    assert list(out.rglob("*.parquet"))  # written, and published by nobody
    assert Warehouse.open(out).current().run == 0
    quiet = Progress()
    warehouse = Warehouse.open(out)
    with warehouse.locked():
        ingest(warehouse, Sequential(quiet), Inputs.of([str(data)]), quiet)
    whole = [row for partition in range(4) for row in reference(data / f"__consumer_offsets-{partition}")]
    assert rows_of(Row, warehouse.read("records")) == whole
