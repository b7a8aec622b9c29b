"""Runs the tests that the changes since main may break, for SECONDS: a part of `make quick`, before each commit.

First the changed tests and a few of the project, then tests that import a changed module, then the others of the changed packages. What does not
fit into the time is left to `.ci/run`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from project.test import OTHER_TARGETS

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 180
UNTIL = "QUICK_UNTIL"  # the environment variable with the time after which no test begins
ALWAYS = (
    *(f"tests/project/test_{name}.py" for name in ("compiled", "compiled_names", "contracts", "listings", "makefile", "operating")),
    "tests/simulator/test_simulator.py::test_every_planted_bug_can_still_be_planted",
)
MARKS = " and ".join(f"not {mark}" for mark in ("alone", *OTHER_TARGETS))
NO_TESTS = 5  # pytest's exit code when nothing was selected


def main() -> int:
    tests = chosen(changed_files())
    print(f"quick: {len(tests)} files of tests, for {SECONDS} s", flush=True)
    workers = str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)
    command = [sys.executable, "-m", "pytest", "-q", "-n", workers, "--randomly-dont-reorganize", "-m", MARKS, "-p", "project.again", "-p", "project.quick", *tests]
    environment = os.environ | {UNTIL: str(time.time() + SECONDS)}
    code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    return 0 if code == NO_TESTS else code


def changed_files() -> list[str]:
    """The files that differ from main, those that are not committed too."""
    base = git("merge-base", "HEAD", "origin/main") or git("merge-base", "HEAD", "main") or ["HEAD"]
    return sorted({*git("diff", "--name-only", *base), *git("ls-files", "--others", "--exclude-standard")})


def git(*words: str) -> list[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()


def chosen(changed: Iterable[str], root: Path = ROOT) -> list[str]:
    """The tests to run, the most promising first."""
    python = [file for file in changed if file.endswith(".py")]
    names = [file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in python]
    texts = {str(path.relative_to(root)): path.read_text() for path in sorted(root.glob("tests/**/test_*.py"))}
    importing = [test for test, text in texts.items() if any(imports(text, name) for name in names)]
    folders = list(dict.fromkeys(folder for file in python if (folder := folder_of(file, root))))
    others = [test for folder in folders for test in texts if test.startswith(f"{folder}/")]
    return list(dict.fromkeys([*(file for file in python if file in texts), *ALWAYS, *importing, *others]))


def imports(text: str, module: str) -> bool:
    package, _, name = module.rpartition(".")
    return f"from {module} import" in text or f"import {module}\n" in text or f"from {package} import {name}\n" in text


def folder_of(file: str, root: Path) -> str | None:
    """The folder of the tests for this file: the nearest that there is, or the file's own one in tests/."""
    parts = Path(file).parent.parts
    parts = parts[1:] if parts[:1] == ("tests",) else parts
    return next((f"tests/{'/'.join(parts[:depth])}" for depth in range(len(parts), 0, -1) if (root / "tests" / Path(*parts[:depth])).is_dir()), None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    if hasattr(item.config, "workerinput") and time.time() > float(os.environ.get(UNTIL, "inf")):
        pytest.skip(f"{SECONDS} s are over: left to .ci/run")
    yield  # a failed test that project.again runs once more is in no worker, and never skipped


if __name__ == "__main__":
    sys.exit(main())
