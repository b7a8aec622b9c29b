"""The target: when it is computed, by which assignor, and for whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from coordinator.consumer.assignors import ASSIGNORS, Assignable
from coordinator.consumer.assignors.java_order import in_text_order
from coordinator.consumer.changes import Resolved, Target
from coordinator.consumer.config import ConsumerConfig
from coordinator.consumer.group import NO_TARGET, ConsumerGroup
from coordinator.consumer.member import Profile
from coordinator.consumer.topics import TopicsView
from coordinator.group_partition import java_hash

BUCKETS: Final = 16  # of Java's table of assignor names


def is_due(group: ConsumerGroup, config: ConsumerConfig, epoch: int, wall: int) -> bool:
    """Whether a target for this epoch is computed now. A new group, or one that nobody was left in, waits for nothing."""
    if epoch <= group.target_epoch:
        return False
    age = wall - group.target_ms
    return not group.target_ms or not 0 <= age < config.assignment_interval_ms  # a time ahead is from a wrong clock


def preferred_assignor(votes: Mapping[str, int], config: ConsumerConfig) -> str:
    """The one that most members ask for. A tie goes to the first in Java's table of names."""
    if not votes:
        return config.assignors[0]
    most = max(votes.values())
    return min((name for name, count in votes.items() if count == most), key=bucket)


def bucket(name: str) -> int:
    code = java_hash(name)
    return (code ^ (code & 0xFFFFFFFF) >> 16) & BUCKETS - 1


def topic_names(profile: Profile, resolved: Mapping[str, Resolved]) -> tuple[str, ...]:
    """What a member reads: by name and by expression. An expression that is not resolved matches nothing yet."""
    matched = resolved.get(profile.expression)
    return profile.topics if matched is None else (*profile.topics, *matched.topics)


def compute(
    group: ConsumerGroup,
    profiles: Iterable[tuple[str, Profile]],
    targets: Mapping[str, Target],
    resolved: Mapping[str, Resolved],
    topics: TopicsView,
    assignor: str,
) -> dict[str, Target]:
    """The new target of each member; the same object if it is that of before. `profiles` are in the order of the coordinator's table."""
    read: dict[tuple[tuple[str, ...], str], frozenset[bytes]] = {}  # by topics and expression, which many members share
    names: set[str] = set()
    members: list[Assignable] = []
    for id, profile in profiles:
        key = (profile.topics, profile.expression)
        ids = read.get(key)
        if ids is None:
            of_member = topic_names(profile, resolved)
            names.update(of_member)
            ids = read[key] = frozenset(topics.ids_of(of_member))
        members.append(Assignable(id, profile.instance_id, ids, existing(targets.get(id, NO_TARGET), topics)))
    ordered = [topic for name in in_text_order(sorted(names)) if (topic := topics.by_name.get(name)) is not None]
    partitions = {topic.id: topic.partitions for topic in ordered}
    assigned = ASSIGNORS[assignor](members, partitions, is_homogeneous(list(read)))
    return {member.member_id: changed_target(member.target, assigned.get(member.member_id, NO_TARGET)) for member in members}


def existing(target: Target, topics: TopicsView) -> Target:
    """Without partitions that the topic does not have in this view: its node may not have heard yet that the topic grew, or a power failure undid it."""
    by_id = topics.by_id
    if all(topic_id not in by_id or not numbers or max(numbers) < by_id[topic_id].partitions for topic_id, numbers in target.items()):
        return target
    return {
        topic_id: [number for number in numbers if topic_id not in by_id or number < by_id[topic_id].partitions] for topic_id, numbers in target.items()
    }


def is_homogeneous(subscriptions: list[tuple[tuple[str, ...], str]]) -> bool:
    """Whether all members name the same topics, those that do not exist included, or all have one expression and name none."""
    if len(subscriptions) != 1:
        return False
    topics, expression = subscriptions[0]
    return not topics or not expression


def changed_target(before: Target, after: Target) -> Target:
    """The target of before if it has the same partitions, whatever their order."""
    if after is before or (after.keys() == before.keys() and all(set(after[topic_id]) == set(before[topic_id]) for topic_id in after)):
        return before
    return after
