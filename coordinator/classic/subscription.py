"""The topics that consumers subscribe to. Their metadata is read as version 0, whatever version it has, as in Kafka."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")

# An encoded assignment without partitions. kafka-python, aiokafka and Java fail on empty bytes.
EMPTY_ASSIGNMENT: Final = bytes.fromhex("0000 00000000 ffffffff")


def topics_of(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members; None if any metadata cannot be read."""
    all_topics: set[str] = set()
    for metadata in subscriptions:
        topics = subscribed_topics(metadata)
        if topics is None:
            return None
        all_topics.update(topics)
    return frozenset(all_topics)


def topics_differ(old: bytes, new: bytes) -> bool:
    """Whether two subscriptions name different sets of topics. False if one cannot be read.

    The bytes may differ for the same topics: cooperative-sticky's user data changes with each restart.
    """
    if old == new:
        return False
    before, after = subscribed_topics(old), subscribed_topics(new)
    return before is not None and after is not None and set(before) != set(after)


def topics_match(first: bytes, second: bytes) -> bool:
    """Whether two subscriptions name the same set of topics. False if the bytes differ and one subscription cannot be read."""
    if first == second:
        return True
    topics, other = subscribed_topics(first), subscribed_topics(second)
    return topics is not None and other is not None and set(topics) == set(other)


def subscribed_topics(metadata: bytes) -> list[str] | None:
    """The topics; None if version, topics or user data are incomplete. Later fields are ignored."""
    size = len(metadata)
    if size < 6:
        return None
    (count,) = _INT32.unpack_from(metadata, 2)
    if count < 0:
        return None
    at = 6
    topics: list[str] = []
    for _ in range(count):
        if at + 2 > size:
            return None
        (length,) = _INT16.unpack_from(metadata, at)
        at += 2
        if length < 0:
            return None
        topics.append(metadata[at : at + length].decode("utf-8", "replace"))
        at += length
    if at + 4 > size:
        return None
    (user_data,) = _INT32.unpack_from(metadata, at)
    if user_data < -1 or at + 4 + user_data > size:
        return None
    return topics
