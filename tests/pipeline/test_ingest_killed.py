"""kill -9 or Ctrl-C of a run while it writes: the next run stores each record once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.inputs import Inputs
from pipeline.jobs import Steps
from pipeline.rows import Record as Row
from pipeline.tables import Tables
from tests.pipeline.building import ENGINE
from tests.pipeline.decoded import check_stored
from tests.pipeline.segments import random_batches, reference, write_segment
from tests.running import ROOT, wait_until

pytestmark = pytest.mark.once
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


def test_a_run_killed_while_it_writes_has_published_nothing(data: Path, tmp_path: Path) -> None:
    out, marks = tmp_path / "out", tmp_path / "marks"
    marks.mkdir()
    with started("-m", "tests.pipeline.ingesting", str(data), str(out), str(marks)) as run:
        await_any(run, marks, "*")
        run.kill()
        assert run.wait(SECONDS) == -signal.SIGKILL
    assert list(out.rglob("silver/commits/**/*.parquet"))  # written, and not published
    assert Tables.open(out).published().batch == 0
    check_read(data, out)


@pytest.mark.parametrize("master", ["none", pytest.param("local[1]", marks=pytest.mark.spark)])
def test_an_interrupted_run_leaves_no_files(data: Path, tmp_path: Path, master: str) -> None:
    out, temporary = tmp_path / "out", tmp_path / "temporary"
    temporary.mkdir()
    run = ("-P", "-m", "tenure", "analyze", "run", "--follow", "--offsets", str(data), "--out", str(out), "--master", master, "--quiet")
    with started(*run, TMPDIR=str(temporary)) as driver:
        await_any(driver, out, "silver/commits/cluster=*/*/*.parquet")
        driver.send_signal(signal.SIGINT)
        assert driver.wait(SECONDS) == 0
        assert driver.stderr is not None
        assert driver.stderr.read() == ""
    assert not [path for path in temporary.iterdir() if path.name.startswith("tenure-")]
    check_read(data, out)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for partition in range(4):
        write_segment(tmp_path / "data" / f"__consumer_offsets-{partition}", random_batches(partition, 60))
    return tmp_path / "data"


def check_read(data: Path, out: Path) -> None:
    """A run ends what was begun, and the tables have each record once."""
    made = Tables.open(out, create=True)
    ENGINE.round(made, Inputs.of([str(data)]), Steps(builds=False))
    check_stored(made, all_rows(data))


def all_rows(data: Path) -> list[Row]:
    return [row for partition in range(4) for row in reference(data / f"__consumer_offsets-{partition}")]
