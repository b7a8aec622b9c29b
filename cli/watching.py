"""`--watch`: shows what a command shows again and again, until Ctrl-C."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from cli.failure import Exit, Failure
from cli.shown import Role, Screen, json_plain, plain, terminal_columns

CLEAR: Final = "\x1b[2J"
HOME: Final = "\x1b[H"
CLEAR_LINE: Final = "\x1b[K"
CLEAR_BELOW: Final = "\x1b[J"

Show = Callable[[Screen], int]


def watched(options: argparse.Namespace, show: Show) -> int:
    """Run `show` once, or with --watch until Ctrl-C. Then a failure of the first time ends the command; a later one is shown in place of a result."""
    screen = Screen.of(options)
    if not options.watch:
        return show(screen)
    options.endless = True
    first = True
    while True:
        began = time.monotonic()
        screen.columns = terminal_columns(sys.stdout)
        shown = screen.captured()
        try:
            show(shown)
        except Failure as failure:
            if first:
                named = [*getattr(options, "groups", ()), *getattr(options, "topics", ())]
                if failure.exit_code == Exit.MISSING and any(name.isdigit() for name in named):
                    raise failure.with_line(f"{failure.line}; --watch takes no value: how often is --every SECONDS") from failure
                raise
            shown.fail(failure)
        print_pass(screen, shown, options.every, first=first)
        first = False
        time.sleep(max(0.0, options.every - (time.monotonic() - began)))


def print_pass(screen: Screen, shown: Screen, seconds: float, *, first: bool) -> None:
    text = text_of(shown)
    if not screen.is_terminal or screen.json:
        screen.out.write(text if first or screen.json else f"\n{text}")
    else:
        title = screen.paint(f"every {seconds:g} s, last at {datetime.now(UTC):%H:%M:%S} UTC; Ctrl-C ends", Role.DIM)
        lines = fitting_lines([title, *text.splitlines()], terminal_lines())
        screen.out.write((CLEAR if first else "") + HOME + "".join(f"{line}{CLEAR_LINE}\n" for line in lines) + CLEAR_BELOW)
    screen.out.flush()


def text_of(shown: Screen) -> str:
    """The output of a pass: its lines, or its JSON document as one line."""
    if not shown.json:
        return shown.out.getvalue()  # type: ignore[attr-defined, no-any-return]
    import json

    problem = next(iter(shown.problems), None)
    document = (shown.pending_document or {}) | ({} if problem is None else {"error": problem.document()})
    return json_plain(json.dumps(document, ensure_ascii=False)) + "\n"


def fitting_lines(lines: list[str], room: int) -> list[str]:
    """The lines that a terminal of `room` lines shows; the last one says how many there are more."""
    if len(lines) < room:
        return lines
    shown = lines[: max(room - 2, 1)]
    return [*shown, plain(f"{len(lines) - len(shown)} more lines")]


def terminal_lines() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).lines or 24
    except (OSError, ValueError):
        return 24
