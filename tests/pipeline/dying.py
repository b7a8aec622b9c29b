"""Runs that are killed at a step: `python -m tests.pipeline.dying BASE DATA FOLDER` prints for each tested step the result of the next run.

At a step a table is half written, a file is about to be published or has just been, or a folder is about to be removed. BASE has the
tables of an earlier run; each run that dies begins with a copy of it. Each run is a fork of one process, because imports are slow.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import cli
import pipeline.build
import pipeline.ingest
import pipeline.samples
from cli.analyze import run as command
from pipeline import warehouse as disk
from pipeline.rows import TABLES
from pipeline.warehouse import Warehouse

STEPS_TESTED = 3  # about this many of the steps that do not publish are tested
USED = (pipeline.build, pipeline.ingest, pipeline.samples, command)  # imported once


class DiskOperations:
    """The names of a run's steps on the disk, in order. The run is killed at the step with number `last`."""

    def __init__(self, last: int | None = None) -> None:
        self.names: list[str] = []
        self._last = last

    def begin(self, name: str) -> bool:
        """Note that a step begins; returns whether the run must die at this step."""
        self.names.append(name)
        return len(self.names) == self._last

    def watch(self) -> None:
        write_table, replace, rmtree = pq.write_table, Path.replace, shutil.rmtree

        def write(table: Any, path: Path, **options: Any) -> None:
            dies = self.begin(f"write {path.parent.parent.name}")
            write_table(table, path, **options)
            if dies:
                os.truncate(path, path.stat().st_size // 2)
                die()

        def rename(path: Path, target: Path) -> Path:
            if self.begin(f"publish {target.name}"):
                die()
            replace(path, target)
            if self.begin(f"published {target.name}"):
                die()
            return target

        def remove(path: Path, **options: Any) -> None:
            if self.begin(f"remove {path.parent.name}"):
                die()
            rmtree(path, **options)

        pq.write_table = write
        Path.replace = rename  # type: ignore[method-assign,assignment]
        disk.shutil.rmtree = remove  # type: ignore[attr-defined]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def forked(work: Callable[[], int]) -> int:
    """Run `work` in a fork. Return the exit code, or the negative number of the signal that ended it."""
    child = os.fork()
    if not child:
        code = 99
        try:
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run(data: Path, out: Path, steps: DiskOperations | None = None) -> int:
    if steps is not None:
        steps.watch()
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    return cli.main(["analyze", "run", "--offsets", str(data), "--out", str(out), "--master", "none", "--quiet"])


def differing_tables(out: Path, expected: Path) -> int:
    ours, theirs = Warehouse.open(out), Warehouse.open(expected)
    for name in TABLES:
        if not ours.read(name).equals(theirs.read(name)):
            return 1
    with ours.locked():  # taking the lock removes files that no table refers to
        named = {ours.folder / file.path for file in ours.current().files}
    return 0 if set(out.rglob("*.parquet")) == named else 2


def steps_of(base: Path, data: Path, folder: Path) -> list[str]:
    def work() -> int:
        steps = DiskOperations()
        code = run(data, folder / "wanted", steps)
        (folder / "steps").write_text("\n".join(steps.names))
        return code

    shutil.copytree(base, folder / "wanted")
    assert forked(work) == 0
    return (folder / "steps").read_text().splitlines()


def main() -> int:
    base, data, folder = map(Path, sys.argv[1:])
    names = steps_of(base, data, folder)
    publishing = [number for number, name in enumerate(names, 1) if name.startswith("publish")]
    rest_of_steps = [number for number in range(1, len(names) + 1) if number not in publishing]
    for number in sorted({*publishing, *rest_of_steps[:: max(1, len(rest_of_steps) // STEPS_TESTED)]}):
        out = folder / str(number)
        shutil.copytree(base, out)
        killed = forked(lambda: run(data, out, DiskOperations(number)))  # noqa: B023 (called at once)
        repeated = forked(lambda: run(data, out))  # noqa: B023
        equal = forked(lambda: differing_tables(out, folder / "wanted"))  # noqa: B023
        print(names[number - 1].replace(" ", "-"), killed, repeated, equal, flush=True)
        shutil.rmtree(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
