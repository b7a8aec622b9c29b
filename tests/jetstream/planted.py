"""`python -m tests.jetstream.planted`: plant each bug of bugs/ in a copy of the code, and see a test of JetStream fail.

A patch begins with a line that says what the bug does, and one that names the file of tests that finds it.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
BUGS: Final = Path(__file__).parent / "bugs"
COPIED: Final = ("bench", "broker", "cli", "coordinator", "docs", "history", "pipeline", "project", "protocol", "simulator", "storage", "tenure", "tests")
SECONDS_MAX: Final = 600


def find(patch: Path) -> str:
    """The first test that fails, "" when none does."""
    tests = patch.read_text().splitlines()[1].removeprefix("Found by ")
    with tempfile.TemporaryDirectory(prefix="tenure-bug-") as folder:
        copy = Path(folder)
        for package in COPIED:
            shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        subprocess.run(["patch", "--quiet", "-p0", "-i", str(patch)], cwd=copy, check=True)
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", "jetstream or not jetstream", tests]
        ended = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    failed = next((line for line in ended.stdout.splitlines() if line.startswith("FAILED ")), "")
    return failed.removeprefix("FAILED ").partition(" - ")[0] if ended.returncode == 1 else ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.jetstream.planted")
    parser.add_argument("--jobs", type=int, default=2, help="bugs to look for at a time (default 2)")
    parser.add_argument("names", nargs="*", help="bugs; without any, all")
    given = parser.parse_args()
    patches = sorted(patch for patch in BUGS.glob("*.patch") if not given.names or patch.stem in given.names)
    missed = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for patch, found in zip(patches, pool.map(find, patches), strict=True):
            if not found:
                missed.append(patch.stem)
            print(f"{patch.stem}: {found or 'NOT FOUND'}", flush=True)
    print(f"{len(patches) - len(missed)} of {len(patches)} planted bugs found{': missed ' + ', '.join(missed) if missed else ''}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
