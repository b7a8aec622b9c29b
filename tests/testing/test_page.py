"""The tests of docs/testing.md that use the plugin, or unittest, pass as they stand there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.listings import listing_named
from tests.running import ROOT, environment
from tests.testing.test_plugin import Project

pytestmark = pytest.mark.once


PAGE = ROOT / "docs/testing.md"


@pytest.mark.parametrize(("name", "count"), [("test_arrival.py", 1), ("test_billing.py", 3), ("test_groups.py", 2)])
def test_the_tests_of_the_page_pass(tmp_path: Path, name: str, count: int) -> None:
    pytest.importorskip("kafka", reason="kafka-python is not installed for this Python")
    project = Project(tmp_path)
    (tmp_path / name).write_text(listing_named(PAGE, name))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = project.run("-W", "default", seconds=110, PATH=path)
    assert f"{count} passed" in done.stdout, done.stdout + done.stderr


def test_the_tests_of_unittest_pass(tmp_path: Path) -> None:
    pytest.importorskip("kafka", reason="kafka-python is not installed for this Python")
    (tmp_path / "test_unittest.py").write_text(listing_named(PAGE, "test_unittest.py"))
    command = [sys.executable, "-m", "unittest", "test_unittest"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(PYTHONWARNINGS="default"), capture_output=True, text=True, timeout=100, check=False, stdin=subprocess.DEVNULL)
    assert (done.returncode, "Ran 2 tests" in done.stderr) == (0, True), done.stderr
