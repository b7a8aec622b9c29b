"""Suggestions for mistyped words, and for the words and options of other Kafka tools. Only usage errors read it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from cli.other_tools import COMMANDS, NOT_HERE, OF_ACTIONS, OF_COMMANDS, OPTIONS, REMARKS, TOO_MANY, WORDS

LIKENESS: Final = 0.7  # of a mistyped word and what is suggested; less likeness misleads
LIKENESS_OF_OTHERS: Final = 0.85  # of a mistyped option of another tool
PREFIX_MIN: Final = 3
ABBREVIATION_MAX: Final = 4


def nearest(word: str, among: Iterable[str], likeness: float = LIKENESS, *, cut_off: bool = True) -> str | None:
    """The word of these that is meant by a mistyped one: in other case, with letters exchanged, cut off, or else as difflib finds it."""
    from difflib import get_close_matches

    words = {known.lower(): known for known in among}
    written = word.lower()
    if written in words:
        return words[written]
    exchanged = [known for known in words if sorted(known) == sorted(written)]
    longer = [known for known in words if cut_off and len(written) >= PREFIX_MIN and known.startswith(written)]
    matches = exchanged or (longer if len(longer) == 1 else get_close_matches(written, list(words), 1, likeness))
    return words[matches[0]] if matches else None


def abbreviated(word: str, among: Iterable[str]) -> str | None:
    """The only one of these that has the consonants of a short word in their order, from its first one on: --rf is --replication-factor."""
    pattern = re.compile(".*".join(map(re.escape, word)))
    is_short = 2 <= len(word) <= ABBREVIATION_MAX and set(word).isdisjoint("aeiou")
    matches = [known for known in among if is_short and pattern.match(known)]
    return matches[0] if len(matches) == 1 else None


def plain_name(word: str) -> str:
    """The name of a tool without its folder and its ending."""
    return re.sub(r"\.(sh|bat|py)$", "", word.rpartition("/")[2].lower())


def not_here(command: str, word: str) -> str:
    """An answer to a word for what this command does not do, or what another one does; "" if there is none. `command`: the words before it."""
    remark = OF_ACTIONS.get((command, word.lower())) or NOT_HERE.get(plain_name(word))
    return f": {remark}" if remark else ""


def commands_for(word: str) -> tuple[str, ...]:
    """The commands that a first word of another tool means."""
    return COMMANDS.get(plain_name(word), ())


def action_for(word: str, names: Iterable[str]) -> str | None:
    """The action of these names that a word means."""
    names = list(names)
    meant = (word.lower(), *WORDS.get(word.lower(), ()), word.lower().removesuffix("s"))
    return next((name for name in meant if name in names), None)


def too_many(command: str, word: str) -> str:
    """An answer to a word too many; "" if there is none."""
    if re.fullmatch(r"\d{1,2}:\d{2}.*", word, re.ASCII):
        return ": a time is one word, as 2026-11-21T08:30:00Z"
    if word == "ago":
        return ": an age is one word, as 10m or 2h"
    if re.fullmatch(r"[a-z.]+\.[a-z]+=.*", word):
        return f": repeat --set for each: --set {word}"
    return f": {TOO_MANY[command]}" if command in TOO_MANY else ""


def option_for(command: str, name: str, options: Sequence[str]) -> str:
    """A suggestion for an option of another tool; "" if there is none. `command`: its words, such as `topic list`."""
    if (command, name) in OF_COMMANDS:
        return f": {OF_COMMANDS[command, name]}"
    for ours in OPTIONS.get(name, ()):
        if ours in options:
            return f"; did you mean {ours}?"
    needed, remark = REMARKS.get(name, (None, ""))
    if needed is not None and (not needed or needed in options):
        return f": {remark}"
    return ""
