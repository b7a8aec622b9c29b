"""`tenure analyze whatif`: replay a group's history through the coordinator, as if its members had been static."""

from __future__ import annotations

import argparse

from cli.analyze.advise import ms, seconds
from cli.analyze.opened import check_group, opened
from cli.failure import EXIT, Failure
from cli.shown import Screen, plain


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    if not options.static and options.session_timeout is not None:
        raise Failure(EXIT.USAGE, "--session-timeout changes nothing for members that are dynamic: a restarted one is a new one; add --static")
    with opened(options) as warehouse:
        from pipeline.asked import replay

        check_group(warehouse, options.group)
        found = replay(warehouse, options.group, static=options.static, session_timeout_ms=ms(options.session_timeout))
    if screen.json:
        screen.document({"replays": [{**one._asdict(), "saved": one.saved} for one in found]})
        return EXIT.DONE
    for one in found:
        screen.line(f"{plain(one.group)}: {one.happened} rebalances in the logs; {one.as_it_was} when they are replayed through the coordinator")
        if one.static:
            screen.line(
                f"as static members with a session timeout of {seconds(one.session_timeout_ms or 0)}: {one.as_asked}, {one.saved} fewer"
            )
    return EXIT.DONE
