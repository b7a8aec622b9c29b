"""The command line: which commands there are, and what to say about one that cannot be understood.

Only the arguments of the command that is named are built, and all of them for help, completion, and a name that nobody knows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NoReturn

from cli import USAGE, VERSION

# Where the arguments of a command stand.
ARGUMENTS = {
    "serve": "cli.broker_commands",
    "health": "cli.broker_commands",
    "log": "cli.broker_commands",
    "group": "cli.groups.arguments",
    "topic": "cli.topics.arguments",
    "produce": "cli.records.arguments",
    "consume": "cli.records.arguments",
    "cluster": "cli.cluster_commands",
    "completion": "cli.cluster_commands",
}
# Understood in front of the command too: `tenure --bootstrap kafka1:9092 group list`.
WITH_VALUE = ("--bootstrap", "--timeout")
WITHOUT_VALUE = ("--json",)


class Parser(argparse.ArgumentParser):
    """One line for what cannot be understood, with what was probably meant; and not with exit code 2, which says something else in `tenure health`."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"tenure: {printable(message)} (see {self.prog} --help)\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Whoever reads its own arguments says what it does not know, and not the command above it, which has other options."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._unknown(unknown))
        return options, unknown

    def _unknown(self, unknown: Sequence[str]) -> str:
        first = unknown[0]
        if first.startswith("-"):
            name = first.partition("=")[0]
            meant = closest(name, (option for action in self._actions for option in action.option_strings))
            return f"there is no option {name}{meant}"
        return f"{first!r} is one word too many"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            names = list(map(str, action.choices))
            what = "command" if isinstance(action, argparse._SubParsersAction) else f"{action.option_strings[-1]}" if action.option_strings else "value"
            meant = closest(str(value), names) or f"; there is {', '.join(names)}"
            self.error(f"{f'there is no {what} {value!r}' if what in ('command', 'value') else f'{what} cannot be {value!r}'}{meant}")


def closest(word: str, among: Iterable[str]) -> str:
    from difflib import get_close_matches

    found = get_close_matches(word, list(among), 1, 0.6)
    return f"; did you mean {found[0]}?" if found else ""


def printable(text: str) -> str:
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def read(arguments: Sequence[str]) -> argparse.Namespace | None:
    """What to run, None when help was shown instead. Ends the process for --help, --version and what cannot be understood."""
    leading, rest = split(arguments)
    parser = build_parser(rest[0] if rest else None)
    if not rest and not leading:
        parser.print_help()
        return None
    options = parser.parse_args(behind_the_command(parser, rest, leading))
    if getattr(options, "run", None) is None:
        parser.error("name a command")
    return options


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Options about the cluster in front of the command, and the rest."""
    rest = list(arguments)
    leading: list[str] = []
    while rest:
        name, equals, _ = rest[0].partition("=")
        if rest[0] in WITHOUT_VALUE or (equals and name in WITH_VALUE):
            leading.append(rest.pop(0))
        elif rest[0] in WITH_VALUE and len(rest) > 1:
            leading += [rest.pop(0), rest.pop(0)]
        else:
            break
    return leading, rest


def behind_the_command(parser: argparse.ArgumentParser, rest: Sequence[str], leading: Sequence[str]) -> list[str]:
    """Options go behind the last word that names a command, where they are known."""
    words = 0
    below = subcommands(parser)
    while below and words < len(rest) and rest[words] in below:
        below = subcommands(below[rest[words]])
        words += 1
    return [*rest[:words], *leading, *rest[words:]]


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def build_parser(command: str | None = None) -> Parser:
    """All commands, or only those beside the one that is named."""
    parser = Parser(
        prog="tenure",
        usage="tenure COMMAND ...",
        description="A Kafka-compatible broker whose heart is the consumer-group coordinator with static membership, and a tool for any Kafka cluster.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"tenure {VERSION}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", prog="tenure")
    modules = [ARGUMENTS[command]] if command in ARGUMENTS else list(dict.fromkeys(ARGUMENTS.values()))
    for module in modules:
        if find_spec(module.rpartition(".")[0]) and find_spec(module):
            import_module(module).add(commands)
    return parser


if __name__ == "__main__":
    sys.exit("this is a part of tenure: python -m cli")
