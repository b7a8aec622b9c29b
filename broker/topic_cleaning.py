"""Which log of a topic is compacted next, by Kafka's rules.

Of each log only what is closed counts, and not what is younger than min.compaction.lag.ms. A log is due when the part
of it that no compaction has seen passes min.cleanable.dirty.ratio, the one with the largest part first; or when
something in that part is older than max.compaction.lag.ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from broker.partition import Partition
from storage import DataDirectory, Log, LogId
from storage.swap import Closed


class Cleaned:
    """What is remembered of a log that was compacted, or should have been."""

    __slots__ = ("clean_to", "failures", "log", "not_before")

    def __init__(self, log: Log, clean_to: int) -> None:
        self.log = log
        self.clean_to = clean_to  # offset up to which no key has two records
        self.failures = 0
        self.not_before = 0.0  # by the loop's time: it failed, and rests


class Due(NamedTuple):
    partition: Partition
    cleaned: Cleaned
    segments: list[Closed]
    end: int  # of the segments
    urgency: float


class TopicLogs:
    """Those of all topics whose cleanup.policy has compact."""

    def __init__(self, partitions: Callable[[], Iterable[Partition]], directory: DataDirectory) -> None:
        self._partitions = partitions
        self._directory = directory
        self._known: dict[LogId, Cleaned] = {}

    def most_urgent(self, now: int, time: float) -> Due | None:
        known = self._known
        self._known = {}  # what is not there any more is forgotten
        best: Due | None = None
        for partition in self._partitions():
            if partition.settings.compact and not partition.error:
                id = partition.id
                cleaned = known.get(id)
                if cleaned is None or cleaned.log is not partition.log:
                    cleaned = Cleaned(partition.log, self._directory.cleaner_points.get(id, 0))
                self._known[id] = cleaned
                if cleaned.not_before <= time and partition.log.usable:
                    due = _due(partition, cleaned, now)
                    if due is not None and (best is None or due.urgency > best.urgency):
                        best = due
        return best

    def has(self, partition: Partition) -> bool:
        """It is still the one that was looked at: not deleted, not made anew."""
        known = self._known.get(partition.id)
        return known is not None and known.log is partition.log and not partition.error


def _due(partition: Partition, cleaned: Cleaned, now: int) -> Due | None:
    log, settings = partition.log, partition.settings
    if cleaned.clean_to > log.last_base:
        cleaned.clean_to = 0  # a crash took the end of the log: what was known of it is not true
    if cleaned.clean_to == log.last_base:
        return None
    if settings.min_compaction_lag_ms > 0:
        segments, end = log.closed_before(now - settings.min_compaction_lag_ms)
    else:
        segments, end = log.closed, log.last_base
    if cleaned.clean_to >= end:
        return None
    whole = sum(segment.size for segment in segments)
    dirty = sum(
        segment.size
        for segment, behind in zip(segments, [*(segment.base for segment in segments[1:]), end], strict=True)
        if behind > cleaned.clean_to
    )
    ratio = dirty / whole if whole else 0.0
    if dirty and (first := log.first_timestamp_since(cleaned.clean_to)) >= 0 and now - first > settings.max_compaction_lag_ms:
        return Due(partition, cleaned, segments, end, 1.0 + ratio)
    return Due(partition, cleaned, segments, end, ratio) if ratio > settings.min_cleanable_dirty_ratio else None
