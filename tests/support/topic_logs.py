"""Access to the `storage.Log` behind a partition, for tests that need more than the port `TopicLog`."""

from __future__ import annotations

from broker.topics.partition import Partition
from storage import Log


def disk_log(partition: Partition) -> Log:
    assert isinstance(partition.log, Log)
    return partition.log
