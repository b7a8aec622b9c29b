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
Seats = dict[str, list[TopicPartition]]  # member id -> its assignment

SUBSCRIPTION_VERSION: Final = 1  # the first version with owned partitions
ASSIGNMENT_VERSION: Final = 1


class Subscriber(NamedTuple):
    member_id: str
    instance_id: str | None
    topics: Sequence[str]
    owned: Sequence[TopicPartition]


def seating_order(one: Subscriber) -> tuple[bool, str]:
    """Static members first, by instance id: it outlives a restart."""
    return one.instance_id is None, one.instance_id or one.member_id


def by_range(subscribers: Sequence[Subscriber], partitions: Mapping[str, int]) -> Seats:
    """Range: each subscriber of a topic gets one run of consecutive partitions."""
    seats: Seats = {one.member_id: [] for one in subscribers}
    for topic in sorted({topic for one in subscribers for topic in one.topics}):
        takers = sorted([one for one in subscribers if topic in one.topics], key=seating_order)
        count = partitions.get(topic, 0)
        for number, taker in enumerate(takers):
            begin, end = count * number // len(takers), count * (number + 1) // len(takers)
            seats[taker.member_id] += [(topic, partition) for partition in range(begin, end)]
    return seats


def sticky(subscribers: Sequence[Subscriber], partitions: Mapping[str, int]) -> Seats:
    """Each member keeps its partitions, up to its share; the rest goes to the members with the fewest."""
    order = sorted(subscribers, key=seating_order)
    seats: Seats = {one.member_id: [] for one in order}
    free = {(topic, number) for topic in {topic for one in order for topic in one.topics} for number in range(partitions.get(topic, 0))}
    share = -(-len(free) // len(order))
    for one in order:
        for place in one.owned:
            if place in free and len(seats[one.member_id]) < share and place[0] in one.topics:
                free.remove(place)
                seats[one.member_id].append(place)
    for place in sorted(free):
        takers = [one.member_id for one in order if place[0] in one.topics]
        if takers:
            seats[min(takers, key=lambda id: len(seats[id]))].append(place)
    return seats


def cooperative(subscribers: Sequence[Subscriber], partitions: Mapping[str, int]) -> Seats:
    """As sticky, but a partition is assigned only after its previous owner has given it up."""
    held = {place: one.member_id for one in subscribers for place in one.owned}
    return {id: [place for place in seats if held.get(place, id) == id] for id, seats in sticky(subscribers, partitions).items()}


Assignor = Callable[[Sequence[Subscriber], Mapping[str, int]], Seats]
ASSIGNORS: Final[dict[str, Assignor]] = {"range": by_range, "sticky": sticky, "cooperative-sticky": cooperative}


def subscription_bytes(topics: Sequence[str], owned: Sequence[TopicPartition]) -> bytes:
    had = [ConsumerProtocolSubscriptionTopicPartition(topic, numbers) for topic, numbers in _by_topic(owned).items()]
    return with_version(ConsumerProtocolSubscription(list(topics), None, had), SUBSCRIPTION_VERSION)


def subscriber(member_id: str, instance_id: str | None, metadata: bytes) -> Subscriber:
    said = read_subscription(metadata)
    owned = [(owned_partition.topic, number) for owned_partition in said.owned_partitions for number in owned_partition.partitions]
    return Subscriber(member_id, instance_id, said.topics, owned)


def assignment_bytes(places: Sequence[TopicPartition]) -> bytes:
    given = [ConsumerProtocolAssignmentTopicPartition(topic, numbers) for topic, numbers in _by_topic(places).items()]
    return with_version(ConsumerProtocolAssignment(given), ASSIGNMENT_VERSION)


def assigned_places(data: bytes) -> list[TopicPartition]:
    return [(assigned_partition.topic, number) for assigned_partition in read_assignment(data).assigned_partitions for number in assigned_partition.partitions] if data else []


def _by_topic(places: Sequence[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        found.setdefault(topic, []).append(partition)
    return found
