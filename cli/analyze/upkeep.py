"""`tenure analyze optimize` and `rechunk`: upkeep of the tables."""

from __future__ import annotations

import argparse

from cli.analyze.opened import open_tables
from cli.analyze.run import show
from cli.failure import Exit
from cli.shown import Screen


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    with open_tables(options) as tables:
        from pipeline.jobs import PlainEngine, Steps
        from pipeline.progress import to_standard_error
        from pipeline.upkeep import optimize, rechunk

        if options.action == "optimize":
            counts = optimize(tables)
            show(screen, {"tables": len(counts), "files": sum(counts.values()), "most_files_of_a_table": max(counts.values(), default=0)})
        else:
            rechunk(tables, options.chunks)
            show(screen, PlainEngine(to_standard_error(options.quiet)).round(tables, None, Steps(reads=False)))
    return Exit.DONE
