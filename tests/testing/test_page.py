"""The tests of docs/testing.md that use the plugin, or unittest, pass as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.listings import listing_named
from tests.running import ROOT, environment
from tests.testing.project import Project

pytestmark = pytest.mark.once


PAGE = ROOT / "docs/testing.md"


TESTS = {name: re.findall(r"^def (test_\w+)", listing_named(PAGE, name), re.MULTILINE) for name in ("test_arrival.py", "test_billing.py", "test_groups.py")}


@pytest.mark.parametrize(("name", "test"), [(name, test) for name, tests in TESTS.items() for test in tests])
def test_the_tests_of_the_page_pass(project: Project, name: str, test: str) -> None:
    """One by one: each has members that poll, which takes its time on a busy machine."""
    pytest.importorskip("kafka", reason="kafka-python is not installed for this Python")
    (project.folder / name).write_text(listing_named(PAGE, name))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = project.run("-W", "default", f"{name}::{test}", seconds=110, PATH=path)
    assert "1 passed" in done.text, done.text


def test_the_tests_of_unittest_pass(tmp_path: Path) -> None:
    pytest.importorskip("kafka", reason="kafka-python is not installed for this Python")
    (tmp_path / "test_unittest.py").write_text(listing_named(PAGE, "test_unittest.py"))
    command = [sys.executable, "-m", "unittest", "test_unittest"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(PYTHONWARNINGS="default"), capture_output=True, text=True, timeout=100, check=False, stdin=subprocess.DEVNULL)
    assert (done.returncode, "Ran 2 tests" in done.stderr) == (0, True), done.stderr
