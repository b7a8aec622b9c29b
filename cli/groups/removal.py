"""Predicts the effect of removing members: whether a rebalance follows, which partitions move, and to which members.

The assignor runs in the group's leader, so the command computes the assignment by the assignor's known rule. If this gives the current
assignment, it also predicts the next one; otherwise the new owners are unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cli.records.assignors import ASSIGNORS, Assignment, Subscriber

if TYPE_CHECKING:
    from cli.client import TopicPartition
    from cli.groups.described import Group, GroupMember

Owners = dict["TopicPartition", str]  # partition -> member id


class Move(NamedTuple):
    """A partition that changes its owner. `after`: the predicted owner, None for no owner; `known`: whether it could be predicted."""

    partition: TopicPartition
    before: GroupMember
    after: GroupMember | None
    known: bool = True


class Removal(NamedTuple):
    leaving: list[GroupMember]
    staying: list[GroupMember]
    rebalances: bool
    moves: list[Move]
    stops: bool  # whether the staying members also give up their partitions during the rebalance (eager assignors)


def predict(group: Group, leaving: Sequence[GroupMember], partitions: Mapping[str, int]) -> Removal:
    """Predict the removal. `partitions`: the number of partitions of each topic, as far as known."""
    ids = {member.member_id for member in leaving}
    staying = [member for member in group.members if member.member_id not in ids]
    owners = group.owners
    freed_partitions = {partition: owner for partition, owner in owners.items() if owner.member_id in ids}
    rebalances = bool(staying)
    after = next_assignment(group, staying, partitions) if staying else {}
    if after is None:
        last_member = staying[0] if len(staying) == 1 else None
        moves = [move_to_last_member(partition, freed_partitions[partition], last_member) for partition in sorted(freed_partitions)]
    else:
        staying_by_id = {member.member_id: member for member in staying}
        moves = [
            Move(partition, owner, staying_by_id.get(after.get(partition, "")))
            for partition, owner in sorted(owners.items())
            if after.get(partition) != owner.member_id
        ]
    return Removal(list(leaving), staying, rebalances, moves, stops=rebalances and not group.cooperative)


def move_to_last_member(partition: TopicPartition, before: GroupMember, last_member: GroupMember | None) -> Move:
    if last_member is not None and last_member.topics is not None and partition[0] in last_member.topics:
        return Move(partition, before, last_member)
    return Move(partition, before, None, known=False)


def next_assignment(group: Group, staying: Sequence[GroupMember], partitions: Mapping[str, int]) -> Owners | None:
    """The predicted owner of each partition, if the current assignment follows the assignor's rule.

    Java's assignors order static members by instance id, those of other clients by member id: try both.
    """
    assign = ASSIGNORS.get(group.protocol)
    if assign is None or group.state != "Stable" or any(member.topics is None for member in group.members):
        return None
    if any(topic not in partitions for member in group.members for topic in member.topics or ()):
        return None
    current = {partition: member.member_id for partition, member in group.owners.items()}
    for by_instance in (True, False):
        if owners_of(assign(subscribers(group.members, by_instance), partitions)) == current:
            return owners_of(assign(subscribers(staying, by_instance), partitions))
    return None


def subscribers(members: Sequence[GroupMember], by_instance: bool) -> list[Subscriber]:
    return [Subscriber(member.member_id, member.instance_id if by_instance else None, member.topics or ()) for member in members]


def owners_of(assignment: Assignment) -> Owners:
    return {(topic, partition): id for id, topics in assignment.items() for topic, numbers in topics.items() for partition in numbers}
