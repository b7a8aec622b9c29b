"""`tenure analyze reconcile`: check the tables against each other and against a recomputation."""

from __future__ import annotations

import argparse

from cli.analyze.opened import FINDINGS, open_tables
from cli.failure import Exit
from cli.shown import Column, Painted, Role, Screen


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    with open_tables(options) as tables:
        from pipeline.reconcile import reconcile

        checks = reconcile(tables, options.sample)
    failed = [check for check in checks if not check.holds]
    if screen.json:
        screen.document({"checks": [{**check._asdict(), "holds": check.holds} for check in checks], "failing": len(failed)})
    else:
        rows = [(check.what, check.expected, check.found, Painted("yes", Role.GOOD) if check.holds else Painted("NO", Role.BAD)) for check in checks]
        screen.table([Column("check"), Column("expected"), Column("found"), Column("holds")], rows)
    return FINDINGS if failed else Exit.DONE
