"""The status of a group's policies: which members are away, waiting or standby, as DescribeConfigs reports it, for people and for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from cli.groups.offset_formats import time_text
from cli.shown import Role, Screen, plain
from coordinator.policies.status import LISTS, STANDBY, read_status, status_text

if TYPE_CHECKING:
    from cli.groups.described import Group, GroupMember


def readable_status(name: str, value: str) -> str:
    """The value with its times in ISO 8601."""
    return status_text(read_status(name, value), time_text)


def standbys_of(group: Group, status: Mapping[str, str]) -> list[GroupMember]:
    """The group's standbys, the longest-waiting first."""
    members = {member.member_key: member for member in group.members}
    return [members[entry.name] for entry in read_status(STANDBY, status.get(STANDBY, "")) if entry.name in members]


def show_status(screen: Screen, status: Mapping[str, str]) -> None:
    for name, value in status.items():
        screen.line(screen.paint(plain(f"{name.replace('.', ' ')}: {readable_status(name, value)}"), Role.CAREFUL))


def status_document(status: Mapping[str, str]) -> dict[str, list[str] | list[dict[str, str | None]]]:
    """The status with a list for each name: of names for LISTS, otherwise of members with the time since when."""
    return {
        name: [entry.name for entry in read_status(name, value)] if name in LISTS else list(_entries(name, value))
        for name, value in status.items()
    }


def _entries(name: str, value: str) -> Iterator[dict[str, str | None]]:
    for entry in read_status(name, value):
        since = None if entry.since_ms < 0 else time_text(entry.since_ms)  # None: the broker cut off the end of a long value
        yield {"member": entry.name, **({} if entry.seat is None else {"seat": entry.seat}), "since": since}
