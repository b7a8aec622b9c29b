"""`tenure group offsets ...`: its parsers."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, TypeVar

from cli.arguments import add_change_options, add_cluster_options, add_command, add_family, whole_number
from cli.selection import add_lag_options, add_selection, add_watch_options

T = TypeVar("T")
SCOPE = "T[:P,...]"
SCOPE_HELP = "a topic, or some of its partitions (orders:0,2,5-7)"


def add(actions: Any) -> None:
    commands = add_family(
        actions,
        "offsets",
        help="show, reset and delete committed offsets",
        description="Show, set and delete the offsets that groups have committed.",
        action="offsets_action",
    )
    add_show(commands)
    add_reset(commands)
    add_delete(commands)


def add_show(commands: Any) -> None:
    show = add_command(
        commands,
        "show",
        run="cli.groups.offsets_show",
        help="show committed offsets and their lag",
        description="Show the committed offsets of groups, the log start offset (EARLIEST) and log end offset (LATEST) of each partition, and the lag.",
        examples=(
            "tenure group offsets show orders",
            "tenure group offsets show orders billing --topic payments:0-3",
            "tenure group offsets show 'billing-*' --lag-over 0 --sort lag",
            "tenure group offsets show orders --json > before.json    # `offsets reset --from-file before.json` restores it",
        ),
        notes="A partition of a topic named with --topic is shown even when nothing is committed for it.\n"
        "`-`: unknown: nothing is committed, or the partition does not exist or has no leader (see NOTE). A total with unknown partitions is `at least N`,\n"
        "with --json null; exit code 75 after --timeout.",
    )
    add_selection(show, "groups", "GROUP", "every group")
    show.add_argument("--topic", metavar=SCOPE, type=scope_argument, action="append", default=[], dest="topics", help=f"only {SCOPE_HELP}; may be repeated")
    add_lag_options(show)
    add_watch_options(show)
    add_cluster_options(show)


def add_reset(commands: Any) -> None:
    reset = add_command(
        commands,
        "reset",
        run="cli.groups.offsets_reset",
        help="set committed offsets of a group without members",
        description="Set the committed offsets of a group. Refused while the group has members, which would overwrite them.",
        examples=(
            "tenure group offsets reset orders --to-earliest --topic payments --dry-run",
            "tenure group offsets reset orders --to-datetime 2026-11-21T08:30:00Z --topic payments:0-3 --topic refunds",
            "tenure group offsets reset orders --by-duration 2h --all-topics        # reread the last two hours",
            "tenure group offsets reset orders --shift-by -100 --topic payments:0 --yes",
            "tenure group offsets reset orders --to-current --all-topics --export before.csv --dry-run    # save the committed offsets ...",
            "tenure group offsets reset orders --from-file before.csv                                     # ... and restore them",
        ),
        notes="An offset outside of a log becomes the nearer end of the log, with a warning. A group that does not exist is created.\n"
        "A time is ISO 8601; one without a zone is UTC. It means the first record at or after that time, or else the end of the log.\n"
        "A partition whose leader does not answer within --timeout is named and not set, as its target is unknown; the others are set, and the exit code is\n"
        "75. --to-current needs no leader.\n"
        "Lines of CSV are topic,partition,offset or group,topic,partition,offset; the first may be a header of these names. Comments are refused.",
    )
    reset.add_argument("group", metavar="GROUP", help="the group")
    target = reset.add_argument_group("target").add_mutually_exclusive_group(required=True)
    target.add_argument("--to-earliest", action="store_true", help="to the start of the log")
    target.add_argument("--to-latest", action="store_true", help="to the end of the log")
    target.add_argument("--to-offset", metavar="N", type=offset_argument, help="to this offset")
    target.add_argument("--to-datetime", metavar="TIME", type=time_argument, help="to the first record of that time or later (2026-11-21T08:30:00Z)")
    target.add_argument("--by-duration", metavar="D", type=duration_argument, help="to the first record of the last 90s, 15m, 1h30m, 2d or PT1H30M")
    target.add_argument("--shift-by", metavar="N", type=signed_number, help="forward by N from the committed offset, back by -N")
    target.add_argument("--to-current", action="store_true", help="commit the same offset again; without one, the end of the log")
    target.add_argument("--from-file", metavar="FILE", help="offsets from a file: CSV of --export or kafka-consumer-groups, or output of --json; -: standard input")
    selection = reset.add_argument_group("partitions").add_mutually_exclusive_group()
    selection.add_argument("--topic", metavar=SCOPE, type=scope_argument, action="append", default=[], dest="topics", help=f"{SCOPE_HELP}; may be repeated")
    selection.add_argument("--all-topics", action="store_true", help="every partition that the group has committed an offset for")
    reset.add_argument("--export", metavar="FILE", help="write the offsets of the plan to a file that --from-file reads, as CSV (*.json: as JSON)")
    add_change_options(reset)
    add_cluster_options(reset)


def add_delete(commands: Any) -> None:
    delete = add_command(
        commands,
        "delete",
        run="cli.groups.offsets_delete",
        help="delete committed offsets of topics without subscribers",
        description="Delete the offsets that a group has committed for topics or partitions. Refused for a topic that a member subscribes to.",
        examples=(
            "tenure group offsets delete orders --topic payments --dry-run",
            "tenure group offsets delete orders --topic payments:0-3 --topic refunds --yes",
        ),
        notes="A later consumer of the group starts at these partitions as in a new group (auto.offset.reset).",
    )
    delete.add_argument("group", metavar="GROUP", help="the group")
    delete.add_argument(
        "--topic", metavar=SCOPE, type=scope_argument, action="append", required=True, dest="topics", help=f"{SCOPE_HELP}; may be repeated"
    )
    add_change_options(delete)
    add_cluster_options(delete)


# Argument types; their modules are imported on use


def scope_argument(text: str) -> Any:
    from cli.groups import offset_formats

    return parsed(offset_formats.parse_scope, text)


def offset_argument(text: str) -> int:
    if text.lower() in ("end", "latest", "beginning", "earliest", "start"):
        raise argparse.ArgumentTypeError(f"{text!r} is not an offset: write {'--to-latest' if text.lower() in ('end', 'latest') else '--to-earliest'}")
    return whole_number(text)


def time_argument(text: str) -> int:
    from cli.groups import offset_formats

    return parsed(offset_formats.parse_time, text)


def duration_argument(text: str) -> int:
    from cli.groups import offset_formats

    return parsed(offset_formats.parse_duration, text)


def parsed(read: Callable[[str], T], text: str) -> T:
    try:
        return read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def signed_number(text: str) -> int:
    digits = text.removeprefix("-" if text.startswith("-") else "+")
    if not (digits.isascii() and digits.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, such as 100 or -100")
    return -whole_number(digits) if text.startswith("-") else whole_number(digits)
