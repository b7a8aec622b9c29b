"""Whom a consumer group (KIP-848) waits for: members hold partitions that others shall have, or have not heard of the newest epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cli.groups.described import partitions_document
from cli.shown import Role, Screen, plain
from history.moves import list_partitions
from history.words import list_names

if TYPE_CHECKING:
    from cli.client import TopicPartition
    from cli.groups.described import Group, GroupMember


class HoldUp(NamedTuple):
    """A member that has to give up partitions, and the members that wait for them."""

    holder: GroupMember
    partitions: tuple[TopicPartition, ...]
    waiting: tuple[GroupMember, ...]

    def document(self) -> dict[str, object]:
        return {**ids(self.holder), "partitions": partitions_document(self.partitions), "for": [ids(member) for member in self.waiting]}

    @property
    def line(self) -> str:
        waiting = f", for {list_names(member.shown_name for member in self.waiting)}" if self.waiting else ""
        return f"waits for {named(self.holder)} to give up {list_partitions(self.partitions)}{waiting}"


def hold_ups(group: Group) -> list[HoldUp]:
    found = []
    for holder in group.members:
        given = holder.gives_up
        if given:
            waiting = tuple(member for member in group.members if any(partition in given for partition in member.waits_for))
            found.append(HoldUp(holder, given, waiting))
    return found


def behind(group: Group) -> list[GroupMember]:
    """The members that reach the newest epoch with their next heartbeat, as nothing else holds them up."""
    held = {partition for hold_up in hold_ups(group) for partition in hold_up.partitions}
    return [
        member
        for member in group.members
        if not member.is_away and not member.gives_up and not held.intersection(member.waits_for) and (member.epoch != group.target_epoch or member.waits_for)
    ]


def away(group: Group) -> list[GroupMember]:
    return [member for member in group.members if member.is_away]


def document(group: Group) -> dict[str, object]:
    """Null in groups of other types."""
    if group.epoch is None:
        return {"target_epoch": None, "waits_for": None, "behind_members": None, "away_members": None}
    return {
        "target_epoch": group.target_epoch,
        "waits_for": [hold_up.document() for hold_up in hold_ups(group)],
        "behind_members": [ids(member) for member in behind(group)],
        "away_members": [ids(member) for member in away(group)],
    }


def show(screen: Screen, group: Group) -> None:
    if group.epoch is None:
        return
    lines = [hold_up.line for hold_up in hold_ups(group)]
    if group.target_epoch is not None and group.epoch > group.target_epoch and group.members:
        lines.append(f"the assignment of epoch {group.epoch} is computed at the next heartbeat of a member, when the assignment interval has passed")
    if late := behind(group):
        lines.append(f"at the next heartbeat in epoch {group.target_epoch}: {list_names(map(named, late))}")
    if gone := away(group):
        lines.append(f"away, and their partitions are kept: {list_names(member.shown_name for member in gone)}")
    for line in lines:
        screen.line(screen.paint(plain(line), Role.CAREFUL))


def named(member: GroupMember) -> str:
    return f"{member.shown_name} ({'away' if member.is_away else f'epoch {member.epoch}'})"


def ids(member: GroupMember) -> dict[str, object]:
    return {"member_id": member.member_id, "instance_id": member.instance_id, "epoch": member.epoch}
