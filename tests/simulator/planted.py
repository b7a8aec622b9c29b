"""`python -m tests.simulator.planted`: plant each bug of bugs/ in a copy of the code, and check that the simulator finds it.

A patch begins with a line that says what the bug does. A bug is found when a run breaks a promise within the CPU time given.
Runs about policies must find the bugs of bugs/policies, runs of several nodes those of bugs/nodes.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
BUGS: Final = Path(__file__).parent / "bugs"
PACKAGES: Final = ("broker", "coordinator", "docs", "protocol", "simulator", "storage")
SEEDS: Final = 100_000


class Verdict(NamedTuple):
    name: str
    how: str  # the promise that was broken, or ""
    seconds: float  # of CPU time
    virtual: str


def find(patch: Path, seconds: float) -> Verdict:
    """Plant a bug and run the simulator until it breaks a promise."""
    with tempfile.TemporaryDirectory(prefix="tenure-bug-") as folder:
        copy = Path(folder)
        for package in PACKAGES:
            shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        subprocess.run(["patch", "--quiet", "-p0", "-i", str(patch)], cwd=copy, check=True)
        command = [sys.executable, "-m", "simulator", "--seeds", str(SEEDS), "--cpu-seconds", str(seconds), "--stop"]
        if patch.parent.name == "policies":
            command += ["--seed", "4", "--step", "4"]
        elif patch.parent.name == "nodes":
            command += ["--nodes", "0"]
        ended = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=10 * seconds + 120, check=False)
    spent = re.search(r"in ([0-9:]+)[0-9.]* of virtual time .*, ([0-9.]+) s of CPU time", ended.stdout)
    took, virtual = (float(spent[2]), spent[1]) if spent else (0.0, "")
    first = next((line for line in ended.stdout.splitlines() if line.startswith("seed ")), "")
    if ended.returncode not in (0, 1) or (ended.returncode == 1 and not first):
        return Verdict(patch.stem, f"the simulator failed: {ended.stderr.strip().splitlines()[-1:]}", took, virtual)
    return Verdict(patch.stem, first, took, virtual)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator.planted")
    parser.add_argument("--seconds", type=float, default=30, help="how long to look for each bug, of CPU time (default 30)")
    parser.add_argument("--jobs", type=int, default=2, help="bugs to look for at a time, a core each (default 2)")
    parser.add_argument("names", nargs="*", help="bugs; without any, all")
    options = parser.parse_args()
    patches = sorted(patch for patch in BUGS.rglob("*.patch") if not options.names or patch.stem in options.names)
    missed = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for result in pool.map(lambda patch: find(patch, options.seconds), patches):
            if not result.how or result.how.startswith("the simulator failed"):
                missed.append(result.name)
            print(f"{result.name}: {result.how or 'NOT FOUND'} ({result.seconds:.1f} s of CPU time, {result.virtual} of virtual time)", flush=True)
    print(f"{len(patches) - len(missed)} of {len(patches)} planted bugs found{': missed ' + ', '.join(missed) if missed else ''}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
