"""Partitions and leader epochs for replies that describe topics."""

from __future__ import annotations

from broker.internal_topics import CONSUMER_OFFSETS
from broker.topics.leaders import Leaders
from broker.topics.partition import Partition
from broker.topics.partitions import Partitions
from broker.topics.registry import Topic


def described_partitions(partitions: Partitions, topic: Topic) -> list[Partition]:
    """All partitions of a topic. Does not open logs, but finds those of the offsets topic that shards have opened."""
    found = partitions.of(topic)
    if topic.name == CONSUMER_OFFSETS:
        for partition in found:
            if not partition.opened:
                partitions.find(topic.name, partition.index)
    return found


def described_epoch(partitions: Partitions, leaders: Leaders | None, partition: Partition) -> int:
    """The leader epoch; -1 while it is unknown, 0 for a partition that was never written.

    Clients ignore what they hear with an epoch older than the one they know, so all nodes name the epoch at which a log was taken.
    """
    if leaders is not None:
        return leaders.leader_epoch(partition.id)
    if not partition.opened and not partition.topic.internal and partitions.has_nothing(partition):
        return 0
    return partition.leader_epoch
