"""Assignors of a group leader (range, sticky, cooperative), and the bytes of the consumer protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from protocol.records import read_assignment, read_subscription, with_version

TopicPartition = tuple[str, int]
Assignment = dict[str, list[TopicPartition]]  # member id -> its assignment

SUBSCRIPTION_VERSION: Final = 1  # the first version with owned partitions
ASSIGNMENT_VERSION: Final = 1


class Subscriber(NamedTuple):
    member_id: str
    instance_id: str | None
    topics: Sequence[str]
    owned: Sequence[TopicPartition]


def member_order(subscriber: Subscriber) -> tuple[bool, str]:
    """Static members first, by instance id, which survives a restart."""
    return subscriber.instance_id is None, subscriber.instance_id or subscriber.member_id


def by_range(subscribers: Sequence[Subscriber], partitions: Mapping[str, int]) -> Assignment:
    """Range: each subscriber of a topic gets one run of consecutive partitions."""
    assignment: Assignment = {subscriber.member_id: [] for subscriber in subscribers}
    for topic in sorted({topic for subscriber in subscribers for topic in subscriber.topics}):
        topic_subscribers = sorted([subscriber for subscriber in subscribers if topic in subscriber.topics], key=member_order)
        count = partitions.get(topic, 0)
        for number, topic_subscriber in enumerate(topic_subscribers):
            begin, end = count * number // len(topic_subscribers), count * (number + 1) // len(topic_subscribers)
            assignment[topic_subscriber.member_id] += [(topic, partition) for partition in range(begin, end)]
    return assignment


def sticky(subscribers: Sequence[Subscriber], partitions: Mapping[str, int]) -> Assignment:
    """Each member keeps its partitions, up to its share; the others go to the members with the fewest."""
    order = sorted(subscribers, key=member_order)
    assignment: Assignment = {subscriber.member_id: [] for subscriber in order}
    free = {(topic, number) for topic in {topic for subscriber in order for topic in subscriber.topics} for number in range(partitions.get(topic, 0))}
    share = -(-len(free) // len(order))
    for subscriber in order:
        for place in subscriber.owned:
            if place in free and len(assignment[subscriber.member_id]) < share and place[0] in subscriber.topics:
                free.remove(place)
                assignment[subscriber.member_id].append(place)
    for place in sorted(free):
        topic_subscribers = [subscriber.member_id for subscriber in order if place[0] in subscriber.topics]
        if topic_subscribers:
            assignment[min(topic_subscribers, key=lambda id: len(assignment[id]))].append(place)
    return assignment


def cooperative(subscribers: Sequence[Subscriber], partitions: Mapping[str, int]) -> Assignment:
    """Like sticky, but a partition is assigned only after its previous owner has revoked it."""
    owners = {place: subscriber.member_id for subscriber in subscribers for place in subscriber.owned}
    return {id: [place for place in assigned if owners.get(place, id) == id] for id, assigned in sticky(subscribers, partitions).items()}


Assignor = Callable[[Sequence[Subscriber], Mapping[str, int]], Assignment]
ASSIGNORS: Final[dict[str, Assignor]] = {"range": by_range, "sticky": sticky, "cooperative-sticky": cooperative}


def subscription_bytes(topics: Sequence[str], owned: Sequence[TopicPartition]) -> bytes:
    owned_partitions = [ConsumerProtocolSubscriptionTopicPartition(topic, numbers) for topic, numbers in _by_topic(owned).items()]
    return with_version(ConsumerProtocolSubscription(list(topics), None, owned_partitions), SUBSCRIPTION_VERSION)


def subscriber(member_id: str, instance_id: str | None, metadata: bytes) -> Subscriber:
    subscription = read_subscription(metadata)
    owned = [(owned_partition.topic, number) for owned_partition in subscription.owned_partitions for number in owned_partition.partitions]
    return Subscriber(member_id, instance_id, subscription.topics, owned)


def assignment_bytes(partitions: Sequence[TopicPartition]) -> bytes:
    topics = [ConsumerProtocolAssignmentTopicPartition(topic, numbers) for topic, numbers in _by_topic(partitions).items()]
    return with_version(ConsumerProtocolAssignment(topics), ASSIGNMENT_VERSION)


def assigned_partitions(data: bytes) -> list[TopicPartition]:
    return [(assigned_partition.topic, number) for assigned_partition in read_assignment(data).assigned_partitions for number in assigned_partition.partitions] if data else []


def _by_topic(partitions: Sequence[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return by_topic
