"""The status of a group's policies: which members are away, waiting or standby, as DescribeConfigs reports it, for people and for JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from cli.groups.offset_formats import time_text
from cli.shown import Role, Screen, plain

if TYPE_CHECKING:
    from cli.groups.described import Group, GroupMember

MISSING: Final = "missing"
TAKEOVER: Final = "takeover"
_SINCE: Final = re.compile(r" since (\d{1,18})(?=, |$)")  # milliseconds since 1970
_ENTRY: Final = re.compile(r"(.+?) since (\d{1,18})(?:, |$)", re.DOTALL)


def readable_status(value: str) -> str:
    """The value with its times in ISO 8601."""
    return _SINCE.sub(lambda match: f" since {time_text(int(match[1]))}", value)


def standbys_of(group: Group, status: Mapping[str, str]) -> list[GroupMember]:
    """The group's standbys (policy target.group.size), the longest-waiting first."""
    members = {member.member_key: member for member in group.members}
    return [members[name] for name, _ in _ENTRY.findall(status.get("standby", "")) if name in members]


def show_status(screen: Screen, status: Mapping[str, str]) -> None:
    for name, value in status.items():
        screen.line(screen.paint(plain(f"{name.replace('.', ' ')}: {readable_status(value)}"), Role.CAREFUL))


def status_document(status: Mapping[str, str]) -> dict[str, list[str] | list[dict[str, str | None]]]:
    """The status with a list for each name: of instance ids for MISSING, otherwise of members with the time since when."""
    return {name: value.split(", ") if name == MISSING else list(_entries(name, value)) for name, value in status.items()}


def _entries(name: str, value: str) -> Iterator[dict[str, str | None]]:
    at = 0
    while match := _ENTRY.match(value, at):
        at = match.end()
        member, takes_over, seat = match[1].partition(" for ") if name == TAKEOVER else (match[1], "", "")
        yield {"member": member, **({"seat": seat} if takes_over else {}), "since": time_text(int(match[2]))}
    if at < len(value):  # the broker cut off the end of a long value
        yield {"member": value[at:], "since": None}
