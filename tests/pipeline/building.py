"""Tables made by runs over parts of the logs, to compare."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from pipeline.jobs import Inputs, PlainEngine, Steps
from pipeline.progress import Progress
from pipeline.rows import TABLES
from pipeline.tables import Tables

QUIET = Progress()
ENGINE = PlainEngine(QUIET)
# Only these tables, about files, depend on the bounds of the runs; all others are equal.
SLICED = ("segments", "coverage")


def analyzed(folder: Path, directory: Path, until: Sequence[dict[int, int]], *, finish: bool = True, engine: PlainEngine = ENGINE) -> Tables:
    """Analyse the logs in several runs, each up to one of the bounds in `until` (offsets by partition). With `finish` a last run reads to the end."""
    made = Tables.open(folder, create=True)
    for bound in [*until, {}][: None if finish else -1]:
        engine.round(made, Inputs.of([str(directory)], until=bound), Steps())
    return made


def tables(made: Tables) -> dict[str, pa.Table]:
    return {name: made.read(name) for name in TABLES if name not in SLICED}


def difference(name: str, ours: pa.Table, theirs: pa.Table) -> str:
    ours_rows, right = (set(map(repr, table.to_pylist())) for table in (ours, theirs))
    return f"{name}: {ours.num_rows} rows, at once {theirs.num_rows}\n" + "\n".join([*sorted(ours_rows - right)[:3], "at once:", *sorted(right - ours_rows)[:3]])
