"""Members that go: for good, or for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.consumer.calls import AWAY
from coordinator.consumer.changes import Change, EpochChange, ExpressionChange, HoldingChange, TargetEpochChange
from coordinator.consumer.downgrade import downgrade_without, ends_consumer_protocol
from coordinator.consumer.group import ConsumerGroup, count
from coordinator.consumer.member import NOTHING, ConsumerMember
from coordinator.consumer.step import read_by, removal
from coordinator.notes import Cause

if TYPE_CHECKING:
    from coordinator.consumer.keeper import Keeper


def remove_members(keeper: Keeper, group: ConsumerGroup, gone: list[ConsumerMember], cause: Cause = Cause.MEMBER_LEFT) -> None:
    """Remove members, however many, with one new epoch. What they held is free at once; the new target comes with the next heartbeat.

    If they were all that spoke the consumer protocol, the group becomes a classic one, whose rebalance has this cause.
    """
    if ends_consumer_protocol(keeper, group, gone) and downgrade_without(keeper, group, gone, cause):
        return
    changes: list[Change] = []
    for member in gone:
        changes += removal(member.id)
    used = dict(group.expression_counts)
    for member in gone:
        if member.profile.expression:
            count(used, member.profile.expression, -1)
    resolved = {expression: matched for expression, matched in group.resolved.items() if expression in used}
    changes += [ExpressionChange(expression, None) for expression in group.resolved if expression not in used]
    topics = read_by(group, [member.profile for member in gone], (), resolved)
    changes.append(EpochChange(group.epoch + 1, keeper.hash_of(topics)))
    if len(gone) == len(group.members):
        changes.append(TargetEpochChange(group.epoch + 1))  # nobody is left to compute one for
    keeper.carry_out(group, changes, cause)


def go_away(keeper: Keeper, group: ConsumerGroup, member: ConsumerMember) -> None:
    """A static member will be back: it keeps its place, its target, and what it was not told to give up. Its session runs on."""
    holding = member.holding
    assigned = {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in holding.assigned.items()}
    keeper.carry_out(group, [HoldingChange(member.id, holding._replace(epoch=AWAY, assigned=assigned, pending=NOTHING))])
    keeper.stop_phases(member)
