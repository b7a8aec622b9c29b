"""Checks shared by the APIs that create and change topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from broker.api.refused import Refused
from broker.groups.journal import Journal
from broker.topics.registry import TopicRegistry
from protocol.errors import ErrorCode

PARTITIONS_PER_REQUEST_MAX = 10_000  # Kafka's limit
TOO_MANY_PARTITIONS = "Excessively large number of partitions per request."
DUPLICATE_TOPIC = "Duplicate topic name."
REGISTRY_SUSPENDED = "The topic registry cannot be written at present."


def repeated(names: Iterable[str]) -> dict[str, None]:
    """The names that occur more than once, in order."""
    return {name: None for name, times in Counter(names).items() if times > 1}


def check_writable(registry_journal: Journal) -> None:
    if not registry_journal.writable:
        raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, REGISTRY_SUSPENDED)


def check_partition_limit(topics: TopicRegistry, more: int, partitions_max: int) -> None:
    if topics.partition_count + more > partitions_max:
        raise Refused(
            ErrorCode.POLICY_VIOLATION,
            f"{topics.partition_count} partitions exist, and {more} more would exceed {partitions_max} (partitions.max)",
        )
