"""The number of partitions of a topic that a consumer may read."""

from __future__ import annotations

from broker.net.dispatch import Call
from broker.security.authorizer import Authorizer, Operation, topic_allowed
from broker.topics.registry import Topics


def readable_partitions(topics: Topics, authorizer: Authorizer, call: Call, name: str) -> int:
    """The number of partitions; 0 for an unknown topic, -1 if the caller may not read it."""
    if not topic_allowed(authorizer, call, Operation.READ, name):
        return -1
    topic = topics.by_name.get(name)
    return topic.partitions if topic is not None else 0
