"""Runs the tests on every available Python from 3.11 on: `make test`, `make test PYTHONS=3.12 ARGS="tests/cli -k health"`.

The first Python uses .venv; `.venv-3.12` and so on are created from the same lock. The suites run one after the other, each on all cores. Tests
marked `alone` run last, not in parallel. Those and tests marked `once` run on the first Python only (PYTHONS=first: only this one, others: all but this one); tests marked `clients`, `drills`,
`install`, `jetstream`, `kafka`, `long` and `spark` run by `make clients-test`, `drills`, `jetstream-test` and so on. The last lines are the results of each Python.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
MINORS = ("3.11", "3.12", "3.13", "3.14", "3.15")
WORKERS_MAX = 8
WHOLE_FILE = r"^pytestmark = \[?\s*pytest\.mark\.(%s)\b"  # a test file that marks all its tests
OTHER_TARGETS = ("clients", "drills", "install", "jetstream", "kafka", "long", "spark")  # marks of tests with their own make target: `make clients-test` and so on
PASSED_ALONE = "passed_alone"  # the property by which project/again.py reports a test that failed in parallel with others and passed alone
NO_TESTS = 5  # pytest's exit code when nothing was selected
PRINT_VERSION = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"


class Tally(NamedTuple):
    passed: int
    failed: int
    skipped: int
    exit_code: int
    reasons: tuple[str, ...] = ()  # why tests were skipped

    def plus(self, other: Tally) -> Tally:
        passed, failed, skipped = self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        return Tally(passed, failed, skipped, self.exit_code or other.exit_code, self.reasons + other.reasons)


def main(arguments: list[str]) -> int:
    requested = os.environ.get("PYTHONS", " ".join(MINORS)).split()
    part = requested[0] if requested in (["first"], ["others"]) else ""
    requested = list(MINORS) if part else requested
    if unknown := [minor for minor in requested if minor not in MINORS]:
        print(f"test: PYTHONS={' '.join(unknown)}: not one of {' '.join(MINORS)}", file=sys.stderr)
        return 2
    tallies: dict[str, Tally] = {}
    found: list[str] = []
    for minor in requested:
        environment = environment_of(minor)
        if environment is None:
            continue
        found.append(minor)
        if part == "others" and len(found) == 1:
            continue
        print(f"\n=== Python {minor}, {environment.name}", flush=True)
        tallies[minor] = suite(environment, minor, arguments, first=len(found) == 1)
        if part == "first":
            break
    print()
    if part != "first" and (missing := [minor for minor in requested if minor not in found]):
        print(f"Not tested, because not found: Python {', '.join(missing)}")
    for minor, tally in tallies.items():
        for reason, count in sorted(Counter(tally.reasons).items()):
            print(f"Skipped with Python {minor}: {count} x {reason}")
    if len(tallies) > 1 and not arguments:
        print(f"Tests marked `once` or `alone` ran with Python {next(iter(tallies))} only, those marked {', '.join(OTHER_TARGETS[:-1])} and {OTHER_TARGETS[-1]} by their own make targets")
    for minor, tally in tallies.items():
        print(f"python{minor}: {tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped")
    if part == "others" and len(found) == 1:
        print(f"test: no other Python than {found[0]}")
        return 0
    if not tallies or not any(tally.passed for tally in tallies.values()):
        print("test: no test was run", file=sys.stderr)
        return 1
    return next((tally.exit_code for tally in tallies.values() if tally.exit_code), 0)


def environment_of(minor: str) -> Path | None:
    """The environment with this Python, created if it is missing; None if this Python is not installed."""
    if sys.version_info[:2] == tuple(map(int, minor.split("."))):
        return Path(sys.prefix)
    for python in pythons(minor):
        folder = ROOT / f".venv-{minor}"
        subprocess.run([python, "-m", "project.install", folder], cwd=ROOT, check=True)
        return folder
    return None


def pythons(minor: str) -> Iterator[Path]:
    """Interpreters of this version that run. Others are left out: PATH may have pyenv shims of versions that are not active."""
    folders = [Path(folder) for folder in os.get_exec_path()]
    folders += sorted(Path.home().glob(f".pyenv/versions/{minor}.*/bin"), reverse=True)
    for folder in folders:
        python = folder / f"python{minor}"
        if os.access(python, os.X_OK) and version_of(python) == minor:
            yield python


def version_of(python: Path) -> str:
    try:
        return subprocess.run([python, "-c", PRINT_VERSION], capture_output=True, text=True, timeout=20, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def suite(environment: Path, minor: str, arguments: list[str], first: bool) -> Tally:
    """Run all tests on the first Python, and on each other Python those that may depend on the Python version."""
    if arguments:
        return run_pytest(environment, minor, "chosen", arguments)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # The tests of a file stay on one worker until another is idle. On the first Python many tests wait for a process or a deadline, so two
    # workers share a core. Asserts stay plain, since rewriting them in each worker takes longer than importing the tests; failures show locals.
    workers = 2 * cores if first else cores
    together = ["-n", str(min(WORKERS_MAX, workers)), "--dist", "worksteal", "--assert=plain", "--showlocals"]
    elsewhere = ["alone", *OTHER_TARGETS] if first else ["alone", "once", *OTHER_TARGETS]
    selected = " and ".join(f"not {mark}" for mark in elsewhere)
    ignored = [f"--ignore={path}" for path in files_with(WHOLE_FILE % "|".join(elsewhere))]
    tally = run_pytest(environment, minor, "together", ["-m", selected, *together, *ignored])
    if first and (measuring := files_with(r"mark\.alone\b")):
        tally = tally.plus(run_pytest(environment, minor, "alone", ["-m", "alone", *measuring]))
    return tally


def files_with(pattern: str) -> list[str]:
    """The test files that contain this pattern, to run only these or to ignore them: a process needs seconds to collect all files."""
    mark = re.compile(pattern, re.MULTILINE)
    return sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*.py") if mark.search(path.read_text()))


def run_pytest(environment: Path, minor: str, part: str, arguments: list[str]) -> Tally:
    report = ROOT / "build" / f"tests-{minor}-{part}.xml"
    report.unlink(missing_ok=True)
    command = [str(environment / "bin" / "python"), "-m", "pytest", f"--junitxml={report}", "-p", "project.again", *arguments]
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}
    exit_code = subprocess.run(command, cwd=ROOT, env=plain, stdin=subprocess.DEVNULL, check=False).returncode
    if exit_code == NO_TESTS:
        return Tally(0, 0, 0, 0)
    if not report.exists():
        return Tally(0, 1, 0, exit_code or 1)
    return read(report, exit_code)


def read(report: Path, exit_code: int) -> Tally:
    """The result in pytest's report, or the exit code if that is worse."""
    tests = failed = skipped = 0
    tree = ElementTree.parse(report)
    for suite in tree.iter("testsuite"):
        tests += int(suite.get("tests", 0))
        failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped += int(suite.get("skipped", 0))
    failed -= sum(item.get("name") == PASSED_ALONE for item in tree.iter("property"))
    reasons = tuple(reason(item) for item in tree.iter("skipped"))
    return Tally(max(tests - failed - skipped, 0), failed, skipped, exit_code or min(failed, 1), reasons)


def reason(skipped: ElementTree.Element) -> str:
    """Why a test was skipped; for a whole file or folder the element's text has the reason."""
    message = skipped.get("message", "")
    if message != "collection skipped":
        return message
    return (skipped.text or "").rpartition("Skipped: ")[2].rstrip("\"')")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
