"""Leader epochs as clients ask for them: is theirs the current one, and where did an older one end (KIP-101, KIP-320)."""

from __future__ import annotations

from typing import Final

from broker.topics.partition import Partition
from protocol.errors import ErrorCode

UNKNOWN: Final = -1


def partition_error(partition: Partition | None, current: int) -> int:
    """What is wrong with a partition or, where the client names one, with the leader epoch that it believes to be the current one."""
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.error or current == UNKNOWN:
        return partition.error
    return epoch_error(partition, current)


def epoch_error(partition: Partition, current: int) -> int:
    """What is wrong with the leader epoch that a client believes to be the current one."""
    epoch = partition.leader_epoch
    if current == epoch:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if current < epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
