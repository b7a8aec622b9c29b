"""The possible next words of a command line: read from argparse's tree, with names from the cluster if it answers quickly."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import NamedTuple

from cli.command_line import WITH_VALUE, WITHOUT_VALUE, build_parser, first_word, subcommands

NAMES_SECONDS = 0.7
NAMES_MAX = 1000


class Completions(NamedTuple):
    kind: str  # words, files, folders
    words: list[tuple[str, str]] = []  # noqa: RUF012 (never changed): each with its description


class ParsedWords(NamedTuple):
    """The words before the current one, as argparse reads them: the subcommand, and its arguments so far."""

    parser: argparse.ArgumentParser
    path: list[str]  # commands
    positionals: list[str]
    options_given: list[argparse.Action]
    values: dict[str, str]  # of options, by the action's name
    pending: argparse.Action | None  # the option whose value is completed next


def complete(before: list[str], current: str) -> Completions:
    """The completions of `current` after the words `before` (without `tenure` itself)."""
    parsed = parse_words(before)
    if parsed.pending is not None:
        return values_of(parsed.pending, parsed, current)
    name, equals, value = current.partition("=")
    if equals and name.startswith("--") and (action := option(parsed.parser, name)) is not None:
        completions = values_of(action, parsed, value)
        return Completions(completions.kind, [(f"{name}={word}", about) for word, about in completions.words])
    if current.startswith("-"):
        return filtered(current, options(parsed))
    below = subcommands(parsed.parser)
    if below:
        words = [] if parsed.positionals else list(below)  # after an unknown command there are no completions
        return filtered(current, ((word, summary(parsed.parser, word)) for word in words))
    action = next_positional(parsed)
    if action is None:
        return filtered(current, options(parsed)) if not current else Completions("words")
    return values_of(action, parsed, current)


def parse_words(words: list[str]) -> ParsedWords:
    parser: argparse.ArgumentParser = build_parser(first_word(words))
    parsed = ParsedWords(parser, [], [], [], {}, None)
    only_positionals = False
    for word in words:
        below = subcommands(parsed.parser)
        if parsed.pending is not None:
            parsed.values[parsed.pending.dest] = word
            parsed = parsed._replace(pending=None)
        elif only_positionals:
            parsed.positionals.append(word)
        elif word == "--":
            only_positionals = True
        elif word.startswith("-") and len(word) > 1:
            name, equals, value = word.partition("=")
            action = option(parsed.parser, name)
            if action is not None:
                parsed.options_given.append(action)
                if equals:
                    parsed.values[action.dest] = value
                elif takes_value(action):
                    parsed = parsed._replace(pending=action)
        elif word in below:
            parsed = parsed._replace(parser=below[word], path=[*parsed.path, word])
        else:
            parsed.positionals.append(word)
    return parsed


# Options


def option(parser: argparse.ArgumentParser, name: str) -> argparse.Action | None:
    action: argparse.Action | None = parser._option_string_actions.get(name)
    if action is None and subcommands(parser) and name in (*WITH_VALUE, *WITHOUT_VALUE):  # also accepted before the command
        return argparse.Action([name], name.lstrip("-"), nargs=None if name in WITH_VALUE else 0)
    return action


def takes_value(action: argparse.Action) -> bool:
    return action.nargs != 0


def options(parsed: ParsedWords) -> Iterable[tuple[str, str]]:
    """The options that may follow. Leaves out options that were given or that a given one excludes, except repeatable options."""
    excluded = {
        id(other)
        for group in parsed.parser._mutually_exclusive_groups
        if any(action in parsed.options_given for action in group._group_actions)
        for other in group._group_actions
    }
    for action in parsed.parser._actions:
        if action.help == argparse.SUPPRESS or not action.option_strings:
            continue
        if (action in parsed.options_given or id(action) in excluded) and not isinstance(action, argparse._AppendAction):
            continue
        for name in action.option_strings:
            if name.startswith("--"):
                yield name, short_description(action.help)
    if subcommands(parsed.parser):
        yield from ((name, "") for name in (*WITH_VALUE, *WITHOUT_VALUE))


# Values


def next_positional(parsed: ParsedWords) -> argparse.Action | None:
    to_skip = len(parsed.positionals)
    for action in parsed.parser._actions:
        if action.option_strings or isinstance(action, argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
            continue
        if action.nargs in ("*", "+") or to_skip == 0:
            return action
        to_skip -= 1
    return None


def values_of(action: argparse.Action, parsed: ParsedWords, current: str) -> Completions:
    if action.choices is not None:
        return filtered(current, ((str(choice), "") for choice in action.choices))
    if words := list(words_for(action, parsed)):
        return filtered(current, ((word, "") for word in words if word != current or not word.endswith("=")))
    metavar = str(action.metavar or "")
    if "FILE" in metavar:
        return Completions("files")
    if "DIR" in metavar:
        return Completions("folders")
    names = names_for(action, parsed)
    if names is None:
        return Completions("words")
    used = set(parsed.positionals)
    return filtered(current, ((name, "") for name in names_of_cluster(names, parsed) if name not in used))


def words_for(action: argparse.Action, parsed: ParsedWords) -> Iterable[str]:
    """The values of an option without argparse choices."""
    match parsed.path, action.dest:
        case ["serve"], "profile":
            from broker.settings.config import PROFILES

            return PROFILES
        case ["group", "list"], "states":
            from cli.groups.listing import STATES

            return STATES
        case ["group", "list"], "types":
            from cli.groups.listing import TYPES

            return TYPES
        case ["consume"], "begin":
            return "earliest", "latest"
        case ["consume"], "until":
            return ("end",)
        case ["topic", "delete-records"], "before":
            return ("latest",)
        case ["serve"], "settings":
            from broker.settings.config import SETTINGS

            return (f"{setting.name}=" for setting in SETTINGS)
        case ["store", _], "settings":
            return "store.replicas=", "store.tls.ca.location="
        case (["topic", "create"], "settings") | (["topic", "config", _], "settings" | "names"):
            from broker.topics.settings import TOPIC_SETTINGS

            return (name + ("=" if action.dest == "settings" else "") for name in TOPIC_SETTINGS)
        case _:
            return ()


def names_for(action: argparse.Action, parsed: ParsedWords) -> Callable[[argparse.Namespace], list[str]] | None:
    """A function that fetches the names of existing groups, topics or instances for an argument; None if it takes no such names."""
    if "--bootstrap" not in parsed.parser._option_string_actions or parsed.path == ["topic", "create"]:
        return None
    if action.dest in ("group", "groups"):
        return group_names
    if action.dest in ("topic", "topics"):
        return topic_names
    if action.dest == "instances" and parsed.positionals:
        return lambda options: instance_names(options, parsed.positionals[0])
    return None


def names_of_cluster(names: Callable[[argparse.Namespace], list[str]], parsed: ParsedWords) -> list[str]:
    """The names from the cluster; none if it does not answer quickly."""
    from cli.arguments import addresses
    from cli.failure import Failure

    try:
        bootstrap = parsed.values.get("bootstrap")
        at = addresses(bootstrap) if bootstrap else None
        fetched = names(argparse.Namespace(bootstrap=at, timeout=NAMES_SECONDS, client_config=parsed.values.get("client_config"), silent=True))
    except (Failure, OSError, argparse.ArgumentTypeError):
        return []
    return sorted(name for name in fetched if name.isprintable())[:NAMES_MAX]


def group_names(options: argparse.Namespace) -> list[str]:
    from cli.client import Cluster, Failure
    from protocol.messages.list_groups import ListGroupsRequest

    missing: dict[int, Failure] = {}
    with Cluster.of(options) as cluster:
        replies = cluster.ask_all_brokers(ListGroupsRequest(), missing=missing)
    return [group.group_id for reply in replies.values() for group in reply.groups]


def topic_names(options: argparse.Namespace) -> list[str]:
    from cli.client import Cluster

    with Cluster.of(options) as cluster:
        return [name for name, topic in cluster.topics(None).items() if not topic.internal]


def instance_names(options: argparse.Namespace, group: str) -> list[str]:
    from cli.client import Cluster
    from protocol.messages.describe_groups import DescribeGroupsRequest

    with Cluster.of(options) as cluster:
        reply = cluster.send_to_coordinator(group, DescribeGroupsRequest([group]))
    return [member.group_instance_id for entry in reply.groups for member in entry.members if member.group_instance_id]


# Words


def filtered(current: str, words: Iterable[tuple[str, str]]) -> Completions:
    return Completions("words", [(word, about) for word, about in words if word.startswith(current)])


def summary(parser: argparse.ArgumentParser, command: str) -> str:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return next((short_description(choice.help) for choice in action._choices_actions if choice.dest == command), "")
    return ""


def short_description(help: str | None) -> str:
    """The description up to the first colon or semicolon, on one line."""
    text = (help or "").partition(";")[0].partition(":")[0]
    return " ".join(text.split())
