"""Decode the consumer protocol in group records: subscribed topics and assigned partitions, as `topic-partition`."""

from __future__ import annotations

from functools import lru_cache

from protocol.errors import ProtocolError
from protocol.messages.consumer_offsets import GroupMetadataValue, MemberMetadata
from protocol.records import read_assignment, read_subscription

CONSUMER = "consumer"
SERVER_SIDE = "server-side"  # the protocol of groups whose coordinator assigns; its assignor may follow
CACHE_ENTRIES = 4_096


def topics_of(stored: GroupMetadataValue, member: MemberMetadata) -> tuple[str, ...] | None:
    """The subscribed topics; None if the protocol type is not `consumer`, or the bytes cannot be decoded."""
    return _topics(member.subscription) if stored.protocol_type == CONSUMER else None


def partitions_of(stored: GroupMetadataValue, member: MemberMetadata) -> tuple[str, ...] | None:
    return _partitions(member.assignment) if stored.protocol_type == CONSUMER else None


def assigned(stored: GroupMetadataValue, member: MemberMetadata) -> tuple[tuple[str, int], ...] | None:
    """The assigned partitions as sorted (topic, partition) pairs."""
    return assigned_partitions(member.assignment) if stored.protocol_type == CONSUMER else None


def is_cooperative(protocol: str | None) -> bool:
    """Whether members keep their partitions in a rebalance, except those that move."""
    return protocol is not None and ("cooperative" in protocol or protocol.startswith(SERVER_SIDE))


@lru_cache(CACHE_ENTRIES)
def _topics(subscription: bytes) -> tuple[str, ...] | None:
    try:
        return tuple(sorted(read_subscription(subscription).topics)) if subscription else ()
    except ProtocolError:
        return None


@lru_cache(CACHE_ENTRIES)
def assigned_partitions(assignment: bytes) -> tuple[tuple[str, int], ...] | None:
    """The partitions in an assignment of consumers, sorted; None: it cannot be decoded."""
    try:
        parts = read_assignment(assignment).assigned_partitions if assignment else []
    except ProtocolError:
        return None
    return tuple(sorted((part.topic, number) for part in parts for number in part.partitions))


@lru_cache(CACHE_ENTRIES)
def _partitions(assignment: bytes) -> tuple[str, ...] | None:
    partitions = assigned_partitions(assignment)
    return tuple(f"{topic}-{number}" for topic, number in partitions) if partitions is not None else None
