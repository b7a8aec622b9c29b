"""What holds of a group of the consumer protocol after each step."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator import Fact, Shard
from coordinator.classic.group import Group
from coordinator.consumer.calls import AWAY
from coordinator.consumer.group import ConsumerGroup
from coordinator.consumer.member import UNREVOKED, Holding, MemberState, Profile


def check_group(group: ConsumerGroup | None, classic: Group | None) -> None:
    if group is None:
        return
    assert classic is None, "an id belongs to groups of both types"
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
            assert member.revocation is None
    assert holders == group.holders
    assert group.target_epoch <= group.epoch
    assert group.members or group.target_epoch == group.epoch, "the target of an empty group lags"
    assert group.targets.keys() <= group.members.keys()
    assert group.static_members == {m.profile.instance_id: m.id for m in group.members.values() if m.profile.instance_id is not None}
    assert group.resolved.keys() <= group.expression_counts.keys(), "an expression is kept that no member has"


def stored_state(group: ConsumerGroup) -> tuple[object, ...]:
    """Everything that the records of the group say."""
    members: dict[str, tuple[Profile, Holding, MemberState]] = {id: (m.profile, m.holding, m.holding.state) for id, m in group.members.items()}
    counts = group.topic_counts, group.expression_counts, group.assignor_votes, group.kept_bytes
    offsets = {(topic, partition): value for topic, partition, value in group.all_offsets()}
    epochs = group.epoch, group.hash, group.target_epoch, group.target_ms
    targets = {id: [(topic_id, list(partitions)) for topic_id, partitions in target.items()] for id, target in group.targets.items()}
    return epochs, members, targets, group.static_members, group.holders, group.resolved, counts, offsets


def check_replay(shard: Shard, log: Sequence[Fact], now: int, wall: int) -> None:
    """The log says what the memory does; a log that was compacted too."""
    live = {id: stored_state(group) for id, group in shard.consumers.groups.items()}
    for facts in (list(log), compacted(log)):
        other = Shard(shard._config, lambda: "nobody")
        other.clear()
        other.replay(facts)
        for _ in other.open_groups(lambda: (now, wall)):
            pass
        replayed = {id: stored_state(group) for id, group in other.consumers.groups.items()}
        assert replayed == live, f"{replayed}\nin the log, but in memory\n{live}"
        classic = {id for id, group in shard.groups.items() if group.last_record is not None or any(True for _ in group.all_offsets())}
        assert classic <= other.groups.keys() <= shard.groups.keys()  # one whose last offset was deleted has no record


def compacted(log: Sequence[Fact]) -> list[Fact]:
    """The newest record of each key, without tombstones, in the order of the log."""
    newest = {key: number for number, (key, _) in enumerate(log)}
    return [(key, value) for number, (key, value) in enumerate(log) if newest[key] == number and value is not None]
