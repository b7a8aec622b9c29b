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
    from coordinator.consumer.member import ConsumerMember
    from coordinator.consumer.room import Room

PROTOCOL_TYPE: Final = "consumer"
GROUP_TYPE: Final = "consumer"


def listed(group: ConsumerGroup) -> ListedGroup:
    return ListedGroup(group.id, PROTOCOL_TYPE, group.state, GROUP_TYPE)


def describe(room: Room, group: ConsumerGroup) -> ConsumerGroupView:
    members = tuple([describe_member(room, group, member) for member in group.members.values()])
    assignor = preferred_assignor(group.assignor_votes, room.config_of(group.id))
    return ConsumerGroupView(group.state, group.epoch, group.target_epoch, assignor, members)


def describe_member(room: Room, group: ConsumerGroup, member: ConsumerMember) -> ConsumerMemberView:
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
        existing(room, partitions_of(union(holding.assigned, holding.pending))),
        existing(room, group.targets.get(member.id, NO_TARGET)),
        profile.classic is not None,
    )


def existing(room: Room, partitions: Mapping[bytes, Sequence[int]]) -> dict[bytes, Sequence[int]]:
    """Without those of deleted topics, which have no name any more."""
    return {topic_id: numbers for topic_id, numbers in partitions.items() if topic_id in room.topics.by_id}
