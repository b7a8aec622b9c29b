"""What topics' logs need now and then, while nobody waits: old segments go, old ones are closed, producers that fell silent
are forgotten, and checkpoints are written.

Each round goes over all partitions in slices, between which the loop goes on. Files of dropped segments are removed in
another thread, some time later.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial

from broker.logging.logs import get_logger
from broker.runtime.contain import Contained, run
from broker.settings.config import Config
from broker.stores.local import LocalStore
from broker.stores.owned import LocalLog
from broker.topics.partition import Partition
from broker.topics.partitions import Partitions
from storage import AppendFailed, LogId
from storage.swap import remove_deleted

log = get_logger("broker.retention")

SLICE_SECONDS = 0.002
PAUSE_SECONDS = 0.005
USE_NOTED_SECONDS = 15.0  # after a kill and a start within a minute the clock is as trusted as it was
FIRST_SECONDS_MAX = 30.0  # Kafka's log.initial.task.delay.ms: the first round does not wait for a long interval

Job = Callable[[Partition], None]
Noted = dict[LogId, LocalLog]


class Rounds:
    """One job, done for every partition once in a while."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, partitions: Partitions, interval_ms: int, job: Job, after: Callable[[], None] | None = None
    ) -> None:
        self._loop = loop
        self._partitions = partitions
        self._seconds = interval_ms / 1000
        self._job = job
        self._after = after
        self._left: Iterator[Partition] = iter(())
        self._timer = loop.call_later(min(self._seconds, FIRST_SECONDS_MAX), Contained(self._begin, self._next))

    def _begin(self) -> None:
        self._left = iter(self._partitions)
        self._slice()

    def _slice(self) -> None:
        until = time.monotonic() + SLICE_SECONDS
        for partition in self._left:
            if not partition.error:
                run(self._job, partition)  # one that raises is passed over
            if time.monotonic() >= until:
                self._timer = self._loop.call_later(PAUSE_SECONDS, Contained(self._slice, self._next))
                return
        if self._after is not None:
            run(self._after)
        self._next()

    def _next(self) -> None:
        """The round is over, or an exception of ours ended it: the next one comes at its time."""
        self._timer = self._loop.call_later(max(self._seconds, PAUSE_SECONDS), Contained(self._begin, self._next))

    def stop(self) -> None:
        self._timer.cancel()


class Retention:
    """All of it, for the partitions of one store."""

    def __init__(
        self,
        config: Config,
        partitions: Partitions,
        store: LocalStore,
        loop: asyncio.AbstractEventLoop,
        now: Callable[[], int],
    ) -> None:
        """`now`: the wall time by which old data may be deleted, below 0 while none may (`Clock.deletion_ms`)."""
        self._store = store
        self._loop = loop
        self._now = now
        self._producer_expiration_ms = config.producer_id_expiration_ms
        self._points: Noted = {}
        self._starts: Noted = {}
        points_ms, starts_ms = config.log_flush_offset_checkpoint_interval_ms, config.log_flush_start_offset_checkpoint_interval_ms
        self._rounds = [
            Rounds(loop, partitions, config.log_retention_check_interval_ms, self._keep),
            Rounds(loop, partitions, config.producer_id_expiration_check_interval_ms, self._expire),
            Rounds(loop, partitions, points_ms, self._note_point, self._write_points),
            Rounds(loop, partitions, starts_ms, self._note_start, self._write_starts),
        ]
        self._note_use()

    def stop(self) -> None:
        for rounds in self._rounds:
            rounds.stop()
        self._timer.cancel()
        now = self._now()
        if now >= 0:
            with contextlib.suppress(OSError):
                self._store.directory.note_use(now)

    @property
    def _monotonic_ms(self) -> int:
        return round(self._loop.time() * 1000)

    def _keep(self, partition: Partition) -> None:
        settings, kept = partition.settings, partition.log
        last_base = kept.last_base
        try:
            now, monotonic = self._now(), self._monotonic_ms
            kept.roll_if_old(monotonic, kept.segment_ms)
            limits = (settings.retention_ms if now >= 0 else -1, settings.retention_bytes) if settings.delete else (-1, -1)
            bases = kept.retain(now, monotonic, *limits)
        except AppendFailed as failure:
            partition.failed(failure)
            return
        except OSError as error:  # asking the disk for the age of a file
            log.warning("old segments stay", log=str(partition), reason=error.strerror or str(error))
            return
        if kept.last_base != last_base:
            partition.rolled()
        if bases:
            log.info("old segments dropped", log=str(partition), segments=len(bases), start_offset=kept.start_offset)
            self._loop.call_later(settings.file_delete_delay_ms / 1000, Contained(self._remove), partition.owned, bases)

    def _remove(self, owned: LocalLog, bases: list[int]) -> None:
        """Unless the files went with their topic: then the folder of that name is another's."""
        if self._store.owned(owned.id) is not owned:
            return
        kept = owned.log
        kept.at_work += 1

        def removed(result: object) -> None:
            kept.at_work -= 1

        self._store.topic_workers.submit(partial(self._remove_files, kept.folder, bases), removed)

    def _remove_files(self, folder: str, bases: list[int]) -> None:
        """In a worker thread. What is not there any more went with a compaction."""
        for base in bases:
            with contextlib.suppress(OSError):
                remove_deleted(self._store.disk, folder, [base])

    def _expire(self, partition: Partition) -> None:
        partition.producers.expire(self._monotonic_ms, self._producer_expiration_ms)

    # When the directory was in use, by a clock that counts: the next start compares.

    def _note_use(self) -> None:
        self._timer = self._loop.call_later(USE_NOTED_SECONDS, Contained(self._note_use))
        now = self._now()
        if now >= 0:
            self._store.clerk.submit(partial(self._store.directory.note_use, now), _nobody_waits)

    # Checkpoints. A round only collects logs; their offsets are read when it ends, in one go, for they move on meanwhile.

    def _note_point(self, partition: Partition) -> None:
        self._points[partition.id] = partition.owned

    def _note_start(self, partition: Partition) -> None:
        if partition.start_offset or partition.id in self._store.directory.log_starts:
            self._starts[partition.id] = partition.owned

    def _write_points(self) -> None:
        points, self._points = self._points, {}
        self._write(self._store.directory.checkpoint, {id: owned.log.flushed_offset for id, owned in self._still_open(points)})

    def _write_starts(self) -> None:
        starts, self._starts = self._starts, {}
        self._write(self._store.directory.checkpoint_starts, {id: owned.log.start_offset for id, owned in self._still_open(starts)})

    def _still_open(self, noted: Noted) -> Iterator[tuple[LogId, LocalLog]]:
        """Without logs whose topic was deleted since the round saw them."""
        return ((id, owned) for id, owned in noted.items() if self._store.owned(id) is owned)

    def _write(self, write: Callable[[dict[tuple[str, int], int]], None], offsets: dict[tuple[str, int], int]) -> None:
        self._store.clerk.submit(partial(write, offsets), _tell_failure)


def _nobody_waits(result: object) -> None: ...


def _tell_failure(result: object) -> None:
    if isinstance(result, Exception):
        log.warning("checkpoints stay as they were", reason=str(result))
