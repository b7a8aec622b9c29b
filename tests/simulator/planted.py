"""`python -m tests.simulator.planted`: plant each bug of bugs/ in a copy of the code, and check that the simulator finds it.

A patch begins with a line that says what the bug does. A bug is found when a run of the simulator breaks a promise within the
limit of processor time. Only runs about policies look for the bugs of bugs/policies, only runs of several nodes for those of bugs/nodes, and only
runs about groups of the consumer protocol for those of bugs/consumer.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from simulator.epoch_drawing import ABOUT_EVERY, ABOUT_FROM

ROOT: Final = Path(__file__).resolve().parents[2]
BUGS: Final = Path(__file__).parent / "bugs"
PACKAGES: Final = ("broker", "coordinator", "history", "protocol", "secured", "simulator", "storage")
SEEDS: Final = 100_000
PATCH: Final = ("patch", "-p0", "--fuzz=0")  # with fuzz it would plant a bug in another function that looks alike


class Verdict(NamedTuple):
    found: bool
    text: str


def find(patch: Path, options: Namespace) -> Verdict:
    """Plant a bug and run the simulator until it breaks a promise."""
    with planted(patch, PACKAGES) as copy:
        command = [sys.executable, "-m", "simulator", "--seeds", str(SEEDS), "--cpu-seconds", str(options.seconds), "--stop"]
        if patch.parent.name == "policies":
            command += ["--seed", "4", "--step", "4"]
        elif patch.parent.name == "consumer":
            command += ["--seed", str(ABOUT_FROM), "--step", str(ABOUT_EVERY)]
        elif patch.parent.name == "nodes":
            command += ["--nodes", "0"]
        ended = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=10 * options.seconds + 120, check=False)
    spent = re.search(r"in ([0-9:]+)[0-9.]* of virtual time .*, ([0-9.]+) s of CPU time", ended.stdout)
    took, virtual = (float(spent[2]), spent[1]) if spent else (0.0, "")
    first = next((line for line in ended.stdout.splitlines() if line.startswith("seed ")), "")
    failed = ended.returncode not in (0, 1) or (ended.returncode == 1 and not first)
    text = f"the simulator failed: {ended.stderr.strip().splitlines()[-1:]}" if failed else first or "NOT FOUND"
    return Verdict(bool(first) and not failed, f"{text} ({took:.1f} s of CPU time, {virtual} of virtual time)")


@contextmanager
def planted(patch: Path, packages: Sequence[str]) -> Iterator[Path]:
    """A copy of these packages with the bug in it."""
    with tempfile.TemporaryDirectory(prefix="tenure-bug-") as folder:
        copy = Path(folder)
        for package in packages:
            shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        subprocess.run([*PATCH, "--quiet", "-i", str(patch)], cwd=copy, check=True)
        yield copy


def find_all(parser: ArgumentParser, bugs: Path, find: Callable[[Path, Namespace], Verdict]) -> int:
    """Look for each bug that the command line names, and print whether it is found."""
    parser.add_argument("--jobs", type=int, default=2, help="bugs to look for at a time, a core each (default 2)")
    parser.add_argument("names", nargs="*", help="bugs (nodes/NAME: a bug in the folder nodes); without any, all")
    options = parser.parse_args()
    patches = sorted(patch for patch in bugs.rglob("*.patch") if not options.names or {patch.stem, patch.relative_to(bugs).with_suffix("").as_posix()} & {*options.names})
    missed = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for patch, verdict in zip(patches, pool.map(lambda patch: find(patch, options), patches), strict=True):
            if not verdict.found:
                missed.append(patch.stem)
            print(f"{patch.stem}: {verdict.text}", flush=True)
    print(f"{len(patches) - len(missed)} of {len(patches)} planted bugs found{': missed ' + ', '.join(missed) if missed else ''}")
    return 1 if missed else 0


def main() -> int:
    parser = ArgumentParser(prog="python -m tests.simulator.planted")
    parser.add_argument("--seconds", type=float, default=30, help="how long to look for each bug, of CPU time (default 30)")
    return find_all(parser, BUGS, find)


if __name__ == "__main__":
    sys.exit(main())
