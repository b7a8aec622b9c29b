"""`tenure analyze reconcile`: do the tables agree with each other, and with a second computation?"""

from __future__ import annotations

import argparse

from cli.analyze.opened import FINDINGS, opened
from cli.failure import EXIT
from cli.shown import Column, Painted, Role, Screen


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    with opened(options) as warehouse:
        from pipeline.reconcile import reconcile

        checks = reconcile(warehouse, options.sample)
    wrong = [one for one in checks if not one.holds]
    if screen.json:
        screen.document({"checks": [{**one._asdict(), "holds": one.holds} for one in checks], "failing": len(wrong)})
    else:
        shown = [(one.what, one.expected, one.found, Painted("yes", Role.GOOD) if one.holds else Painted("NO", Role.BAD)) for one in checks]
        screen.table([Column("check"), Column("expected"), Column("found"), Column("holds")], shown)
    return FINDINGS if wrong else EXIT.DONE
