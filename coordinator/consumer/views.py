"""What ConsumerGroupDescribe and ListGroups show of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from coordinator.calls import ListedGroup
from coordinator.consumer.calls import ConsumerGroupView, ConsumerMemberView
from coordinator.consumer.group import NO_TARGET, partitions_of, union
from coordinator.consumer.target import preferred_assignor

if TYPE_CHECKING:
    from coordinator.consumer.group import ConsumerGroup
    from coordinator.consumer.keeper import Keeper
    from coordinator.consumer.member import ConsumerMember

PROTOCOL_TYPE: Final = "consumer"
GROUP_TYPE: Final = "consumer"


def listed(group: ConsumerGroup) -> ListedGroup:
    return ListedGroup(group.id, PROTOCOL_TYPE, group.state, GROUP_TYPE)


def describe(keeper: Keeper, group: ConsumerGroup) -> ConsumerGroupView:
    members = tuple([describe_member(keeper, group, member) for member in group.members.values()])
    assignor = preferred_assignor(group.assignor_votes, keeper.config_of(group.id))
    return ConsumerGroupView(group.state, group.epoch, group.target_epoch, assignor, members)


def describe_member(keeper: Keeper, group: ConsumerGroup, member: ConsumerMember) -> ConsumerMemberView:
    profile, holding = member.profile, member.holding
    return ConsumerMemberView(
        member.id,
        profile.instance_id,
        profile.rack_id,
        holding.epoch,
        profile.client_id,
        profile.client_host,
        profile.topics,
        profile.expression,
        existing(keeper, partitions_of(union(holding.assigned, holding.pending))),
        existing(keeper, group.targets.get(member.id, NO_TARGET)),
        profile.classic is not None,
    )


def existing(keeper: Keeper, partitions: Mapping[bytes, Sequence[int]]) -> dict[bytes, Sequence[int]]:
    """Without those of deleted topics, which have no name any more."""
    return {topic_id: numbers for topic_id, numbers in partitions.items() if topic_id in keeper.topics.by_id}
