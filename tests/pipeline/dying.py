"""Runs that are killed at a step: `python -m tests.pipeline.dying BASE DATA FOLDER 0/4` prints the result of the next run for every fourth tested step.

At a step a file is half written, a table is about to be changed or has just been, or old files and versions are about to be removed. BASE has the
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

import deltalake

import cli
import pipeline.jobs
import pipeline.samples
import pipeline.session
import pipeline.wire_reading
from cli.analyze import run as command
from pipeline import tables as module
from pipeline.out_folder import PROGRESS
from pipeline.rows import TABLES
from pipeline.tables import Batch, Tables, Writer, key_of
from tests.pipeline.building import SLICED

STEPS_TESTED = 5  # about this many of the steps that do not publish are tested
USED = (pipeline.jobs, pipeline.samples, pipeline.session, pipeline.wire_reading, command)  # imported once


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
        module.TIDY_BATCHES = module.SMALL_FILES_MAX = module.SMALL_FILES_OF_PART = 1  # type: ignore[misc]
        end, change, compact = Writer.__exit__, Batch._change, Batch.compact

        def written(writer: Writer, *error: Any) -> None:
            dies = self.begin(f"write {writer._table}")
            end(writer, *error)
            if dies:
                path = Path(writer._store.place(writer._table)) / writer._path
                os.truncate(path, path.stat().st_size // 2)
                die()

        def changed(batch: Batch, name: str, *arguments: Any) -> None:
            if self.begin(f"change {name}"):
                die()
            change(batch, name, *arguments)
            if self.begin(f"changed {name}"):
                die()

        def compacted(batch: Batch, name: str) -> None:
            compact(batch, name)
            if self.begin(f"compacted {name}"):
                die()

        Writer.__exit__ = written  # type: ignore[method-assign]
        Batch._change = changed  # type: ignore[method-assign,assignment]
        Batch.compact = compacted  # type: ignore[method-assign,assignment]
        for name in ("vacuum", "create_checkpoint", "cleanup_metadata"):
            self._watch_tidying(name)

    def _watch_tidying(self, name: str) -> None:
        real = getattr(deltalake.DeltaTable, name)

        def called(table: Any, *arguments: Any, **options: Any) -> Any:
            if self.begin(f"{name} {Path(table.table_uri).name}"):
                die()
            return real(table, *arguments, **options)

        setattr(deltalake.DeltaTable, name, called)


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
    ours, theirs = Tables.open(out), Tables.open(expected)
    for name in TABLES:
        table = ours.read(name)
        keys = list(zip(*(table[column].to_pylist() for column in key_of(name)), strict=True))
        if not table.equals(theirs.read(name)) or (len(set(keys)) < len(keys) and name not in SLICED):  # these have rows of each run
            return 1
    module.TIDY_BATCHES = module.KEPT_VERSIONS = 1  # type: ignore[misc]
    published = ours.begin().publish(ours.published().content)  # removes what it does not need
    named = {Path(ours.store.place(name)) / file.path for name in published.versions for file in ours.files_of(published, name)}
    left = {path for path in out.rglob("*.parquet") if path.parent.name != "_delta_log" and path.parent.name != PROGRESS}
    return 0 if left == named else 2


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
    base, data, folder = map(Path, sys.argv[1:4])
    part, parts = map(int, sys.argv[4].split("/"))
    names = steps_of(base, data, folder)
    publishing = [number for number, name in enumerate(names, 1) if name in (f"change {PROGRESS}", f"changed {PROGRESS}")]
    rest_of_steps = [number for number in range(1, len(names) + 1) if number not in publishing]
    tested = [*publishing, *rest_of_steps[:: max(1, len(rest_of_steps) // STEPS_TESTED)]]
    for number in tested[part::parts]:
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
