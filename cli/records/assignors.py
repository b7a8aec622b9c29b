"""Kafka's range and round robin assignors, for a member that leads its group.

Any member may become the leader, and a change of leader must not move partitions. So these assignors give exactly the assignments of the
Java client: members are in the same order, and the first ones get the larger shares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

Assignment = dict[str, dict[str, list[int]]]  # member id -> topic -> partitions


class Subscriber(NamedTuple):
    member_id: str
    instance_id: str | None
    topics: Sequence[str]


def member_order(subscriber: Subscriber) -> tuple[bool, str]:
    """Static members first, by instance id, which survives a restart; then dynamic members by member id."""
    if subscriber.instance_id is not None:
        return False, subscriber.instance_id
    return True, subscriber.member_id


def assign_ranges(subscribers: Sequence[Subscriber], partitions: Mapping[str, int]) -> Assignment:
    """Divide the partitions of each topic into ranges of equal size. The first subscribers get one partition of the remainder each."""
    assignment: Assignment = {subscriber.member_id: {} for subscriber in subscribers}
    for topic in sorted({topic for subscriber in subscribers for topic in subscriber.topics}):
        topic_subscribers = sorted((subscriber for subscriber in subscribers if topic in subscriber.topics), key=member_order)
        share, remainder = divmod(partitions.get(topic, 0), len(topic_subscribers))
        at = 0
        for number, subscriber in enumerate(topic_subscribers):
            end = at + share + (number < remainder)
            if end > at:
                assignment[subscriber.member_id][topic] = list(range(at, end))
            at = end
    return assignment


def assign_round_robin(subscribers: Sequence[Subscriber], partitions: Mapping[str, int]) -> Assignment:
    """Give each partition, in the order of topics and numbers, to the next member in turn that subscribes to the topic."""
    assignment: Assignment = {subscriber.member_id: {} for subscriber in subscribers}
    circle = sorted(subscribers, key=member_order)
    at = 0
    for topic in sorted({topic for subscriber in subscribers for topic in subscriber.topics}):
        for partition in range(partitions.get(topic, 0)):
            while topic not in circle[at % len(circle)].topics:
                at += 1
            assignment[circle[at % len(circle)].member_id].setdefault(topic, []).append(partition)
            at += 1
    return assignment


ASSIGNORS: Final = {"range": assign_ranges, "roundrobin": assign_round_robin}
