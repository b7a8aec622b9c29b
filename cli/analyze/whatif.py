"""`tenure analyze whatif`: replay a group's history through the coordinator, as if its members had been static."""

from __future__ import annotations

import argparse

from cli.analyze.advise import ms, seconds
from cli.analyze.opened import check_names, open_warehouse
from cli.failure import Exit, Failure
from cli.shown import Screen, plain


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    if not options.static and options.session_timeout is not None:
        raise Failure(Exit.USAGE, "--session-timeout changes nothing for dynamic members: a restarted dynamic member is a new member; add --static")
    with open_warehouse(options) as warehouse:
        from pipeline.on_demand import replay

        several_clusters = len(check_names(warehouse, options)) > 1
        replays = replay(warehouse, options.group, static=options.static, session_timeout_ms=ms(options.session_timeout), cluster=options.cluster)
    if screen.json:
        screen.document({"replays": [{**outcome._asdict(), "saved": outcome.saved} for outcome in replays]})
        return Exit.DONE
    for outcome in replays:
        name = f"cluster {outcome.cluster}: {outcome.group}" if several_clusters else outcome.group
        screen.line(f"{plain(name)}: {outcome.happened} rebalances in the logs; {outcome.as_it_was} when they are replayed through the coordinator")
        if outcome.static:
            screen.line(
                f"as static members with a session timeout of {seconds(outcome.session_timeout_ms or 0)}: {outcome.as_asked}, {outcome.saved} fewer"
            )
    return Exit.DONE
