"""kill -9 of a run in one process, at each step that publishes and at some others: the next run writes the tables of an undisturbed run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.building import analyzed
from tests.pipeline.scenarios import random_script, write_script
from tests.running import ROOT, environment

pytestmark = pytest.mark.once  # files and processes do not depend on the Python version


def test_a_run_killed_at_any_step_is_completed_by_the_next(tmp_path: Path) -> None:
    data, undisturbed, base = tmp_path / "data", tmp_path / "whole", tmp_path / "base"
    write_script(random_script(5, steps=8), data)
    (log,) = (path for path in data.glob("__consumer_offsets-*") if any(file.stat().st_size for file in path.glob("*.log")))
    made = analyzed(undisturbed, data, [])
    records = sum(made.read(name).num_rows for name in ("records", "commits"))
    analyzed(base, data, [{int(log.name.rpartition("-")[2]): records // 3}], finish=False)
    command = [sys.executable, "-m", "tests.pipeline.dying", str(base), str(data), str(tmp_path / "runs")]
    (tmp_path / "runs").mkdir()
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    outcomes = [line.split() for line in done.stdout.splitlines()]
    names = {name for name, *_ in outcomes}
    assert {"change-progress", "changed-progress"} <= names
    assert len(names) > 5
    assert [outcome[1:] for outcome in outcomes] == [["-9", "0", "0"]] * len(outcomes), done.stdout
