"""The text of a `status.*` entry in DescribeConfigs, written by the broker and read by the command."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple


class StatusEntry(NamedTuple):
    """A member or instance that a policy affects at this moment. `seat`: the member whose seat it takes over; -1: no time."""

    name: str
    since_ms: int = -1
    seat: str | None = None


# The names of the entries, in the order in which they are shown.
AWAY: Final = "away"
WAITING: Final = "waiting"
MISSING: Final = "missing"
STANDBY: Final = "standby"
TAKE_OVER: Final = "takeover"
IGNORED: Final = "ignored"  # policies that do not apply to a group of the consumer protocol
STATUS_NAMES: Final = (AWAY, WAITING, MISSING, STANDBY, TAKE_OVER, IGNORED)
LISTS: Final = (MISSING, IGNORED)  # of names without a time

_ENTRY: Final = re.compile(r"(.+?) since (\d{1,18})(?:, |$)", re.DOTALL)  # milliseconds since 1970


def status_text(entries: Sequence[StatusEntry], time_text: Callable[[int], str] = str) -> str:
    """For example "b for a since 1700000000000, c"."""
    return ", ".join(
        entry.name + ("" if entry.seat is None else f" for {entry.seat}") + ("" if entry.since_ms < 0 else f" since {time_text(entry.since_ms)}")
        for entry in entries
    )


def read_status(name: str, text: str) -> list[StatusEntry]:
    """The entries of `status_text`, of the status entry of this name. The end of a long text may be cut off."""
    entries: list[StatusEntry] = []
    at = 0
    while match := _ENTRY.match(text, at):
        at = match.end()
        member, takes_over, seat = match[1].partition(" for ") if name == TAKE_OVER else (match[1], "", "")
        entries.append(StatusEntry(member, int(match[2]), seat if takes_over else None))
    rest = text[at:]
    if rest:
        entries += [StatusEntry(each) for each in (rest.split(", ") if name in LISTS else [rest])]
    return entries
