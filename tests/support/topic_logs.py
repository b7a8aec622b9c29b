"""The log of a partition as the storage has it, for tests that look behind the port."""

from __future__ import annotations

from broker.topics.partition import Partition
from storage import Log


def disk_log(partition: Partition) -> Log:
    assert isinstance(partition.log, Log)
    return partition.log
