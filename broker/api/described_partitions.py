"""Partitions as clients are told of them, opened or not."""

from __future__ import annotations

from broker.internal_topics import CONSUMER_OFFSETS
from broker.topics.partition import Partition
from broker.topics.partitions import Partitions
from broker.topics.registry import Topic


def described_partitions(partitions: Partitions, topic: Topic) -> list[Partition]:
    """All of a topic. None is opened for that, but what groups have opened of the offsets topic is looked up."""
    found = partitions.of(topic)
    if topic.name == CONSUMER_OFFSETS:
        for partition in found:
            if not partition.opened:
                partitions.find(topic.name, partition.index)
    return found


def described_epoch(partitions: Partitions, partition: Partition) -> int:
    """The leader epoch, -1 while it is not known; a log that is still to be made begins with 0."""
    if not partition.opened and not partition.topic.internal and partitions.has_nothing(partition):
        return 0
    return partition.leader_epoch
