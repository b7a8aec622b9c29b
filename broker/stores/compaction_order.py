"""Choose the topic log to compact next, by Kafka's rules.

Only closed segments older than min.compaction.lag.ms count. A log is due when its dirty ratio passes
min.cleanable.dirty.ratio (highest ratio first), or when a dirty record is older than max.compaction.lag.ms.
All logs are scanned in steps, between which the event loop runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

from storage import AppendFailed, DataDirectory, Log, LogId, Producers, Readable
from storage.swap import ClosedSegment

# A scan pauses when it has cost this much. Skipping a partition costs 1, about a microsecond.
STEP_COST: Final = 1_000
LOG_COST: Final = 10  # of a log with compaction; each segment adds 1


class Settings(Protocol):
    """The compaction settings of a topic."""

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
    log: Readable  # a `Log` if it is in this store
    producers: Producers

    @property
    def id(self) -> LogId: ...
    @property
    def settings(self) -> Settings: ...

    def failed(self, failure: AppendFailed) -> None: ...


class CompactionState:
    """The compaction state of one topic log."""

    __slots__ = ("clean_to", "failures", "log", "not_before")

    def __init__(self, log: Log, clean_to: int) -> None:
        self.log = log
        self.clean_to = clean_to  # offset up to which no key has two records
        self.failures = 0
        self.not_before = 0.0  # loop time of the next attempt after a failure


class Due(NamedTuple):
    partition: Partition
    state: CompactionState
    segments: list[ClosedSegment]
    end: int  # end offset of the segments
    urgency: float


class TopicLogs:
    """The logs of all topics whose cleanup.policy has compact."""

    def __init__(self, partitions: Callable[[], Iterable[Partition]], directory: DataDirectory) -> None:
        self._partitions = partitions
        self._directory = directory
        self._known: dict[LogId, CompactionState] = {}
        self._due: list[Due] = []  # found by the last scan, the most urgent last

    def scan(self, now: int, time: float) -> Iterator[None]:
        """Scan all logs, one step per iteration, for `next_due`."""
        known: dict[LogId, CompactionState] = {}  # without logs that no longer exist
        due_logs: list[Due] = []
        cost = 0
        for partition in self._partitions():
            cost += 1
            if partition.settings.compact and not partition.error and isinstance(partition.log, Log):
                state = known[partition.id] = self._state_of(partition, partition.log)
                cost += LOG_COST + state.log.segment_count
                if state.not_before <= time and state.log.usable:
                    due = _due(partition, state, now)
                    if due is not None:
                        due_logs.append(due)
            if cost >= STEP_COST:
                cost = 0
                yield
        self._known = known
        due_logs.reverse()  # equally urgent logs are compacted in the order of the scan
        self._due = sorted(due_logs, key=attrgetter("urgency"))

    def _state_of(self, partition: Partition, log: Log) -> CompactionState:
        state = self._known.get(partition.id)
        if state is None or state.log is not log:
            state = CompactionState(log, self._directory.cleaner_points.get(partition.id, 0))
        return state

    def next_due(self, now: int) -> Due | None:
        """Pop the most urgent log that the last scan found and that is still due."""
        while self._due:
            scanned = self._due.pop()
            if self.has(scanned.partition) and scanned.state.log.usable and scanned.partition.settings.compact:
                due = _due(scanned.partition, scanned.state, now)
                if due is not None:
                    return due
        return None

    def has(self, partition: Partition) -> bool:
        """Whether the partition still has the log that was scanned (not deleted or recreated)."""
        known = self._known.get(partition.id)
        return known is not None and known.log is partition.log and not partition.error


def _due(partition: Partition, state: CompactionState, now: int) -> Due | None:
    log, settings = state.log, partition.settings
    if state.clean_to > log.active_base:
        state.clean_to = 0  # a crash cut the log below the checkpoint, which is no longer valid
    if state.clean_to == log.active_base:
        return None
    if settings.min_compaction_lag_ms > 0:
        segments, end = log.closed_before(now - settings.min_compaction_lag_ms)
    else:
        segments, end = log.closed_segments, log.active_base
    if state.clean_to >= end:
        return None
    ends = [*(segment.base for segment in segments[1:]), end]
    total = sum(segment.size for segment in segments)
    dirty = sum(segment.size for segment, segment_end in zip(segments, ends, strict=True) if segment_end > state.clean_to)
    ratio = dirty / total if total else 0.0
    if dirty and (first := log.first_timestamp_since(state.clean_to)) >= 0 and now - first > settings.max_compaction_lag_ms:
        return Due(partition, state, segments, end, 1.0 + ratio)
    return Due(partition, state, segments, end, ratio) if ratio > settings.min_cleanable_dirty_ratio else None
