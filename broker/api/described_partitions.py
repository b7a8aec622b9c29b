"""Partitions and leader epochs for replies that describe topics."""

from __future__ import annotations

from broker.internal_topics import CONSUMER_OFFSETS
from broker.topics.leaders import Leaders
from broker.topics.partition import Partition
from broker.topics.partitions import Partitions
from broker.topics.registry import Topic


def described_partitions(partitions: Partitions, topic: Topic) -> list[Partition]:
    """All partitions of a topic. Opens no log, but finds the logs of __consumer_offsets that shards have opened."""
    described = partitions.of_topic(topic)
    if topic.name == CONSUMER_OFFSETS:
        for partition in described:
            if not partition.opened:
                partitions.find(topic.name, partition.index)
    return described


def described_epoch(partitions: Partitions, leaders: Leaders | None, partition: Partition) -> int:
    """The leader epoch; -1 while it is unknown. On a single broker 0 for a partition that was never written.

    Clients ignore metadata with an older epoch than they know. So all nodes of a cluster return the epoch at which the owner acquired the log.
    """
    if leaders is not None:
        return leaders.leader_epoch(partition.id)
    if not partition.opened and not partition.topic.internal and partitions.was_never_written(partition):
        return 0
    return partition.leader_epoch
