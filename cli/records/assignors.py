"""Kafka's range and round robin assignors, for when this member leads its group.

Any member of a group may be its leader, and two leaders in a row must not shuffle seats for nothing. So these agree with
the Java client's to the partition: members in the same order, the larger shares to the first ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

Assignment = dict[str, dict[str, list[int]]]  # member id -> topic -> partitions


class Subscriber(NamedTuple):
    member_id: str
    instance_id: str | None
    topics: Sequence[str]


def seating_order(subscriber: Subscriber) -> tuple[bool, str]:
    """Static members first, by their instance ids, which outlive a restart; then the others by their member ids."""
    if subscriber.instance_id is not None:
        return False, subscriber.instance_id
    return True, subscriber.member_id


def assign_ranges(subscribers: Sequence[Subscriber], partitions: Mapping[str, int]) -> Assignment:
    """Of each topic one run of partitions for each of its subscribers; the first ones get one more if they do not divide evenly."""
    assignment: Assignment = {subscriber.member_id: {} for subscriber in subscribers}
    for topic in sorted({topic for subscriber in subscribers for topic in subscriber.topics}):
        takers = sorted((subscriber for subscriber in subscribers if topic in subscriber.topics), key=seating_order)
        share, more = divmod(partitions.get(topic, 0), len(takers))
        at = 0
        for place, taker in enumerate(takers):
            end = at + share + (place < more)
            if end > at:
                assignment[taker.member_id][topic] = list(range(at, end))
            at = end
    return assignment


def assign_round_robin(subscribers: Sequence[Subscriber], partitions: Mapping[str, int]) -> Assignment:
    """Round robin: give each partition to the next member that is subscribed to its topic."""
    assignment: Assignment = {subscriber.member_id: {} for subscriber in subscribers}
    circle = sorted(subscribers, key=seating_order)
    at = 0
    for topic in sorted({topic for subscriber in subscribers for topic in subscriber.topics}):
        for partition in range(partitions.get(topic, 0)):
            while topic not in circle[at % len(circle)].topics:
                at += 1
            assignment[circle[at % len(circle)].member_id].setdefault(topic, []).append(partition)
            at += 1
    return assignment


ASSIGNORS: Final = {"range": assign_ranges, "roundrobin": assign_round_robin}
