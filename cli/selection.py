"""Names on the command line: several, quoted patterns such as 'billing-*', or --all; and the options of commands that repeat themselves."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from cli.arguments import positive_seconds, whole_number
from cli.failure import UNKNOWN_GROUP, UNKNOWN_TOPIC, Exit, Failure

if TYPE_CHECKING:
    from cli.shown import Screen

EVERY_DEFAULT: Final = 2.0
SELECTION_NOTE: Final = "With a pattern or --all, a change needs --yes where no terminal can ask."
WILDCARDS: Final = {"*": ".*", "?": "."}
KINDS: Final = {"group": UNKNOWN_GROUP, "topic": UNKNOWN_TOPIC}


def add_selection(parser: argparse.ArgumentParser, dest: str, metavar: str, everything: str) -> None:
    """Add arguments for names: at least one name or pattern, or --all."""
    parser.add_argument(dest, metavar=metavar, nargs="*", help="names, or quoted patterns: 'orders-*' (* any characters, ? one)")
    parser.add_argument("--all", action="store_true", help=everything)


def add_watch_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("watching")
    group.add_argument("--watch", action="store_true", help="show it again and again, until Ctrl-C; with --json: a line each time")
    group.add_argument("--every", metavar="SECONDS", type=positive_seconds, default=EVERY_DEFAULT, help=f"how often, with --watch; default: {EVERY_DEFAULT:g}")


def add_lag_options(parser: argparse.ArgumentParser) -> None:
    """Of commands that show the partitions of groups."""
    parser.add_argument("--lag-over", metavar="N", type=whole_number, help="only partitions whose lag is more than N, and groups that have one")
    parser.add_argument("--sort", choices=("name", "lag"), default="name", help="order of partitions: name (default), or lag: largest first")


def check_selection(names: Sequence[str], everything: bool, noun: str) -> None:
    """Raise Failure unless there are either names or --all."""
    if bool(names) == everything:
        raise Failure(Exit.USAGE, f"--all and names of {noun}s exclude each other" if everything else f"name a {noun}, or a quoted pattern such as 'orders-*', or --all")


def is_pattern(name: str) -> bool:
    return any(wildcard in name for wildcard in WILDCARDS)


def selects_unnamed(names: Iterable[str], everything: bool) -> bool:
    """Whether the command line selects what it does not name."""
    return everything or any(map(is_pattern, names))


def selected(names: Sequence[str], everything: bool, noun: str, known_names: Callable[[], Iterable[str]], *, required: bool = True) -> list[str]:
    """The names, each once, with those that match a pattern in its place. `required`: raise Failure for a pattern without a match. `known_names`
    is called only for patterns and --all. A name that exists is no pattern, even with * in it.
    """
    if not selects_unnamed(names, everything):
        return list(dict.fromkeys(names))
    known = sorted(known_names())
    if everything:
        return known
    chosen: dict[str, None] = {}
    for name in names:
        matches = [name] if name in known or not is_pattern(name) else matching(name, known)
        if not matches and required:
            hint = f"tenure {noun} list lists all {noun}s"
            raise Failure(Exit.MISSING, f"no {noun} matches {name!r} ({hint})", kind=KINDS[noun], hint=hint)
        chosen |= dict.fromkeys(matches)
    return list(chosen)


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    compiled = re.compile("".join(WILDCARDS.get(char) or re.escape(char) for char in pattern), re.DOTALL)
    return [name for name in names if compiled.fullmatch(name)]


def confirm_selection(screen: Screen, options: argparse.Namespace, unnamed: bool, question: str) -> None:
    """Ask before a change. What the command line does not name is not changed without --yes where nobody can be asked."""
    if unnamed and not options.yes and not screen.can_ask:
        raise Failure(Exit.REFUSED, "nothing was changed: a pattern or --all needs --yes where no terminal can ask (--dry-run shows what it selects)", hint="add --yes")
    if not screen.confirm(question, options):
        raise Failure(Exit.REFUSED, "nothing was changed")
