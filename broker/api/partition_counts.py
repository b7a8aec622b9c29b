"""The number of partitions of a topic that a consumer may read."""

from __future__ import annotations

from broker.net.dispatch import Call
from broker.security.authorizer import Authorizer, Operation, topic_allowed
from broker.topics.registry import TopicRegistry


def readable_partition_count(topics: TopicRegistry, authorizer: Authorizer, call: Call, name: str) -> int:
    """The number of partitions; 0 for an unknown topic, -1 if the caller may not read it."""
    if not topic_allowed(authorizer, call, Operation.READ, name):
        return -1
    topic = topics.by_name.get(name)
    return topic.partition_count if topic is not None else 0
