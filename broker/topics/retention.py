"""Periodic maintenance of topic logs: delete and roll old segments, expire producer state, write checkpoints.

Each round visits all partitions in slices, between which the loop runs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

from broker.logging.logs import log
from broker.runtime.contain import Contained, run_contained
from broker.settings.config import Config
from broker.topics.partition import Partition
from broker.topics.partitions import Partitions
from storage import AppendFailed, LogId, RetentionLimits, TopicLog, TopicStore

SLICE_SECONDS = 0.002
PAUSE_SECONDS = 0.005
FIRST_SECONDS_MAX = 30.0  # the first round begins no later, even if the interval is longer (Kafka's log.initial.task.delay.ms)

Job = Callable[[Partition], None]
Logs = dict[LogId, TopicLog]


class PartitionJobLoop:
    """Runs one job for every partition periodically."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        partitions: Partitions,
        interval_ms: int,
        job: Job,
        monotonic: Callable[[], float],
        after: Callable[[], None] | None = None,
    ) -> None:
        self._loop = loop
        self._monotonic = monotonic
        self._partitions = partitions
        self._seconds = interval_ms / 1000
        self._job = job
        self._after_round = after
        self._remaining: Iterator[Partition] = iter(())
        self._timer = loop.call_later(min(self._seconds, FIRST_SECONDS_MAX), Contained(self._begin_round, self._schedule_next))

    def _begin_round(self) -> None:
        self._remaining = iter(self._partitions)
        self._slice()

    def _slice(self) -> None:
        until = self._monotonic() + SLICE_SECONDS
        for partition in self._remaining:
            if not partition.error:
                run_contained(self._job, partition)  # an exception skips only this partition
            if self._monotonic() >= until:
                self._timer = self._loop.call_later(PAUSE_SECONDS, Contained(self._slice, self._schedule_next))
                return
        if self._after_round is not None:
            run_contained(self._after_round)
        self._schedule_next()

    def _schedule_next(self) -> None:
        """Schedule the next round, after a complete round or an exception."""
        self._timer = self._loop.call_later(max(self._seconds, PAUSE_SECONDS), Contained(self._begin_round, self._schedule_next))

    def stop(self) -> None:
        self._timer.cancel()


class Retention:
    """The periodic jobs for the partitions of one store: delete old segments, forget idle producers, and store recovery points and start offsets."""

    def __init__(
        self,
        config: Config,
        partitions: Partitions,
        store: TopicStore,
        loop: asyncio.AbstractEventLoop,
        now: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now`: the wall time for deletion by age, below 0 while that is suspended (`Clock.wall_for_deletion`)."""
        self._store = store
        self._loop = loop
        self._now = now
        self._producer_expiration_ms = config.producer_id_expiration_ms
        self._recovery_point_logs: Logs = {}
        self._start_offset_logs: Logs = {}
        points_ms, starts_ms = config.log_flush_offset_checkpoint_interval_ms, config.log_flush_start_offset_checkpoint_interval_ms
        self._rounds = [
            PartitionJobLoop(loop, partitions, config.log_retention_check_interval_ms, self._apply_retention, monotonic),
            PartitionJobLoop(loop, partitions, config.producer_id_expiration_check_interval_ms, self._expire, monotonic),
            PartitionJobLoop(loop, partitions, points_ms, self._collect_for_recovery_points, monotonic, self._write_recovery_points),
            PartitionJobLoop(loop, partitions, starts_ms, self._add_start_offset, monotonic, self._write_start_offsets),
        ]

    def stop(self) -> None:
        for rounds in self._rounds:
            rounds.stop()

    @property
    def _monotonic_ms(self) -> int:
        return round(self._loop.time() * 1000)

    def _apply_retention(self, partition: Partition) -> None:
        settings = partition.settings
        ages = (settings.retention_ms, settings.retention_bytes) if settings.delete else (-1, -1)
        limits = RetentionLimits(*ages, settings.file_delete_delay_ms)
        try:
            dropped = partition.owned_log.apply_retention(self._now(), self._monotonic_ms, limits)
        except AppendFailed as failure:
            partition.failed(failure)
            return
        except OSError as error:  # a file's age cannot be read
            log.warning("old segments stay", log=str(partition), reason=error.strerror or str(error))
            return
        if dropped:
            log.info("old segments dropped", log=str(partition), segments=dropped, start_offset=partition.start_offset)

    def _expire(self, partition: Partition) -> None:
        partition.producers.expire(self._monotonic_ms, self._producer_expiration_ms)

    # Checkpoints. A round collects logs; their offsets, which may move meanwhile, are read together at its end.

    def _collect_for_recovery_points(self, partition: Partition) -> None:
        self._recovery_point_logs[partition.id] = partition.owned_log

    def _add_start_offset(self, partition: Partition) -> None:
        if partition.start_offset or partition.id in self._store.durable_starts:
            self._start_offset_logs[partition.id] = partition.owned_log

    def _write_recovery_points(self) -> None:
        logs, self._recovery_point_logs = self._recovery_point_logs, {}
        self._store.save_recovery_points({id: owned.durable_offset for id, owned in self._open_logs(logs)}, _log_failure)

    def _write_start_offsets(self) -> None:
        logs, self._start_offset_logs = self._start_offset_logs, {}
        self._store.save_start_offsets({id: owned.records.start_offset for id, owned in self._open_logs(logs)}, _log_failure)

    def _open_logs(self, logs: Logs) -> Iterator[tuple[LogId, TopicLog]]:
        """The collected logs, without those whose topic was deleted meanwhile."""
        return ((id, owned) for id, owned in logs.items() if self._store.served_log(id) is owned)


def _log_failure(failure: Exception | None) -> None:
    if failure is not None:
        log.warning("checkpoints stay as they were", reason=str(failure))
