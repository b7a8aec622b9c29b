"""`tenure analyze whatif`: replay a group's history through the coordinator, as if its members had been static."""

from __future__ import annotations

import argparse

from cli.analyze.advise import ms, seconds
from cli.analyze.opened import check_names, open_tables
from cli.failure import Exit, Failure
from cli.shown import Screen, counted, plain

SESSION_MS_MAX = 2**31 - 1  # JoinGroup has it as int32


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    if not options.static and options.session_timeout is not None:
        raise Failure(Exit.USAGE, "--session-timeout changes nothing for dynamic members: a restarted dynamic member is a new member; add --static")
    timeout_ms = ms(options.session_timeout)
    if timeout_ms is not None and timeout_ms > SESSION_MS_MAX:
        raise Failure(Exit.USAGE, f"--session-timeout: session.timeout.ms is at most {SESSION_MS_MAX} (24 days)")
    with open_tables(options) as tables:
        from pipeline.groups import NOT_UNDERSTOOD
        from pipeline.on_demand import replay

        several_clusters = len(check_names(tables, options)) > 1
        replays = replay(tables, options.group, static=options.static, session_timeout_ms=timeout_ms, cluster=options.cluster)
    if screen.json:
        screen.document({"replays": [{**outcome._asdict(), "saved": outcome.saved} for outcome in replays]})
        return Exit.DONE
    if not replays:
        screen.line(f"{plain(options.group)}: {NOT_UNDERSTOOD}")
    for outcome in replays:
        name = f"cluster {outcome.cluster}: {outcome.group}" if several_clusters else outcome.group
        screen.line(f"{plain(name)}: {counted(outcome.happened, 'rebalance')} in the logs; {outcome.as_it_was} when they are replayed through the coordinator")
        if outcome.static:
            difference = f"{outcome.saved} fewer" if outcome.saved >= 0 else f"{-outcome.saved} more"
            screen.line(
                f"as static members with a session timeout of {seconds(outcome.session_timeout_ms or 0)}: {outcome.as_asked}, {difference}"
            )
    return Exit.DONE
