"""The tests in other languages of docs/control.md pass as they stand there; a language that is not installed is skipped."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.listings import listing_named
from tests.running import ROOT, environment

pytestmark = [pytest.mark.once, pytest.mark.clients]

SECONDS = 100  # a test may take 120
LANGUAGES = {
    "go": ("tenure_test.go", ["go", "test", "-count=1", "."]),
    "java": ("TenureTest.java", ["java", "TenureTest.java"]),
    "node": ("tenure.test.mjs", ["node", "--test", "tenure.test.mjs"]),
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_page_s_test_passes(tmp_path: Path, language: str) -> None:
    name, command = LANGUAGES[language]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    (tmp_path / name).write_text(listing_named(ROOT / "docs/control.md", name))
    (tmp_path / "go.mod").write_text("module tenure\n\ngo 1.21\n")
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    inherited = environment()
    launcher = bin_folder / "tenure"
    launcher.write_text(f'#!/bin/sh\nPYTHONPATH={inherited["PYTHONPATH"]} exec {sys.executable} -P -m tenure "$@"\n')
    launcher.chmod(0o755)
    inherited["PATH"] = f"{bin_folder}{os.pathsep}{inherited['PATH']}"
    try:
        done = subprocess.run(command, cwd=tmp_path, env=inherited, capture_output=True, text=True, timeout=SECONDS, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        if language != "go":
            raise
        pytest.skip(f"go had not compiled its own packages after {SECONDS} s: run it once by hand")
    assert done.returncode == 0, done.stdout + done.stderr
