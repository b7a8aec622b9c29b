"""Predict a removal of members: whether a rebalance follows, which partitions move, and to which members.

The group's leader decides who gets what, with an assignor of its own. Where one rule explains the present assignment in full, the
same rule says what comes; where it does not, nothing is said that may turn out wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cli.groups.described import Group, GroupMember, Partition

Assignment = dict["Partition", str]  # to member ids
Assign = Callable[[Sequence["GroupMember"], Mapping[str, int]], Assignment]

AT_REST = ("Stable",)


class Move(NamedTuple):
    """The member that has the partition, and the one that will have it (None: none), if that can be predicted."""

    partition: Partition
    before: GroupMember
    after: GroupMember | None
    known: bool = True


class Removal(NamedTuple):
    leaving: list[GroupMember]
    staying: list[GroupMember]
    rebalances: bool
    moves: list[Move]
    stops: bool  # the other members give up their partitions too, until it is over


def foresee(group: Group, leaving: Sequence[GroupMember], partitions: Mapping[str, int]) -> Removal:
    """`partitions`: how many each topic has, as far as it is known."""
    ids = {member.member_id for member in leaving}
    staying = [member for member in group.members if member.member_id not in ids]
    owners = group.owners
    freed = {partition: owner for partition, owner in owners.items() if owner.member_id in ids}
    rebalances = bool(staying)
    after = expected(group, staying, partitions) if staying else {}
    if after is None:
        only = staying[0] if len(staying) == 1 else None
        moves = [_to_only(partition, freed[partition], only) for partition in sorted(freed)]
    else:
        there = {member.member_id: member for member in staying}
        moves = [
            Move(partition, owner, there.get(after.get(partition, "")))
            for partition, owner in sorted(owners.items())
            if after.get(partition) != owner.member_id
        ]
    return Removal(list(leaving), staying, rebalances, moves, stops=rebalances and not group.cooperative)


def _to_only(partition: Partition, before: GroupMember, only: GroupMember | None) -> Move:
    if only is not None and only.topics is not None and partition[0] in only.topics:
        return Move(partition, before, only)
    return Move(partition, before, None, known=False)


def expected(group: Group, staying: Sequence[GroupMember], partitions: Mapping[str, int]) -> Assignment | None:
    """Predict the assignment, if the current one follows the assignor's rule."""
    rule = RULES.get(group.protocol)
    if rule is None or group.state not in AT_REST or any(member.topics is None for member in group.members):
        return None
    if any(topic not in partitions for member in group.members for topic in member.topics or ()):
        return None
    now = {partition: member.member_id for partition, member in group.owners.items()}
    for order in ORDERS:
        if rule(sorted(group.members, key=order), partitions) == now:
            return rule(sorted(staying, key=order), partitions)
    return None


# Rules of assignors


def range_rule(members: Sequence[GroupMember], partitions: Mapping[str, int]) -> Assignment:
    """Each topic by itself: runs of partitions as even as possible for its subscribers, the first ones get one more."""
    found: Assignment = {}
    for topic in sorted({topic for member in members for topic in member.topics or ()}):
        subscribers = [member for member in members if topic in (member.topics or ())]
        each, more = divmod(partitions[topic], len(subscribers))
        at = 0
        for number, member in enumerate(subscribers):
            count = each + (number < more)
            found |= {(topic, partition): member.member_id for partition in range(at, at + count)}
            at += count
    return found


def round_robin_rule(members: Sequence[GroupMember], partitions: Mapping[str, int]) -> Assignment:
    """All partitions of all topics in order, each to the next member that is subscribed to its topic."""
    found: Assignment = {}
    at = 0
    for topic in sorted({topic for member in members for topic in member.topics or ()}):
        for partition in range(partitions[topic]):
            while topic not in (members[at % len(members)].topics or ()):
                at += 1
            found[topic, partition] = members[at % len(members)].member_id
            at += 1
    return found


RULES: dict[str, Assign] = {"range": range_rule, "roundrobin": round_robin_rule}


def by_seat(member: GroupMember) -> tuple[bool, str]:
    """As Java sorts: instance ids first, so that a restarted member comes where it was."""
    return member.instance_id is None, member.seat


def by_id(member: GroupMember) -> tuple[bool, str]:
    return False, member.member_id


ORDERS = (by_seat, by_id)
