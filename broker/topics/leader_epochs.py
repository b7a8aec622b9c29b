"""Validate the leader epochs in client requests (KIP-320)."""

from __future__ import annotations

from typing import Final

from broker.topics.partition import Partition
from protocol.errors import ErrorCode

UNKNOWN: Final = -1


def partition_error(partition: Partition | None, current: int) -> int:
    """The partition's error or, if it has none, the error for the leader epoch that the client knows (`current`; -1: not in the request)."""
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.error or current == UNKNOWN:
        return partition.error
    return epoch_error(partition, current)


def epoch_error(partition: Partition, current: int) -> int:
    """The error for the leader epoch that a client knows: older than the partition's, or newer."""
    epoch = partition.leader_epoch
    if current == epoch:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if current < epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
