"""The storage log of a partition, for tests that bypass the port."""

from __future__ import annotations

from broker.topics.partition import Partition
from storage import Log


def disk_log(partition: Partition) -> Log:
    assert isinstance(partition.log, Log)
    return partition.log
