from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.running import ROOT

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def make(*words: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    plain = {"PATH": os.environ["PATH"], "HOME": str(cwd)} | environment
    return subprocess.run([shutil.which("make") or "make", *words], cwd=cwd, env=plain, capture_output=True, text=True, check=False)


@needs_make
def test_help_lists_every_target() -> None:
    words = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"setup", "run", "test", "check", "bench", "compile", "dist", "lock"} <= words
    assert {line.split()[0] for line in make("help").stdout.splitlines()} == words


@needs_make
@pytest.mark.parametrize("python", ["", "./old", "./nowhere"])
def test_without_a_suitable_python_setup_prints_one_line_with_its_need(tmp_path: Path, python: str) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "old").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "old").chmod(0o755)
    (tmp_path / "bin").mkdir()
    for name in ("sh", "test", "echo"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    done = make("setup", *([f"PYTHON={python}"] if python else []), cwd=tmp_path, PATH=str(tmp_path / "bin"))
    assert done.returncode != 0
    line = done.stderr.splitlines()[0]
    assert line.startswith("setup: needs")
    assert "Python 3.11 or newer with venv" in line


@needs_make
def test_running_starts_with_the_check_for_stale_builds() -> None:
    for word in ("run", "test", "bench", "sim", "sim-long"):
        assert "compiled.py --fresh" in make("-n", word).stdout, word
