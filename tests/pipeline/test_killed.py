"""kill -9 of a run in one process, at each step that publishes and at some others: the next run writes the tables of an undisturbed run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.building import analyzed
from tests.pipeline.scenarios import random_script, write_script
from tests.running import ROOT, environment
from tests.support.cases import some

pytestmark = pytest.mark.once  # files and processes do not depend on the Python version


PARTS = 4  # of the steps: every fourth one


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs in `data`, and tables of a third of them in `base`."""
    folder = tmp_path_factory.mktemp("killed")
    data = folder / "data"
    write_script(random_script(5, steps=8), data)
    (log,) = (path for path in data.glob("__consumer_offsets-*") if any(file.stat().st_size for file in path.glob("*.log")))
    made = analyzed(folder / "whole", data, [])
    records = sum(made.read(name).num_rows for name in ("records", "commits"))
    analyzed(folder / "base", data, [{int(log.name.rpartition("-")[2]): records // 3}], finish=False)
    return folder


@pytest.mark.parametrize("part", some(1, range(PARTS)))
def test_a_run_killed_at_any_step_is_completed_by_the_next(folder: Path, tmp_path: Path, part: int) -> None:
    command = [sys.executable, "-m", "tests.pipeline.dying", str(folder / "base"), str(folder / "data"), str(tmp_path), f"{part}/{PARTS}"]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    outcomes = [line.split() for line in done.stdout.splitlines()]
    assert {"change-progress", "changed-progress"} & {name for name, *_ in outcomes}
    assert len(outcomes) >= 2
    assert [outcome[1:] for outcome in outcomes] == [["-9", "0", "0"]] * len(outcomes), done.stdout
