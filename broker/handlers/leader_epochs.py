"""Leader epochs as clients ask for them: is theirs the current one, and where did an older one end (KIP-101, KIP-320)."""

from __future__ import annotations

from typing import Final

from broker.partition import Partition
from protocol.errors import ErrorCode

UNKNOWN: Final = -1


def epoch_error(partition: Partition, current: int) -> int:
    """What is wrong with the leader epoch that a client believes to be the current one."""
    epoch = partition.leader_epoch
    if current == epoch:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if current < epoch else ErrorCode.UNKNOWN_LEADER_EPOCH


def where_ended(partition: Partition, epoch: int) -> tuple[int, int]:
    """The newest epoch that is not above `epoch`, and the offset behind its last record; (-1, -1) where nobody can know.

    The log knows the epochs that it has batches of. The current one has begun all the same, at what is the end.
    """
    log = partition.log
    leader = partition.leader_epoch
    if epoch == UNKNOWN or epoch > leader:
        return UNKNOWN, UNKNOWN
    if epoch == leader:
        return epoch, log.next_offset
    found: tuple[int, int] = log.epoch_end(epoch)
    if found[1] != UNKNOWN:
        return found
    newest = log.epoch_at(log.next_offset)
    return (newest if newest != UNKNOWN else epoch), log.next_offset
