"""`tenure analyze report`: the page for people and the document for programs."""

from __future__ import annotations

import argparse
import os
from fnmatch import fnmatchcase

from cli import VERSION
from cli.analyze.opened import known_names, open_tables, place
from cli.failure import Exit, Failure
from cli.shown import Screen

STANDARD_OUTPUT = "-"


def check_target(path: str) -> None:
    """Raise Failure if no file can be written to `path`. Called before the analysis, which may take hours."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path):
        raise Failure(Exit.OUTPUT, f"{path}: is a directory; name the file to write")
    if not os.path.isdir(folder):
        raise Failure(Exit.OUTPUT, f"{folder}: there is no such folder to write {os.path.basename(path)} into")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Failure(Exit.OUTPUT, f"{folder}: no permission to write there")


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    if not options.html and not options.json_file:
        raise Failure(Exit.USAGE, "name a file to write: --html FILE, --json FILE, or both")
    targets = [path for path in (options.html, options.json_file) if path]
    if targets.count(STANDARD_OUTPUT) > 1:
        raise Failure(Exit.USAGE, "--html - and --json -: standard output can have only one of them")
    if options.per_group and options.html == STANDARD_OUTPUT:
        raise Failure(Exit.USAGE, "--per-group writes files beside that of --html: name one in place of -")
    for path in targets:
        if path != STANDARD_OUTPUT:
            check_target(path)
    with open_tables(options) as tables:
        from pipeline.report import write_report

        _, known = known_names(tables, options.cluster)
        groups = {group for group in known if fnmatchcase(group, options.groups)} if options.groups else None
        if groups is not None and not groups:
            raise Failure(Exit.MISSING, f"no group in {place(tables, options.cluster)} matches {options.groups!r}")
        written = write_report(
            tables, options.html, options.json_file, version=VERSION, per_group=options.per_group, groups=groups, cluster=options.cluster
        )
    for path in written if STANDARD_OUTPUT not in targets else ():
        screen.line(str(path))
    return Exit.DONE
