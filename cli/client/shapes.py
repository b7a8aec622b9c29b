"""The cluster as clients see it: brokers and topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

TopicPartition = tuple[str, int]


class Broker(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None


class PartitionInfo(NamedTuple):
    leader: int  # a broker id; -1: none at the moment
    epoch: int  # the leader's; -1: not reported
    replicas: list[int]
    isr: list[int]
    error: int


class TopicInfo(NamedTuple):
    id: bytes | None  # None: a cluster without topic ids (before Kafka 2.8)
    internal: bool
    error: int
    partitions: dict[int, PartitionInfo]


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
    return numbers


def topic_info(topic: Any) -> TopicInfo:
    partitions = {
        entry.partition_index: PartitionInfo(entry.leader_id, entry.leader_epoch, entry.replica_nodes, entry.isr_nodes, entry.error_code)
        for entry in sorted(topic.partitions, key=lambda entry: entry.partition_index)
    }
    return TopicInfo(topic.topic_id if any(topic.topic_id) else None, topic.is_internal, topic.error_code, partitions)
