"""Invariants of a group of the consumer protocol in memory, and the comparison of such groups with their log. Playbooks and the simulator use both."""

from __future__ import annotations

from coordinator import Shard
from coordinator.consumer.calls import AWAY
from coordinator.consumer.group import ConsumerGroup
from coordinator.consumer.member import UNREVOKED, Holding, MemberState, Profile


def check_epoch_group(group: ConsumerGroup) -> None:
    """Check that each partition has one holder, and that counters, indexes and the timers of revocations agree with the members."""
    holders: dict[bytes, dict[int, str]] = {}
    for member in group.members.values():
        holding = member.holding
        assert holding.epoch <= group.target_epoch, f"{member.id} is ahead of the target"
        assert not holding.pending or holding.state is UNREVOKED, f"{member.id} has partitions to give up in {holding.state.name}"
        for held in (holding.assigned, holding.pending):
            for topic_id, partitions in held.items():
                assert partitions, "an empty topic"
                for partition in partitions:
                    before = holders.setdefault(topic_id, {}).setdefault(partition, member.id)
                    assert before == member.id, f"partition {partition} belongs to {before} and {member.id}"
        if holding.state is UNREVOKED and holding.epoch != AWAY and member.profile.classic is None:
            assert member.revocation is not None, f"{member.id} has no end to its revocation"
        else:
            assert member.revocation is None, f"{member.id} has an end to a revocation, and is {holding.state.name}"
    assert holders == group.holders, f"the holders are {holders}, the index has {group.holders}"
    assert group.target_epoch <= group.epoch, "the target is ahead of the group"
    assert group.members or group.target_epoch == group.epoch, "the target of an empty group lags"
    assert group.targets.keys() <= group.members.keys(), "a target is that of no member"
    statics = {member.profile.instance_id: member.id for member in group.members.values() if member.profile.instance_id is not None}
    assert group.static_members == statics, f"the index of static members is {group.static_members}, the members are {statics}"
    assert group.resolved.keys() <= group.expression_counts.keys(), "an expression is kept that no member has"


def stored_state(group: ConsumerGroup) -> tuple[object, ...]:
    """Everything that the records of the group say."""
    members: dict[str, tuple[Profile, Holding, MemberState]] = {id: (m.profile, m.holding, m.holding.state) for id, m in group.members.items()}
    counts = group.topic_counts, group.expression_counts, group.assignor_votes, group.kept_bytes
    offsets = {(topic, partition): value for topic, partition, value in group.all_offsets()}
    epochs = group.epoch, group.hash, group.target_epoch, group.target_ms
    targets = {id: [(topic_id, list(partitions)) for topic_id, partitions in target.items()] for id, target in group.targets.items()}
    return epochs, members, targets, group.static_members, group.holders, group.resolved, counts, offsets


def compare_epoch_groups(shard: Shard, loaded: Shard) -> None:
    """Check that a shard that has loaded the log has the same groups of the consumer protocol as the live one."""
    live, stored = shard.consumers.groups, loaded.consumers.groups
    assert live.keys() == stored.keys(), f"{', '.join(sorted(live.keys() ^ stored.keys()))}: a group is in the log or in memory only"
    for id, group in live.items():
        here, there = stored_state(group), stored_state(stored[id])
        assert here == there, f"{id}: {there} in the log, but {here} in memory"
