"""What a stranger does first: an empty folder, a fresh environment, the two wheels, and the first test of pytest-tenure's README."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.project.archives import copy_packages, environment_with, install, plugin_wheel
from tests.project.listings import listing_named
from tests.running import ROOT

pytestmark = pytest.mark.install

PYTEST = ("pytest", "iniconfig", "packaging", "pluggy", "pygments")
SECONDS = 60


def test_two_wheels_and_ten_lines_are_green(archives: Path, tmp_path: Path) -> None:
    environment = environment_with(archives, tmp_path / "environment")
    copy_packages(environment, PYTEST)
    install(environment, plugin_wheel(tmp_path / "built"))
    folder = tmp_path / "empty"
    folder.mkdir()
    text = listing_named(ROOT / "pytest-tenure" / "README.md", "test_first.py")
    (folder / "test_first.py").write_text(text)
    (body,) = re.findall(r"^def test_.*?:\n((?:    .*\n|\n)+)", text, re.MULTILINE)
    assert len(body.strip().splitlines()) <= 10
    plain = {"PATH": os.defpath, "HOME": str(tmp_path)}
    command = [str(environment / "bin" / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=folder, env=plain, capture_output=True, text=True, timeout=SECONDS, check=False, stdin=subprocess.DEVNULL)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
