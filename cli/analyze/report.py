"""`tenure analyze report`: the page for people and the document for programs."""

from __future__ import annotations

import argparse
from fnmatch import fnmatchcase

from cli import VERSION
from cli.analyze.opened import opened
from cli.failure import EXIT, Failure
from cli.shown import Screen


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    if not options.html and not options.json_file:
        raise Failure(EXIT.USAGE, "name a file to write: --html FILE, --json FILE, or both")
    with opened(options) as warehouse:
        from pipeline.report import write_report

        groups = None
        if options.groups:
            groups = [name for name in warehouse.read("groups", columns=["group"])["group"].to_pylist() if fnmatchcase(name, options.groups)]
            if not groups:
                raise Failure(EXIT.MISSING, f"no group in {warehouse.folder} is called {options.groups!r}")
        try:
            written = write_report(
                warehouse, options.html, options.json_file, version=VERSION, per_group=options.per_group, groups=groups
            )
        except OSError as error:
            raise Failure(EXIT.OUTPUT, f"{error.filename}: {error.strerror}") from None
    for path in written:
        screen.line(str(path))
    return EXIT.DONE
