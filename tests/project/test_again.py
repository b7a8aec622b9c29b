"""Tests that failed in parallel with others are run again alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from project.again import PROPERTY, RERUN_FAILURES_MAX, RERUNS
from project.test import read
from tests.running import ROOT

pytestmark = pytest.mark.once

COUNTED = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range({tests}))
def test_counted(number):
    runs = Path(__file__).with_name(f"runs-{{number}}")
    runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
    assert len(runs.read_text()) not in {fails}

def test_sound(): pass
"""


@pytest.mark.parametrize(
    ("fails", "tests", "workers", "runs", "passes"),
    [
        pytest.param([1], RERUN_FAILURES_MAX, "2", 1 + RERUNS, True, id="a-few-once"),
        pytest.param([1], RERUN_FAILURES_MAX + 1, "0", 1, False, id="more-than-a-few"),
        pytest.param([1, RERUNS + 1], 1, "0", RERUNS + 1, False, id="again-at-the-last-try"),
    ],
)
def test_a_failed_test_that_passes_alone_each_time_counts_as_passed(fails: list[int], tests: int, workers: str, runs: int, passes: bool, tmp_path: Path) -> None:
    (tmp_path / "test_counted.py").write_text(COUNTED.format(fails=fails, tests=tests))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "pytest_randomly", "-p", "project.again", "-n", workers, f"--junitxml={report}", "test_counted.py"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == passes, done.stdout
    assert {len(path.read_text()) for path in tmp_path.glob("runs-*")} == {runs}
    assert ("PASSED ALONE" in done.stdout) == passes == (PROPERTY in report.read_text())
    tally = read(report, done.returncode)
    assert (tally.passed, tally.failed) == ((tests + 1, 0) if passes else (1, tests))
