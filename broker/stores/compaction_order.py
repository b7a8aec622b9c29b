"""Which log of a topic is compacted next, by Kafka's rules.

Of each log only what is closed counts, and not what is younger than min.compaction.lag.ms. A log is due when the part
of it that no compaction has seen passes min.cleanable.dirty.ratio, the one with the largest part first; or when
something in that part is older than max.compaction.lag.ms. A look at all logs is done in steps, and finds all that are due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

from storage import AppendFailed, DataDirectory, Log, LogId, Producers, Readable
from storage.swap import Closed

# What one step of a look may cost, in partitions that need no look, of which a millisecond has some thousand.
STEP: Final = 1_000
LOG: Final = 10  # what a log costs besides, and each of its segments one more


class Settings(Protocol):
    """What a topic is compacted by."""

    @property
    def compact(self) -> bool: ...
    @property
    def segment_bytes(self) -> int: ...
    @property
    def delete_retention_ms(self) -> int: ...
    @property
    def min_compaction_lag_ms(self) -> int: ...
    @property
    def max_compaction_lag_ms(self) -> int: ...
    @property
    def min_cleanable_dirty_ratio(self) -> float: ...


class Partition(Protocol):
    """A partition of a topic (`broker.topics.partition`)."""

    error: int
    log: Readable  # a `Log`, where it is in this store
    producers: Producers

    @property
    def id(self) -> LogId: ...
    @property
    def settings(self) -> Settings: ...

    def failed(self, failure: AppendFailed) -> None: ...


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
        self._due: list[Due] = []  # found by the last look, the most urgent one last

    def look(self, now: int, time: float) -> Iterator[None]:
        """Look at all logs, a step at a time; in the end `next_due` knows."""
        known: dict[LogId, Cleaned] = {}  # what is not there any more is forgotten
        found: list[Due] = []
        cost = 0
        for partition in self._partitions():
            cost += 1
            if partition.settings.compact and not partition.error and isinstance(partition.log, Log):
                cleaned = known[partition.id] = self._cleaned(partition, partition.log)
                cost += LOG + cleaned.log.segments
                if cleaned.not_before <= time and cleaned.log.usable:
                    due = _due(partition, cleaned, now)
                    if due is not None:
                        found.append(due)
            if cost >= STEP:
                cost = 0
                yield
        self._known = known
        found.reverse()  # of two that are as urgent the first is cleaned first
        self._due = sorted(found, key=attrgetter("urgency"))

    def _cleaned(self, partition: Partition, log: Log) -> Cleaned:
        cleaned = self._known.get(partition.id)
        if cleaned is None or cleaned.log is not log:
            cleaned = Cleaned(log, self._directory.cleaner_points.get(partition.id, 0))
        return cleaned

    def next_due(self, now: int) -> Due | None:
        """The most urgent of those that the last look found, as it is now; each once."""
        while self._due:
            found = self._due.pop()
            if self.has(found.partition) and found.cleaned.log.usable and found.partition.settings.compact:
                due = _due(found.partition, found.cleaned, now)
                if due is not None:
                    return due
        return None

    def has(self, partition: Partition) -> bool:
        """It is still the one that was looked at: not deleted, not made anew."""
        known = self._known.get(partition.id)
        return known is not None and known.log is partition.log and not partition.error


def _due(partition: Partition, cleaned: Cleaned, now: int) -> Due | None:
    log, settings = cleaned.log, partition.settings
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
