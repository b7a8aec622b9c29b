"""What a member of the classic protocol says in its JoinGroup, and hears in its SyncGroup: a subscription and an assignment in Kafka's own format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from coordinator.consumer.calls import Partitions
from coordinator.consumer.member import Held
from coordinator.consumer.topics import TopicsView
from protocol.errors import ProtocolError
from protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolAssignmentTopicPartition
from protocol.records import embedded_version, read_assignment, read_subscription, with_version


class Subscription(NamedTuple):
    """The topics that a member reads, and the partitions that it owns: none if its version has no field for them."""

    topics: tuple[str, ...]
    owned: Partitions
    rack_id: str | None


def subscription_of(metadata: bytes, topics: TopicsView) -> Subscription | None:
    """None: it cannot be read. Partitions of topics that do not exist are left out."""
    try:
        read = read_subscription(metadata)
    except ProtocolError:
        return None
    owned = {topic.id: part.partitions for part in read.owned_partitions if (topic := topics.by_name.get(part.topic)) is not None}
    return Subscription(tuple(sorted(set(read.topics))), owned, read.rack_id or None)


def assignment_bytes(partitions: Mapping[bytes, Iterable[int]], topics: TopicsView, metadata: bytes) -> bytes:
    """The assignment, in the version of this subscription. Partitions of topics that do not exist are left out."""
    parts = [ConsumerProtocolAssignmentTopicPartition(topics.by_id[id].name, sorted(numbers)) for id, numbers in partitions.items() if id in topics.by_id]
    parts.sort(key=lambda part: part.topic)
    return with_version(ConsumerProtocolAssignment(parts), embedded_version(metadata, ConsumerProtocolAssignment.VERSIONS[1]))


def held_of(assignment: bytes, topics: TopicsView, epoch: int) -> Held | None:
    """The partitions of an assignment, held since this epoch; None: it cannot be read, or says more than partitions."""
    if not assignment:
        return {}
    try:
        read = read_assignment(assignment)
    except ProtocolError:
        return None
    if read.user_data:
        return None  # of an assignor of the clients, which would be lost
    held: Held = {}
    for part in read.assigned_partitions:
        topic = topics.by_name.get(part.topic)
        if topic is not None and part.partitions:
            held.setdefault(topic.id, {}).update(dict.fromkeys(part.partitions, epoch))
    return held
