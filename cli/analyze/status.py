"""`tenure analyze status`: which partitions are stalled, for people and for monitoring."""

from __future__ import annotations

import argparse

from cli.analyze.opened import FINDINGS, check_names, open_tables, rows
from cli.failure import Exit
from cli.shown import Column, Painted, Role, Screen

ERRORS = ("STOP", "STALL", "REWIND", "LOST")
FAILS = {None: (), "WARN": ("WARN", *ERRORS), "ERR": ERRORS}
ROLES = {"OK": Role.GOOD, "WARN": Role.CAREFUL, "UNKNOWN": Role.DIM, "UNOWNED": Role.CAREFUL}


def run(options: argparse.Namespace) -> int:
    from pipeline.rows import Status

    screen = Screen.of(options)
    with open_tables(options) as tables:
        several_clusters = len(check_names(tables, options)) > 1
        # The last interval of a removed offset is final: it ended with the removal.
        open_intervals = rows(tables, "status", Status, group=options.group, cluster=options.cluster, ruleset=options.ruleset, final=False)
    current = sorted(open_intervals, key=lambda row: (row.status in ("OK", "UNKNOWN"), row.cluster, row.group, row.topic, row.topic_partition))
    failing = [row for row in current if row.status in FAILS[options.fail_on]]
    if screen.json:
        screen.document({"ruleset": options.ruleset, "partitions": [row._asdict() for row in current], "failing": len(failing)})
    else:
        columns = [Column(name) for name in (*(["cluster"] if several_clusters else []), "group", "topic", "partition", "status", "lag", "complete", "owner", "rule")]
        cells = [
            (
                *([row.cluster] if several_clusters else []),
                row.group,
                row.topic,
                row.topic_partition,
                Painted(row.status, ROLES.get(row.status, Role.BAD)),
                row.lag,
                f"{row.complete:.0%}",
                row.owner,
                row.rule,
            )
            for row in current
        ]
        screen.table(columns, cells)
    return FINDINGS if failing else Exit.DONE
