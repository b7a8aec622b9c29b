"""The wheel of pytest-tenure: the plugin, the library for tests, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.running import ROOT, environment

pytestmark = pytest.mark.once


def test_the_wheel_has_the_plugin_and_the_library(tmp_path: Path) -> None:
    for name in ("pytest-tenure", "tenure/testing"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "_testing"))
    command = [sys.executable, "-I", "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", "wheels", "./pytest-tenure"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(PYTHONWARNINGS="default"), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (tmp_path / "wheels").iterdir()
    with ZipFile(wheel) as opened:
        names = [name for name in opened.namelist() if ".dist-info/" not in name]
        (points,) = [name for name in opened.namelist() if name.endswith("entry_points.txt")]
        assert "tenure = pytest_tenure.plugin" in opened.read(points).decode()
    library = sorted(path.name for path in (ROOT / "tenure" / "testing").glob("*.py"))
    assert sorted(names) == sorted(["pytest_tenure/__init__.py", "pytest_tenure/plugin.py", *(f"pytest_tenure/_testing/{name}" for name in library)])
    assert not (tmp_path / "pytest-tenure" / "build").exists()
