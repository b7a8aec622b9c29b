"""`tenure analyze status`: which partitions stand still, for people and for monitors."""

from __future__ import annotations

import argparse

from cli.analyze.opened import FINDINGS, check_group, opened, rows
from cli.failure import EXIT
from cli.shown import Column, Painted, Role, Screen

ERRORS = ("STOP", "STALL", "REWIND", "LOST")
FAILS = {None: (), "WARN": ("WARN", *ERRORS), "ERR": ERRORS}
ROLES = {"OK": Role.GOOD, "WARN": Role.CAREFUL, "UNKNOWN": Role.DIM, "UNOWNED": Role.CAREFUL}


def run(options: argparse.Namespace) -> int:
    from pipeline.rows import Status

    screen = Screen.of(options)
    with opened(options) as warehouse:
        if options.group is not None:
            check_group(warehouse, options.group)
        found = rows(warehouse, "status", Status, options.group)
    last = {(one.cluster, one.group, one.topic, one.topic_partition): one for one in found if one.ruleset == options.ruleset}
    now = sorted(last.values(), key=lambda one: (one.status in ("OK", "UNKNOWN"), one.group, one.topic, one.topic_partition))
    bad = [one for one in now if one.status in FAILS[options.fail_on]]
    if screen.json:
        screen.document({"ruleset": options.ruleset, "partitions": [one._asdict() for one in now], "failing": len(bad)})
    else:
        columns = [Column(name) for name in ("group", "topic", "partition", "status", "lag", "complete", "owner", "rule")]
        shown = [
            (one.group, one.topic, one.topic_partition, Painted(one.status, ROLES.get(one.status, Role.BAD)), one.lag, f"{one.complete:.0%}", one.owner, one.rule)
            for one in now
        ]
        screen.table(columns, shown)
    return FINDINGS if bad else EXIT.DONE
