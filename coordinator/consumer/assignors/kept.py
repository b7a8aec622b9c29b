"""What a member is assigned while its target changes, in the order of Kafka's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coordinator.consumer.assignors.java_order import buckets_of, copied_buckets, in_id_order, in_number_order


def in_topic_order(target: Mapping[bytes, Sequence[int]]) -> Sequence[bytes]:
    """The topics of a target in the order of a HashMap."""
    topics = list(target)
    return topics if len(topics) < 2 else in_id_order(topics, buckets_of(len(topics)))


def set_order(partitions: Sequence[int]) -> Sequence[int]:
    """Partitions in the order of a HashSet that was made of them."""
    return in_number_order(partitions, copied_buckets(len(partitions)))


def with_more(
    kept: Mapping[bytes, Sequence[int]], more: Sequence[tuple[bytes, Sequence[int]]], topics_before: int
) -> dict[bytes, Sequence[int]]:
    """A copy with more partitions. `topics_before`: of the target that `kept` is or was."""
    changed: dict[bytes, Sequence[int]] = {topic: set_order(kept[topic]) for topic in in_topic_order(kept)}
    new: dict[bytes, Sequence[int]] = {}
    last_is_new = False  # whether the last partition brought a new topic
    for topic, partitions in more:
        before = changed.get(topic)
        last_is_new = before is None and topic not in new and len(partitions) == 1
        if before is not None:
            changed[topic] = in_number_order([*before, *partitions], copied_buckets(len(before)))
        else:
            new[topic] = in_number_order([*new.get(topic, ()), *partitions])
    if len(changed) + len(new) < 2:
        return changed or new
    # Java's computeIfAbsent, once for each partition, puts a new topic in front of its bucket, and enlarges the table at the next call only.
    first = room_for(topics_before)
    buckets = max(buckets_of(topics_before, first), buckets_of(len(changed) + len(new) - last_is_new, first))
    changed = {**dict(reversed(new.items())), **changed}
    return {topic: changed[topic] for topic in in_id_order(list(changed), buckets)}


def room_for(topics: int) -> int:
    """The first buckets of a HashMap with room for so many topics."""
    return 1 << max(topics - 1, 0).bit_length()


def copied(kept: dict[bytes, Sequence[int]], topics_before: int) -> dict[bytes, Sequence[int]]:
    """In the order of a HashMap that was copied from a target of `topics_before` topics, of which these are left."""
    if len(kept) < 2:
        return kept
    return {topic: kept[topic] for topic in in_id_order(list(kept), buckets_of(topics_before, room_for(topics_before)))}
