"""Decide when logs are compacted: the dirty bytes of all offsets logs stay below a bound, so replaying them stays cheap.

Once a second the dirty bytes (appended since the last compaction) are compared with the bound. Above it, the dirtiest log
is rolled right after one of its flushes, and a child process compacts its closed segments (storage/cleaner.py): one log at
a time, at low priority, with a time limit. Disk waits happen in a worker thread; the loop renames files, and a roll may flush
up to ROLL_UNFLUSHED_BYTES_MAX there. A compaction that fails or is killed changes nothing.

While no offsets log is due, topic logs are compacted by their own settings (compaction_order.py). `LogCleaner` also drops the
oldest segments of the notes logs, and writes recovery points to their checkpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from broker.logging.logs import log
from broker.runtime.children import child_command
from broker.runtime.contain import Contained, contained_task
from broker.runtime.workers import Workers
from broker.stores.compaction_order import CompactionState, Due, TopicLogs
from broker.stores.compaction_process import CleaningFailed, RunCleaner, run_cleaner
from broker.stores.tokens import fresh_token
from storage import AppendFailed, DataDirectory, Disk, Log, LogId, describe_error
from storage.cleaner import Report, request_line
from storage.swap import ClosedSegment, promote, remove_deleted, remove_unfinished

CHECK_SECONDS = 1.0
STEP_PAUSE_SECONDS = 0.005  # between two steps of a scan of all topic logs
HOUSEKEEPING_SECONDS = 60.0  # Kafka's log.flush.offset.checkpoint.interval.ms
ROLL_UNFLUSHED_BYTES_MAX = 1 << 20  # the most that a roll may flush, since it blocks the loop's thread
ROLL_TRIES = 5  # attempts to roll a log without unflushed bytes; later ones may flush up to ROLL_UNFLUSHED_BYTES_MAX themselves
RETRY_SECONDS_MIN = 30.0
RETRY_SECONDS_MAX = 3600.0
NICENESS = 10  # gets a tenth of a busy processor; 19 would get a sixtieth, too little to keep the dirty bytes below the bound
NICENESS_LATE = 5  # when the dirty bytes are above twice the bound
CANCELLED = "the log was repaired, deleted or released meanwhile"
BYTES_PER_SECOND_MIN = 1 << 20  # a slower compaction counts as hung

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CleaningRules:
    segment_bytes: int
    delete_retention_ms: int = 86_400_000  # as log.cleaner.delete.retention.ms
    dirty_bytes_min: int = 32 << 20  # replayed in a third of a second
    map_bytes_max: int = 128 << 20  # as log.cleaner.dedupe.buffer.size
    time_limit_seconds: float = 600.0
    topics_enable: bool = True  # as log.cleaner.enable
    topics_backoff_seconds: float = 15.0  # as log.cleaner.backoff.ms
    notes_bytes_max: int = -1  # of all notes logs together; -1: no limit


class CompactionSettings(NamedTuple):
    """The settings of one compaction, in addition to CleaningRules."""

    segment_bytes: int
    delete_retention_ms: int
    producers: dict[int, int] | None  # producer id -> base offset of its last batch, which stays even if empty; None: all last batches stay


class CompactedLog:
    """An internal log that is compacted, and the state of its compaction."""

    def __init__(self, id: LogId, log: Log, flush: Callable[[Callable[[Any], None]], None], failed: Callable[[AppendFailed], None]) -> None:
        self.id = id
        self.log = log
        self.flush = flush
        self.failed = failed
        self.clean_to = 0
        self.not_before = 0.0
        self.failures = 0
        self.roll_tries = 0

    @property
    def dirty_bytes(self) -> int:
        return self.log.bytes_since(self.clean_to)


class LogCleaner:
    """Compacts the logs of one store and drops their old segments. Register logs with `watch`, report flushes with `flushed`, end with `stop`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        disk: Disk,
        directory: DataDirectory,
        rules: CleaningRules,
        now: Callable[[], int],
        command: tuple[str, ...] = child_command("storage.cleaner"),
        checkpoint_worker: Workers | None = None,
        worker: Workers | None = None,
        fresh_token: Callable[[], str] = fresh_token,
        run_cleaner: RunCleaner = run_cleaner,
    ) -> None:
        """`worker`: for files; `run_cleaner`: runs the child process."""
        self.cleanings = 0
        self.failures = 0
        self._loop = loop
        self._disk = disk
        self._directory = directory
        self.rules = rules
        self._now = now
        self._command = command
        self._workers = worker or Workers(loop, 1)
        self._fresh_token = fresh_token
        self._run_cleaner = run_cleaner
        self._checkpoint_worker = checkpoint_worker or self._workers  # writes checkpoints, one at a time
        self._topics: TopicLogs | None = None
        self._topics_at = 0.0  # when to scan the topic logs again
        self._topics_scan: Iterator[None] | None = None  # the scan in progress
        self._compacted: Log | None = None  # the log being compacted
        self._cancelled = False  # its compaction was cancelled
        self._process: asyncio.Task[Report] | None = None  # the child process that compacts it
        self._watched: dict[LogId, CompactedLog] = {}
        self._retained: dict[LogId, tuple[Log, int, Callable[[AppendFailed], None]]] = {}  # logs, retention times, failure callbacks
        self._rolling: CompactedLog | None = None
        self._task: asyncio.Task[None] | None = None
        self._housekeeping: asyncio.Task[None] | None = None
        self._housekeep_at = loop.time() + CHECK_SECONDS  # soon: an early recovery point shortens the check after a crash
        self._timer = loop.call_later(CHECK_SECONDS, Contained(self._check))

    def watch(self, id: LogId, log: Log, flush: Callable[[Callable[[Any], None]], None], failed: Callable[[AppendFailed], None]) -> None:
        """Compact this log whenever it is due. `flush` flushes the log; `failed` is called when the log must be repaired."""
        watched = CompactedLog(id, log, flush, failed)
        before = self._watched.get(id)
        watched.clean_to = before.clean_to if before is not None else min(self._directory.cleaner_points.get(id, 0), log.next_offset)
        self._watched[id] = watched

    def watch_retention(self, id: LogId, log: Log, retention_ms: int, failed: Callable[[AppendFailed], None]) -> None:
        """Drop whole segments of this notes log older than `retention_ms`; with -1 only the size limit of all notes logs applies."""
        self._retained[id] = (log, retention_ms, failed)

    def clean_topics(self, topics: TopicLogs) -> None:
        """Compact topic logs too, from now on."""
        self._topics = topics

    def forget(self, id: LogId) -> None:
        """Stop compacting this log and dropping its old segments, and cancel a compaction in progress."""
        watched = self._watched.pop(id, None)
        if watched is not None:
            self.cancel(watched.log)
        self._retained.pop(id, None)
        if self._rolling is not None and self._rolling.id == id:
            self._rolling = None

    def flushed(self, log: Log) -> None:
        """Roll the log if it is due: a flush has just ended and the next has not begun, so little is unflushed."""
        if self._rolling is not None and self._rolling.log is log:
            self._roll(self._rolling)

    @property
    def dirty_bytes(self) -> int:
        return sum(watched.dirty_bytes for watched in self._watched.values())

    @property
    def live_bytes(self) -> int:
        return sum(watched.log.size for watched in self._watched.values()) - self.dirty_bytes

    def _dirty_ratio(self) -> float:
        """The dirty bytes, relative to their minimum or to the live bytes, whichever is larger. Above 1 a log is compacted."""
        return self.dirty_bytes / max(self.rules.dirty_bytes_min, self.live_bytes, 1)

    async def stop(self) -> None:
        """Stop; a compaction in progress is cancelled or completed, never half done."""
        self._timer.cancel()
        self._rolling = self._topics = self._topics_scan = None
        tasks = [task for task in (self._task, self._housekeeping) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._workers.close()

    def _check(self) -> None:
        self._timer = self._loop.call_later(CHECK_SECONDS, Contained(self._check))
        if (self._loop.time() >= self._housekeep_at or self._notes_exceed_limit()) and (self._housekeeping is None or self._housekeeping.done()):
            self._housekeep_at = self._loop.time() + HOUSEKEEPING_SECONDS
            self._housekeeping = self._loop.create_task(contained_task(self._housekeep))
        if self._task is not None and not self._task.done():
            return
        if self._rolling is not None:
            self._try_to_roll(self._rolling)
            return
        if self._dirty_ratio() > 1:
            time = self._loop.time()
            due = [watched for watched in self._watched.values() if watched.not_before <= time and watched.log.usable]
            if due:
                self._rolling = max(due, key=lambda watched: watched.dirty_bytes)
                self._rolling.roll_tries = 0
                self._try_to_roll(self._rolling)
                return
        self._scan_topics()

    def _scan_topics(self) -> None:
        time = self._loop.time()
        if self._topics is not None and self.rules.topics_enable and time >= self._topics_at and self._topics_scan is None:
            self._topics_scan = self._topics.scan(self._now(), time)
            self._continue_topics_scan()

    def _continue_topics_scan(self) -> None:
        """Scan one step and yield to the loop; after the last step, start the first compaction."""
        scan, self._topics_scan = self._topics_scan, None
        if scan is None:
            return
        for _ in scan:
            self._topics_scan = scan
            self._loop.call_later(STEP_PAUSE_SECONDS, Contained(self._continue_topics_scan, self._topics_scan_failed))
            return
        if not self._clean_next_topic():
            self._topics_at = self._loop.time() + self.rules.topics_backoff_seconds

    def _topics_scan_failed(self) -> None:
        """Drop a scan that raised; the next one starts on schedule."""
        self._topics_scan = None
        self._topics_at = self._loop.time() + self.rules.topics_backoff_seconds

    def _clean_next_topic(self) -> bool:
        """Start compacting the most urgent topic log; offsets logs come first. Returns whether one was started."""
        busy = self._rolling is not None or (self._task is not None and not self._task.done())
        if self._topics is None or busy or self._dirty_ratio() > 1:
            return False
        due = self._topics.next_due(self._now())
        if due is None:
            return False
        self._task = self._loop.create_task(contained_task(self._clean_topic, due))
        return True

    def _try_to_roll(self, watched: CompactedLog) -> None:
        """Roll now, or request a flush and roll when it ends."""
        if not self._roll(watched) and self._rolling is not None:
            watched.flush(lambda failure: self.flushed(watched.log))

    def _roll(self, watched: CompactedLog) -> bool:
        """Roll the log and start its compaction; returns whether it was rolled."""
        watched.roll_tries += 1
        try:
            rolled = watched.log.roll(ROLL_UNFLUSHED_BYTES_MAX if watched.roll_tries > ROLL_TRIES else 0)
        except AppendFailed as failure:
            self._rolling = None
            self._retry_later(watched, str(failure))
            if not watched.log.usable:
                watched.failed(failure)
            return False
        if rolled:
            self._task = self._loop.create_task(contained_task(self._clean, watched))
        if rolled or not watched.log.usable:
            self._rolling = None
        return rolled

    def _retry_later(self, watched: CompactedLog | CompactionState, reason: str) -> None:
        pause = min(RETRY_SECONDS_MIN * 2**watched.failures, RETRY_SECONDS_MAX)
        watched.failures += 1
        self.failures += 1
        watched.not_before = self._loop.time() + pause
        log.warning("cleaning a log failed", log=watched.log.folder.rpartition("/")[2], reason=reason, retry_seconds=round(pause))

    async def _clean(self, watched: CompactedLog) -> None:
        target = watched.log

        def is_current() -> bool:
            return self._watched.get(watched.id) is watched

        settings = CompactionSettings(self.rules.segment_bytes, self.rules.delete_retention_ms, None)
        try:
            watched.clean_to = await self._compact(
                watched.id, target, target.closed_segments, target.active_base, watched.clean_to, settings, is_current
            )
        except AppendFailed as failure:
            self._retry_later(watched, str(failure))
            watched.failed(failure)
        except Exception as error:  # nothing was changed
            self._retry_later(watched, str(error) or repr(error))
        else:
            watched.failures = 0

    async def _clean_topic(self, due: Due) -> None:
        partition, state = due.partition, due.state
        topics = self._topics
        assert topics is not None
        topic_settings = partition.settings
        settings = CompactionSettings(topic_settings.segment_bytes, topic_settings.delete_retention_ms, partition.producers.last_offsets())
        try:
            state.clean_to = await self._compact(
                partition.id, state.log, due.segments, due.end, state.clean_to, settings, lambda: topics.has(partition)
            )
        except AppendFailed as failure:
            self._retry_later(state, str(failure))
            partition.failed(failure)
        except Exception as error:
            if topics.has(partition):
                self._retry_later(state, str(error) or repr(error))
        else:
            state.failures = 0
        finally:
            self._loop.call_soon(Contained(self._clean_next_topic))

    async def _compact(
        self,
        id: LogId,
        target: Log,
        sources: list[ClosedSegment],
        end: int,
        first_dirty: int,
        settings: CompactionSettings,
        is_current: Callable[[], bool],
    ) -> int:
        """Compact the segments and return the offset up to which the log is now clean.

        Raises AppendFailed when the log must be repaired; any other exception means that nothing was changed.
        Until the checkpoint is written the folder is neither renamed nor repaired: the child process and the worker
        threads reach the log by its path.
        """
        begun = self._loop.time()
        target.begin_compaction()
        self._compacted, self._cancelled = target, False
        try:
            report = await self._replace_segments(target, sources, end, first_dirty, settings, is_current)
            await self._in_worker(partial(self._directory.checkpoint_cleaned, {id: report.clean_to}), self._checkpoint_worker)
        finally:
            self._compacted = None
            target.end_compaction()
        self.cleanings += 1
        log.info(
            "log cleaned",
            log=str(id),
            bytes_before=report.bytes_before,
            bytes_after=report.bytes_after,
            seconds=round(self._loop.time() - begun, 1),
        )
        return report.clean_to

    async def _replace_segments(
        self, target: Log, sources: list[ClosedSegment], end: int, first_dirty: int, settings: CompactionSettings, is_current: Callable[[], bool]
    ) -> Report:
        """Replace the segments by compacted segments; if this fails, the files written for it are removed."""
        folder = target.folder
        token = self._fresh_token()
        promoting = False
        try:
            await self._in_worker(partial(remove_unfinished, self._disk, folder))
            report = await self._run(target, sources, end, first_dirty, token, settings)
            if report.cleaned:
                promoting = True
                promoted = await self._in_worker(partial(promote, self._disk, folder, report.cleaned, token))
                if self._cancelled or not is_current() or not target.usable or target.closed_segments[: len(sources)] != sources:
                    raise CleaningFailed(CANCELLED)
                bases = target.exchange(report.cleaned, promoted)
                promoting = False
                await self._in_worker(partial(remove_deleted, self._disk, folder, bases))
        except Exception:
            if not target.half_exchanged:
                await self._remove_unfinished(target, promoting)
            raise
        return report

    async def _remove_unfinished(self, target: Log, promoting: bool) -> None:
        """Remove the files of a failed compaction: the next opening of the log would use its renamed (promoted) segments."""
        try:
            await self._in_worker(partial(remove_unfinished, self._disk, target.folder))
        except OSError as error:
            if promoting:
                target.leave_half_exchanged()
                raise AppendFailed(describe_error(error, target.folder)) from error

    def cancel(self, target: Log) -> None:
        """Cancel the compaction of this log, if it is in progress; its child process is killed."""
        if self._compacted is target:
            self._cancelled = True
            if self._process is not None:
                self._process.cancel()

    async def _run(self, target: Log, sources: list[ClosedSegment], end: int, first_dirty: int, token: str, settings: CompactionSettings) -> Report:
        request = request_line(
            target.folder,
            sources,
            end,
            settings.producers,
            first_dirty=first_dirty,
            now=self._now(),
            delete_retention_ms=settings.delete_retention_ms,
            segment_bytes=settings.segment_bytes,
            map_bytes_max=self.rules.map_bytes_max,
            token=token,
        )
        limit = max(self.rules.time_limit_seconds, target.size / BYTES_PER_SECOND_MIN)
        niceness = NICENESS_LATE if self._dirty_ratio() > 2 else NICENESS
        if self._cancelled:
            raise CleaningFailed(CANCELLED)
        self._process = self._loop.create_task(self._run_cleaner(self._command, target.folder, request, niceness, limit))
        try:
            return await self._process
        except asyncio.CancelledError:
            if self._cancelled:
                raise CleaningFailed(CANCELLED) from None
            raise
        finally:
            self._process = None

    # Housekeeping: retention by time and size, recovery points.

    def _notes_exceed_limit(self) -> bool:
        return 0 <= self.rules.notes_bytes_max < sum([retained.size for retained, _, _ in self._retained.values()])

    async def _housekeep(self) -> None:
        try:
            for id, (retained, retention_ms, failed) in list(self._retained.items()):
                await self._drop_old(id, retained, retention_ms, failed)
            while self._notes_exceed_limit() and await self._drop_largest():
                pass
            logs = {id: watched.log for id, watched in self._watched.items()} | {id: retained for id, (retained, _, _) in self._retained.items()}
            points = {(id.name, id.partition): log.flushed_offset for id, log in logs.items()}
            await self._in_worker(partial(self._directory.checkpoint, points), self._checkpoint_worker)
        except OSError as error:
            log.warning("housekeeping failed", reason=str(error))

    async def _drop_old(self, id: LogId, retained: Log, retention_ms: int, failed: Callable[[AppendFailed], None]) -> None:
        now = self._now()
        if not retained.usable or now < 0 or retention_ms < 0:
            return
        try:
            bases = retained.drop_old(now, round(self._loop.time() * 1000), retention_ms)
        except AppendFailed as failure:
            failed(failure)
            return
        await self._remove_dropped(id, retained, bases)

    async def _drop_largest(self) -> bool:
        """Drop the first segment of the largest notes log; returns whether a segment was dropped."""
        usable = [(retained.size, id) for id, (retained, _, _) in self._retained.items() if retained.usable]
        if not usable:
            return False
        id = max(usable)[1]
        retained, _, failed = self._retained[id]
        try:
            if len(retained.closed_segments) == 0 and not retained.roll(ROLL_UNFLUSHED_BYTES_MAX):
                return False
            bases = retained.drop_first()
        except AppendFailed as failure:
            failed(failure)
            return False
        await self._remove_dropped(id, retained, bases)
        return bool(bases)

    async def _remove_dropped(self, id: LogId, retained: Log, bases: list[int]) -> None:
        """Remove the files of dropped segments, and store the new start offset of the log."""
        if bases:
            log.info("old segments dropped", log=str(id), segments=len(bases), start_offset=retained.start_offset)
            await self._in_worker(partial(remove_deleted, self._disk, retained.folder, bases))
            starts = {(id.name, id.partition): retained.start_offset}
            await self._in_worker(partial(self._directory.checkpoint_starts, starts), self._checkpoint_worker)

    async def _in_worker(self, work: Callable[[], T], workers: Workers | None = None) -> T:
        """Run blocking work in a worker thread and return or raise its result; when cancelled, wait for the work to end."""
        done: asyncio.Future[T] = self._loop.create_future()

        def settle(result: Any) -> None:
            if isinstance(result, Exception):
                done.set_exception(result)
            else:
                done.set_result(result)

        (workers or self._workers).submit(work, settle)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            await asyncio.wait([done], timeout=CHECK_SECONDS)
            if done.done():
                done.exception()
            raise
