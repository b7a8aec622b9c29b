"""The cluster as clients see it: brokers and topics."""

from __future__ import annotations

from typing import NamedTuple


class Broker(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None


class PartitionInfo(NamedTuple):
    leader: int  # a broker's id; -1: none at the moment
    epoch: int  # the leader's; -1: the cluster does not say
    replicas: list[int]
    isr: list[int]
    error: int


class TopicInfo(NamedTuple):
    id: bytes | None  # None: the cluster has no ids of topics (before Kafka 2.8)
    internal: bool
    error: int
    partitions: dict[int, PartitionInfo]
