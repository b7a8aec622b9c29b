"""The command line: the list of commands, and the messages for usage errors.

Only the parser of the named command is built. For help, completion and an unknown name the parsers of all commands are built.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any, NoReturn

from cli import USAGE, VERSION

# The module and function that define the arguments of each command.
ARGUMENTS = {
    "serve": ("cli.broker_commands", "add_serve"),
    "health": ("cli.broker_commands", "add_health"),
    "log": ("cli.broker_commands", "add_log"),
    "group": ("cli.groups.arguments", "add"),
    "topic": ("cli.topics.arguments", "add"),
    "produce": ("cli.records.arguments", "add"),
    "consume": ("cli.records.arguments", "add"),
    "analyze": ("cli.analyze.arguments", "add"),
    "cluster": ("cli.cluster_commands", "add_cluster_command"),
    "node": ("cli.cluster_commands", "add_node"),
    "store": ("cli.store.arguments", "add"),
    "completion": ("cli.cluster_commands", "add_completion"),
}
# Options that are also accepted before the command: `tenure --bootstrap kafka1:9092 group list`.
WITH_VALUE = ("--bootstrap", "--config", "--command-config", "--user", "--password-file", "--timeout")
WITHOUT_VALUE = ("--json",)
FILLERS = ("include", "show", "with", "topic", "group", "only", "use", "enable", "print")  # parts of options that add nothing
COMMANDS_NAMED = 3  # as having an option that another command lacks


class Version(argparse.Action):
    """Prints the version and the kind of build."""

    def __call__(self, parser: argparse.ArgumentParser, *ignored: object) -> NoReturn:
        from broker.runtime.build import build

        print(f"tenure {VERSION} ({build()})")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """Raises Failure for a usage error, with a suggestion, instead of ending with argparse's exit code 2, which `tenure health` uses otherwise."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.color = False  # Python 3.14 and later colour help by default
        self._negative_number_matcher = re.compile(r"-\.?[0-9]")  # -1h is a value too, not an option: no option begins with a digit
        self._words: list[str] = []  # the arguments being parsed

    @property
    def epilog(self) -> str | None:
        return self._epilog() if callable(self._epilog) else self._epilog

    @epilog.setter
    def epilog(self, text: str | Callable[[], str | None] | None) -> None:
        self._epilog = text

    def error(self, message: str) -> NoReturn:
        from cli.failure import Failure

        raise Failure(USAGE, f"{self._reworded(message)} (see {self.prog} --help)", hint=f"see {self.prog} --help")

    def _reworded(self, message: str) -> str:
        """Reword argparse's message in the style of the other messages."""
        if message.endswith("required") or " required: " in message:
            unknown = self._unknown_option()  # perhaps it is meant to be the one that is missing
            if unknown is not None:
                return self._unknown_arguments_text([unknown])
        _, separator, missing = message.partition("the following arguments are required: ")
        if separator:
            actions = subcommands(self)
            return f"{missing} {'are' if ', ' in missing else 'is'} missing" + (f": {', '.join(actions)}" if actions else "")
        _, separator, names = message.partition("one of the arguments ")
        if separator:
            return f"one of these is missing: {', '.join(names.removesuffix(' is required').split())}"
        option, separator, other = message.removeprefix("argument ").partition(": not allowed with argument ")
        if separator:
            return f"{other} and {option} exclude each other"
        option, separator, _ = message.removeprefix("argument ").partition(": expected one argument")
        if separator:
            return f"{option}: a value is missing{self._hint_of_equals_sign(option.split('/'))}"
        option, separator, _ = message.removeprefix("argument ").partition(": ignored explicit argument ")
        if separator:
            return f"{option} takes no value"
        return message.removeprefix("argument ")

    def _unknown_option(self) -> str | None:
        """The first word that looks like an option of this command and is none."""
        for before, word in pairwise(["", *self._words]):
            known = self._option_string_actions.get(before)
            if word == "--":
                return None
            is_value = (known is not None and known.nargs != 0) or self._negative_number_matcher.match(word)
            if word.startswith("-") and len(word) > 1 and not is_value and word.partition("=")[0] not in self._option_string_actions:
                return word
        return None

    def _hint_of_equals_sign(self, names: Sequence[str]) -> str:
        """A hint to write --name=value, if a word that begins with - and is no option follows one of the options `names`."""
        for word, following in pairwise(self._words):
            if word in names and following.startswith("-") and following.partition("=")[0] not in (*self._option_string_actions, "--"):
                return f"; one that begins with - needs =: {word}={following}"
        return ""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Report unknown arguments here, in the parser of the subcommand: the parser of its parent command has other options to suggest."""
        self._words = list(args)
        if args and args[0].startswith("-") and args[0] not in self._option_string_actions and (suggestion := self._action_of_option(args[0])):
            self.error(f"there is no option {args[0]}{suggestion}")
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._unknown_arguments_text(unknown))
        return options, unknown

    def _action_of_option(self, word: str) -> str:
        """A suggestion of the action that `--list` or another option means; "" if this command has no such action."""
        from cli import hints

        name = word.partition("=")[0].lstrip("-")
        meant = hints.action_for(name, subcommands(self))
        return f"; did you mean {self.prog} {meant}?" if meant else suggested_commands(self, name)

    def _unknown_arguments_text(self, unknown: Sequence[str]) -> str:
        first = unknown[0]
        if first.startswith("-"):
            name = first.partition("=")[0]
            return f"there is no option {name}{self._suggestion(name)}"
        from cli import hints

        return f"{first!r} is one word too many{hints.too_many(self.prog.removeprefix('tenure '), first)}"

    def _suggestion(self, name: str) -> str:
        from cli import hints, other_tools

        options = [option for action in self._actions for option in action.option_strings]
        names = [name] if name.startswith("--") else [name, name[:2]]  # -oend is -o end
        for written in names:
            if suggestion := hints.option_for(self.prog.removeprefix("tenure "), written, options):
                return suggestion
        meant = {word.lstrip("-") for written in names for word in (written, *other_tools.OPTIONS.get(written, ()))}
        for action in self._actions:  # `--topic orders` for a positional TOPIC
            if not action.option_strings and not meant.isdisjoint((action.dest, action.dest.removesuffix("s"), str(action.metavar).lower())):
                return f": write {action.metavar} without it"
        if name in other_tools.PATTERN_OPTIONS and "--sort" in options:
            return ": write a quoted pattern as a name, such as 'billing-*'"
        return closest_option(name, options) or elsewhere(name, COMMANDS_NAMED, " ".join(self.prog.split()[:2]))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        names = list(map(str, action.choices))
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"there is no command {value!r}{self._suggested_command(str(value), names)}")
        option = action.option_strings[-1] if action.option_strings else None
        problem = f"{option} cannot be {value!r}" if option else f"there is no value {value!r}"
        self.error(problem + (self._suggested_value(option, str(value)) or closest(str(value), names) or f"; there is {', '.join(names)}"))

    def _suggested_value(self, option: str | None, value: str) -> str:
        from cli import other_tools

        ours = other_tools.VALUES.get((option or "", value))
        return f"; did you mean {ours}?" if ours else ""

    def _suggested_command(self, word: str, names: Sequence[str]) -> str:
        from cli import hints

        command = "" if isinstance(self, MainParser) else self.prog.removeprefix("tenure ")
        if not command:
            if commands := hints.commands_for(word):
                return f"; did you mean {' or '.join(f'{self.prog} {command}' for command in commands)}?"
        elif word in ARGUMENTS:
            return f"; did you mean tenure {word}?"
        if meant := hints.action_for(word, names):
            return f"; did you mean {meant}?"
        if remark := hints.not_here(command, word):
            return remark
        return suggested_commands(self, word, self._words) or closest(word, names if command else [*names, "help"]) or f"; there is {', '.join(names)}"


class MainParser(Parser):
    """The parser of `tenure` itself, whose help is a page."""

    def format_help(self) -> str:
        from cli.help import page

        commands = next(action for action in self._actions if isinstance(action, argparse._SubParsersAction))
        return page(commands.choices, {choice.dest: choice.help or "" for choice in commands._choices_actions})


def closest(word: str, among: Iterable[str]) -> str:
    from cli import hints

    match = hints.nearest(word, among)
    return f"; did you mean {match}?" if match else ""


def closest_option(name: str, options: Iterable[str]) -> str:
    """Options are compared without their dashes, in which all of them are alike; then with the options of other tools."""
    from cli import hints, other_tools

    names = {option.lstrip("-"): option for option in options if option.startswith("--")}
    written = name.lstrip("-")
    within = "-".join(part for part in written.split("-") if part not in FILLERS)  # --include-internal is --internal
    match = within if within in names else hints.nearest(written, names) or hints.abbreviated(written, names)
    if match:
        return f"; did you mean {names[match]}?"
    theirs = [option.lstrip("-") for option, ours in other_tools.OPTIONS.items() if len(option) > 2 and not set(ours).isdisjoint(names.values())]
    foreign = hints.nearest(written, theirs, hints.LIKENESS_OF_OTHERS, cut_off=False)
    return hints.option_for("", f"--{foreign}", list(names.values())) if foreign else ""


def suggested_commands(parser: argparse.ArgumentParser, name: str, words: Sequence[str] = ()) -> str:
    """A suggestion of the subcommands, at any depth, that are called `name` or mean the same; "" if there is none. Another of the `words` may
    be the noun that one of them is about: list topics.
    """
    from cli import other_tools

    every = [below.prog for below in all_subcommands(parser)]
    names = (*other_tools.WORDS.get(name, ()), name) if name == "show" else (name, *other_tools.WORDS.get(name, ()))
    programs = next(filter(None, ([program for program in every if program.endswith(f" {meant}")] for meant in names)), [])
    nouns = [noun for noun in subcommands(parser) if noun in {word.lower().removesuffix("s") for word in words}]
    about = [program for program in programs if any(program.startswith(f"{parser.prog} {noun} ") for noun in nouns)]
    return f"; did you mean {' or '.join(about or programs)}?" if programs else ""


def elsewhere(option: str, most: int, family: str = "tenure ") -> str:
    """A remark that names the commands of a family with this option; "" if there are none, or more than `most`."""
    leaves = [below for below in all_subcommands(build_parser()) if not subcommands(below)]
    programs = [leaf.prog for leaf in leaves if option in leaf._option_string_actions and leaf.prog.startswith(family)]
    return f"; {' and '.join(filter(None, (', '.join(programs[:-1]), programs[-1])))} {'has' if len(programs) == 1 else 'have'} it" if 0 < len(programs) <= most else ""


def all_subcommands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for below in subcommands(parser).values():
        yield below
        yield from all_subcommands(below)


def parse(arguments: Sequence[str]) -> argparse.Namespace | None:
    """The command to run, None if help was shown. Ends the process for --help and --version; raises Failure for a usage error."""
    if arguments and arguments[0] == "help":  # tenure help group list
        arguments = [*arguments[1:], "--help"]
        if shown_page(arguments[0]):
            return None
    parser = build_parser(first_word(arguments))
    if not arguments:
        parser.print_help()
        return None
    options = parser.parse_args(options_moved(parser, arguments))
    if getattr(options, "run", None) is None:
        parser.error("name a command")
    return options


def shown_page(name: str) -> bool:
    """Show the page of `tenure help NAME`, if it has one besides the help of commands."""
    from cli.help import PAGES

    text = PAGES.get(name)
    if text is None and name not in ARGUMENTS and (suggestion := closest(name, PAGES)):
        Parser(prog="tenure").error(f"there is no page {name!r}{suggestion}")
    if text is not None:
        print(text, end="")
    return text is not None


def first_word(arguments: Sequence[str]) -> str | None:
    """The first word that is not an option: the command."""
    at = 0
    while at < len(arguments):
        size = option_size(arguments[at])
        if not size:
            return arguments[at]
        at += size
    return None


def option_size(word: str) -> int:
    """How many words an option before the command has, its value included; 0 if the word is no such option."""
    name, equals, _ = word.partition("=")
    return (1 if equals else 2) if name in WITH_VALUE else word in WITHOUT_VALUE


def options_moved(parser: Parser, arguments: Sequence[str]) -> list[str]:
    """The arguments, with the options that precede the command or its action moved after both."""
    words: list[str] = []
    options: list[str] = []
    at = 0
    below = subcommands(parser)
    while below and at < len(arguments):
        word = arguments[at]
        if word in below:
            words.append(word)
            below = subcommands(below[word])
            at += 1
        elif size := option_size(word):
            if at + size > len(arguments):
                parser.error(f"{word}: a value is missing")
            if size > 1 and not words and arguments[at + 1] in below and not any(after in below for after in arguments[at + 2 :]):
                parser.error(f"{word}: a value is missing before {arguments[at + 1]}")  # tenure --bootstrap topic list
            options += arguments[at : at + size]
            at += size
        elif not words and word.startswith("-") and word not in ("-h", "--help", "--version"):
            parser.error(f"there is no option {word}{option_before_command(parser, word)}")
        else:
            break
    if not words and at == len(arguments):
        parser.error("name a command")
    return [*words, *options, *arguments[at:]]


def option_before_command(parser: Parser, word: str) -> str:
    """A suggestion for a mistyped option before the command."""
    from cli import hints

    name = word.partition("=")[0]
    known = (*WITH_VALUE, *WITHOUT_VALUE, "--help", "--version")
    return hints.option_for("", name, known) or closest_option(name, known) or suggested_commands(parser, name.lstrip("-")) or elsewhere(name, 3 * COMMANDS_NAMED)


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def build_parser(command: str | None = None) -> MainParser:
    """The parser of all commands, or only of the named one."""
    parser = MainParser(prog="tenure", allow_abbrev=False)
    parser.add_argument("--version", action=Version, nargs=0, help="show the version, and whether this build is compiled, and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", prog="tenure", parser_class=Parser)
    for module, add in [ARGUMENTS[command]] if command in ARGUMENTS else dict.fromkeys(ARGUMENTS.values()):
        getattr(import_module(module), add)(commands)
    return parser
