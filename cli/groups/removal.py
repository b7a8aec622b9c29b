"""Predicts the effect of removing members: whether a rebalance follows, which partitions move, and to which members.

The assignor runs in the group's leader, so the command computes the assignment by the assignor's known rule. If this gives the current
assignment, it also predicts the next one; otherwise the new owners are unknown.

With standbys, these take the seats of the removed members without a rebalance, if there are enough with the same topics
(`coordinator/policies/target_size.py`).
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


class TakeOver(NamedTuple):
    """A standby gets the seat of a removed member."""

    removed: GroupMember
    standby: GroupMember


class RemovalPrediction(NamedTuple):
    leaving: list[GroupMember]
    staying: list[GroupMember]
    rebalances: bool
    moves: list[Move]
    stops_staying_members: bool  # whether the staying members also give up their partitions during the rebalance (eager assignors)
    standbys: list[GroupMember]  # those of the staying members that are standbys now
    take_overs: list[TakeOver]  # without a rebalance
    full: bool  # whether all seats are taken afterwards, so that a member that joins is a standby

    @property
    def active(self) -> int:
        """The number of staying members that have a seat now."""
        return len(self.staying) - len(self.standbys)


def predict(
    group: Group, leaving: Sequence[GroupMember], partitions: Mapping[str, int], standbys: Sequence[GroupMember] = ()
) -> RemovalPrediction:
    """Predict the removal. `partitions`: the number of partitions of each topic, as far as known; `standbys`: the longest-waiting first."""
    ids = {member.member_id for member in leaving}
    staying = [member for member in group.members if member.member_id not in ids]
    waiting = [standby for standby in standbys if standby.member_id not in ids]
    standby_ids = {standby.member_id for standby in standbys}
    removed = [member for member in leaving if member.member_id not in standby_ids]
    full = bool(standbys) and len(waiting) >= len(removed)
    take_overs = find_take_overs(group, removed, waiting) if standbys and staying else None
    if take_overs is not None:
        moves = [Move(partition, seat.removed, seat.standby) for seat in take_overs for partition in seat.removed.assigned or ()]
        moves.sort(key=lambda move: move.partition)
        return RemovalPrediction(list(leaving), staying, False, moves, False, waiting, take_overs, full)
    active = [member for member in group.members if member.member_id not in standby_ids]
    successors = [*(member for member in active if member.member_id not in ids), *waiting[: len(removed)]]
    owners = group.owners
    freed_partitions = {partition: owner for partition, owner in owners.items() if owner.member_id in ids}
    rebalances = bool(staying)
    after = next_assignment(group, active, successors, partitions) if staying else {}
    if after is None:
        last_member = successors[0] if len(successors) == 1 else None
        moves = [move_to_last_member(partition, freed_partitions[partition], last_member) for partition in sorted(freed_partitions)]
    else:
        successors_by_id = {member.member_id: member for member in successors}
        moves = [
            Move(partition, owner, successors_by_id.get(after.get(partition, "")))
            for partition, owner in sorted(owners.items())
            if after.get(partition) != owner.member_id
        ]
    return RemovalPrediction(list(leaving), staying, rebalances, moves, rebalances and not group.cooperative, waiting, [], full)


def find_take_overs(group: Group, removed: Sequence[GroupMember], standbys: Sequence[GroupMember]) -> list[TakeOver] | None:
    """The standby that gets each removed member's seat, chosen as the coordinator does; None: a rebalance follows, or one is under way."""
    if group.state != "Stable":
        return [] if group.state == "CompletingRebalance" and not removed else None
    free = list(standbys)
    take_overs = []
    for member in removed:
        standby = next((standby for standby in free if same_topics(standby, member)), None)
        if standby is None:
            return None
        free.remove(standby)
        take_overs.append(TakeOver(member, standby))
    return take_overs


def same_topics(first: GroupMember, second: GroupMember) -> bool:
    return first.topics is not None and second.topics is not None and set(first.topics) == set(second.topics)


def move_to_last_member(partition: TopicPartition, before: GroupMember, last_member: GroupMember | None) -> Move:
    if last_member is not None and last_member.topics is not None and partition[0] in last_member.topics:
        return Move(partition, before, last_member)
    return Move(partition, before, None, known=False)


def next_assignment(
    group: Group, active: Sequence[GroupMember], successors: Sequence[GroupMember], partitions: Mapping[str, int]
) -> Owners | None:
    """The predicted owner of each partition, if the current assignment follows the assignor's rule.

    `active`, `successors`: the members that have a seat now, and after the removal. Java's assignors order static members by
    instance id, the assignors of other clients order them by member id: both orders are tried.
    """
    assign = ASSIGNORS.get(group.protocol)
    if assign is None or group.state != "Stable" or any(member.topics is None for member in (*active, *successors)):
        return None
    if any(topic not in partitions for member in (*active, *successors) for topic in member.topics or ()):
        return None
    current = {partition: member.member_id for partition, member in group.owners.items()}
    for by_instance in (True, False):
        if owners_of(assign(subscribers(active, by_instance), partitions)) == current:
            return owners_of(assign(subscribers(successors, by_instance), partitions))
    return None


def subscribers(members: Sequence[GroupMember], by_instance: bool) -> list[Subscriber]:
    return [Subscriber(member.member_id, member.instance_id if by_instance else None, member.topics or ()) for member in members]


def owners_of(assignment: Assignment) -> Owners:
    return {(topic, partition): id for id, topics in assignment.items() for topic, numbers in topics.items() for partition in numbers}
