"""`python -m tests.jetstream.planted`: plant each bug of bugs/ in a copy of the code, and check that a test of JetStream fails.

A patch begins with a line that says what the bug does, and one that names the file of tests that finds it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Final

from tests.simulator.planted import ROOT, Verdict, find_all, planted

BUGS: Final = Path(__file__).parent / "bugs"
COPIED: Final = ("bench", "broker", "cli", "coordinator", "docs", "history", "pipeline", "project", "protocol", "simulator", "storage", "tenure", "tests")
SECONDS_MAX: Final = 600


def find(patch: Path, options: Namespace) -> Verdict:
    """Plant a bug and run the tests that its patch names, up to the first failure."""
    tests = patch.read_text().splitlines()[1].removeprefix("Found by ")
    with planted(patch, COPIED) as copy:
        shutil.copy(ROOT / "pyproject.toml", copy)
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", "jetstream or not jetstream", tests]
        ended = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    failed = next((line for line in ended.stdout.splitlines() if line.startswith("FAILED ")), "")
    found = failed.removeprefix("FAILED ").partition(" - ")[0] if ended.returncode == 1 else ""
    return Verdict(bool(found), found or "NOT FOUND")


if __name__ == "__main__":
    sys.exit(find_all(ArgumentParser(prog="python -m tests.jetstream.planted"), BUGS, find))
