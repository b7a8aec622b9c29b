"""When logs are cleaned: their dirty bytes together stay below a bound, so that reading them again stays proportional to
what they hold.

Once a second the sums are looked at: what came to each log since it was cleaned last, and what its cleanings left. Above
the bound the dirtiest log is rolled, as soon as one of its flushes has just ended, and a process of its own cleans what
is closed (storage/cleaner.py): one at a time, with a low priority, for a limited time. What waits for a disk runs in
a thread; in the loop there are a few renames. A cleaner that fails or is killed has changed nothing.

The same process compacts the logs of topics, by their own settings (compaction_order.py), when the offsets logs need it
for nothing. Logs that are kept for a time instead lose their oldest segments here. And recovery points are written now
and then.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from broker.logging.logs import log
from broker.runtime.children import child_command
from broker.runtime.contain import Contained, alone
from broker.runtime.workers import Workers
from broker.stores.compaction_order import Cleaned, Due, TopicLogs
from broker.stores.compaction_process import CleaningFailed, run_cleaner
from storage import AppendFailed, DataDirectory, Disk, Log, LogId, describe_error
from storage.cleaner import Report, request_line
from storage.swap import Closed, promote, remove_deleted, remove_unfinished

LOOK_SECONDS = 1.0
STEP_PAUSE_SECONDS = 0.005  # between two steps of a look at all logs of topics
HOUSE_SECONDS = 60.0  # Kafka's log.flush.offset.checkpoint.interval.ms
ROLL_BYTES = 1 << 20  # a roll waits for the disk in the thread of the loop: for no more than this
ROLL_TRIES = 5  # of a roll that waits for nothing, before one that waits a little
RETRY_SECONDS_MIN = 30.0
RETRY_SECONDS_MAX = 3600.0
NICENESS = 10  # a tenth of a busy processor; at 19 it would be a sixtieth, and the bound would not hold
NICENESS_LATE = 5  # twice above the bound
NOT_WANTED = "the log was repaired, deleted or given away meanwhile"
BYTES_A_SECOND_MIN = 1 << 20  # a cleaner slower than this, at its lowest priority, is taken to hang

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CleaningRules:
    segment_bytes: int
    delete_retention_ms: int = 86_400_000  # as log.cleaner.delete.retention.ms
    dirty_bytes_min: int = 32 << 20  # so much is read again in a third of a second
    map_bytes_max: int = 128 << 20  # as log.cleaner.dedupe.buffer.size
    time_limit_seconds: float = 600.0
    topics_enable: bool = True  # as log.cleaner.enable
    topics_backoff_seconds: float = 15.0  # as log.cleaner.backoff.ms
    notes_bytes_max: int = -1  # of all logs together that are kept for a time; -1: any


class How(NamedTuple):
    """What one compaction goes by, beside the rules of all."""

    segment_bytes: int
    delete_retention_ms: int
    producers: dict[int, int] | None  # those whose last batch has to stay, be it empty, and where that begins; None: all


class Watched:
    """A log whose newest record of each key counts."""

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


class Cleaning:
    """All logs of a store. `watch` them, tell `flushed`, `stop` in the end."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        disk: Disk,
        directory: DataDirectory,
        rules: CleaningRules,
        now: Callable[[], int],
        command: tuple[str, ...] = child_command("storage.cleaner"),
        checkpoint_worker: Workers | None = None,
    ) -> None:
        self.cleanings = 0
        self.failures = 0
        self._loop = loop
        self._disk = disk
        self._directory = directory
        self._rules = rules
        self._now = now
        self._command = command
        self._workers = Workers(loop, 1)
        self._checkpoint_worker = checkpoint_worker or self._workers  # writes checkpoints, one at a time
        self._topics: TopicLogs | None = None
        self._topics_at = 0.0  # when to look at topics again
        self._topics_look: Iterator[None] | None = None  # under way
        self._compacted: Log | None = None  # the one that is being compacted
        self._given_up = False  # it is wanted no more
        self._process: asyncio.Task[Report] | None = None  # that compacts it
        self._watched: dict[LogId, Watched] = {}
        self._kept: dict[LogId, tuple[Log, int, Callable[[AppendFailed], None]]] = {}
        self._rolling: Watched | None = None
        self._task: asyncio.Task[None] | None = None
        self._housekeeping: asyncio.Task[None] | None = None
        self._keep_house_at = loop.time() + LOOK_SECONDS  # soon: so much less is taken for a torn end after a crash
        self._timer = loop.call_later(LOOK_SECONDS, Contained(self._look))

    def watch(self, id: LogId, log: Log, flush: Callable[[Callable[[Any], None]], None], failed: Callable[[AppendFailed], None]) -> None:
        """Clean this log when it is time. `flush` makes its bytes safe; `failed` hears when it has to be repaired."""
        watched = Watched(id, log, flush, failed)
        known = self._watched.get(id)
        watched.clean_to = known.clean_to if known is not None else min(self._directory.cleaner_points.get(id, 0), log.next_offset)
        self._watched[id] = watched

    def keep_for(self, id: LogId, log: Log, retention_ms: int, failed: Callable[[AppendFailed], None]) -> None:
        """Drop what is older from this log, whole segments at a time; -1: only what all of them together have too much."""
        self._kept[id] = (log, retention_ms, failed)

    def clean_topics(self, topics: TopicLogs) -> None:
        """Their logs too, from now on."""
        self._topics = topics

    def forget(self, id: LogId) -> None:
        """It is not ours any more. A cleaning under way does not reach it."""
        watched = self._watched.pop(id, None)
        if watched is not None:
            self.give_up(watched.log)
        self._kept.pop(id, None)
        if self._rolling is not None and self._rolling.id == id:
            self._rolling = None

    def flushed(self, log: Log) -> None:
        """A flush of this log has just ended, and the next has not begun: the moment to roll, if it is to be rolled."""
        if self._rolling is not None and self._rolling.log is log:
            self._roll(self._rolling)

    @property
    def dirty_bytes(self) -> int:
        return sum(watched.dirty_bytes for watched in self._watched.values())

    @property
    def live_bytes(self) -> int:
        return sum(watched.log.size for watched in self._watched.values()) - self.dirty_bytes

    @property
    def _bound(self) -> int:
        return max(self._rules.dirty_bytes_min, self.live_bytes)

    async def stop(self) -> None:
        """Nothing is cleaned any more; what was begun has changed nothing or is finished."""
        self._timer.cancel()
        self._rolling = self._topics = self._topics_look = None
        tasks = [task for task in (self._task, self._housekeeping) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._workers.close()

    # What is to be done?

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_SECONDS, Contained(self._look))
        if (self._loop.time() >= self._keep_house_at or self._too_many_notes()) and (self._housekeeping is None or self._housekeeping.done()):
            self._keep_house_at = self._loop.time() + HOUSE_SECONDS
            self._housekeeping = self._loop.create_task(alone(self._keep_house))
        if self._task is not None and not self._task.done():
            return
        if self._rolling is not None:
            self._try_to_roll(self._rolling)
            return
        if self.dirty_bytes > self._bound:
            time = self._loop.time()
            due = [watched for watched in self._watched.values() if watched.not_before <= time and watched.log.usable]
            if due:
                self._rolling = max(due, key=lambda watched: watched.dirty_bytes)
                self._rolling.roll_tries = 0
                self._try_to_roll(self._rolling)
                return
        self._look_at_topics()

    def _look_at_topics(self) -> None:
        time = self._loop.time()
        if self._topics is not None and self._rules.topics_enable and time >= self._topics_at and self._topics_look is None:
            self._topics_look = self._topics.look(self._now(), time)
            self._go_on_looking()

    def _go_on_looking(self) -> None:
        """A step, between which the loop goes on, or at its end the first cleaning."""
        look, self._topics_look = self._topics_look, None
        if look is None:
            return
        for _ in look:
            self._topics_look = look
            self._loop.call_later(STEP_PAUSE_SECONDS, Contained(self._go_on_looking, self._look_given_up))
            return
        if not self._clean_next_topic():
            self._topics_at = self._loop.time() + self._rules.topics_backoff_seconds

    def _look_given_up(self) -> None:
        """An exception of ours ended it: the next look comes at its time."""
        self._topics_look = None
        self._topics_at = self._loop.time() + self._rules.topics_backoff_seconds

    def _clean_next_topic(self) -> bool:
        """Whether one of the logs that the last look found is cleaned now. What groups live by comes first."""
        busy = self._rolling is not None or (self._task is not None and not self._task.done())
        if self._topics is None or busy or self.dirty_bytes > self._bound:
            return False
        due = self._topics.next_due(self._now())
        if due is None:
            return False
        self._task = self._loop.create_task(alone(self._clean_topic, due))
        return True

    def _try_to_roll(self, watched: Watched) -> None:
        """Now, or else when a flush has ended."""
        if not self._roll(watched) and self._rolling is not None:
            watched.flush(lambda failure: self.flushed(watched.log))

    def _roll(self, watched: Watched) -> bool:
        """Whether it was rolled, and is now cleaned."""
        watched.roll_tries += 1
        try:
            rolled = watched.log.roll(ROLL_BYTES if watched.roll_tries > ROLL_TRIES else 0)
        except AppendFailed as failure:
            self._rolling = None
            self._later(watched, str(failure))
            if not watched.log.usable:
                watched.failed(failure)
            return False
        if rolled:
            self._task = self._loop.create_task(alone(self._clean, watched))
        if rolled or not watched.log.usable:
            self._rolling = None
        return rolled

    def _later(self, watched: Watched | Cleaned, reason: str) -> None:
        pause = min(RETRY_SECONDS_MIN * 2**watched.failures, RETRY_SECONDS_MAX)
        watched.failures += 1
        self.failures += 1
        watched.not_before = self._loop.time() + pause
        log.warning("cleaning a log failed", log=watched.log.folder.rpartition("/")[2], reason=reason, retry_seconds=round(pause))

    # One cleaning.

    async def _clean(self, watched: Watched) -> None:
        cleaned = watched.log

        def is_wanted() -> bool:
            return self._watched.get(watched.id) is watched

        how = How(self._rules.segment_bytes, self._rules.delete_retention_ms, None)
        try:
            watched.clean_to = await self._compact(watched.id, cleaned, cleaned.closed, cleaned.last_base, watched.clean_to, how, is_wanted)
        except AppendFailed as failure:
            self._later(watched, str(failure))
            watched.failed(failure)
        except Exception as error:  # whatever it was, nothing was changed
            self._later(watched, str(error) or repr(error))
        else:
            watched.failures = 0

    async def _clean_topic(self, due: Due) -> None:
        partition, known = due.partition, due.cleaned
        topics = self._topics
        assert topics is not None
        settings = partition.settings
        how = How(settings.segment_bytes, settings.delete_retention_ms, partition.producers.last_offsets())
        try:
            known.clean_to = await self._compact(
                partition.id, known.log, due.segments, due.end, known.clean_to, how, lambda: topics.has(partition)
            )
        except AppendFailed as failure:
            self._later(known, str(failure))
            partition.failed(failure)
        except Exception as error:
            if topics.has(partition):
                self._later(known, str(error) or repr(error))
        else:
            known.failures = 0
        finally:
            self._loop.call_soon(Contained(self._clean_next_topic))

    async def _compact(
        self,
        id: LogId,
        cleaned: Log,
        sources: list[Closed],
        end: int,
        first_dirty: int,
        how: How,
        is_wanted: Callable[[], bool],
    ) -> int:
        """Up to where it is clean then. Raises AppendFailed where the log has to be repaired; otherwise nothing was changed.

        From the first step to the last, the checkpoint included, the folder is the log's own: it is neither renamed nor
        repaired, so what the process and the threads do by its name never reaches another log.
        """
        begun = self._loop.time()
        cleaned.begin_compaction()
        self._compacted, self._given_up = cleaned, False
        try:
            report = await self._replaced(cleaned, sources, end, first_dirty, how, is_wanted)
            await self._in_worker(partial(self._directory.checkpoint_cleaned, {id: report.clean_to}), self._checkpoint_worker)
        finally:
            self._compacted = None
            cleaned.end_compaction()
        self.cleanings += 1
        log.info(
            "log cleaned",
            log=str(id),
            bytes_before=report.bytes_before,
            bytes_after=report.bytes_after,
            seconds=round(self._loop.time() - begun, 1),
        )
        return report.clean_to

    async def _replaced(
        self, cleaned: Log, sources: list[Closed], end: int, first_dirty: int, how: How, is_wanted: Callable[[], bool]
    ) -> Report:
        """The segments were replaced by cleaned ones; or it raises, and whatever was written for that is gone."""
        folder = cleaned.folder
        token = uuid.uuid4().hex
        promoting = False
        try:
            await self._in_worker(partial(remove_unfinished, self._disk, folder))
            report = await self._run(cleaned, sources, end, first_dirty, token, how)
            if report.cleaned:
                promoting = True
                promoted = await self._in_worker(partial(promote, self._disk, folder, report.cleaned, token))
                if self._given_up or not is_wanted() or not cleaned.usable or cleaned.closed[: len(sources)] != sources:
                    raise CleaningFailed(NOT_WANTED)
                bases = cleaned.exchange(report.cleaned, promoted)
                promoting = False
                await self._in_worker(partial(remove_deleted, self._disk, folder, bases))
        except Exception:
            if not cleaned.half_exchanged:
                await self._take_back(cleaned, promoting)
            raise
        return report

    async def _take_back(self, cleaned: Log, promoting: bool) -> None:
        """Nothing of a compaction that failed may be left: the next opening would take promoted segments for the log's."""
        try:
            await self._in_worker(partial(remove_unfinished, self._disk, cleaned.folder))
        except OSError as error:
            if promoting:
                cleaned.leave_half_exchanged()
                raise AppendFailed(describe_error(error, cleaned.folder)) from error

    def give_up(self, cleaned: Log) -> None:
        """If this log is being compacted: its process is stopped, and soon nobody is at work in its folder."""
        if self._compacted is cleaned:
            self._given_up = True
            if self._process is not None:
                self._process.cancel()

    async def _run(self, cleaned: Log, sources: list[Closed], end: int, first_dirty: int, token: str, how: How) -> Report:
        request = request_line(
            cleaned.folder,
            sources,
            end,
            how.producers,
            first_dirty=first_dirty,
            now=self._now(),
            delete_retention_ms=how.delete_retention_ms,
            segment_bytes=how.segment_bytes,
            map_bytes_max=self._rules.map_bytes_max,
            token=token,
        )
        limit = max(self._rules.time_limit_seconds, cleaned.size / BYTES_A_SECOND_MIN)
        niceness = NICENESS_LATE if self.dirty_bytes > 2 * self._bound else NICENESS
        if self._given_up:
            raise CleaningFailed(NOT_WANTED)
        self._process = self._loop.create_task(run_cleaner(self._command, cleaned.folder, request, niceness, limit))
        try:
            return await self._process
        except asyncio.CancelledError:
            if self._given_up:
                raise CleaningFailed(NOT_WANTED) from None
            raise
        finally:
            self._process = None

    # What else is done now and then.

    def _too_many_notes(self) -> bool:
        return 0 <= self._rules.notes_bytes_max < sum([kept.size for kept, _, _ in self._kept.values()])

    async def _keep_house(self) -> None:
        try:
            for id, (kept, retention_ms, failed) in list(self._kept.items()):
                await self._drop_old(id, kept, retention_ms, failed)
            while self._too_many_notes() and await self._drop_largest():
                pass
            logs = {id: watched.log for id, watched in self._watched.items()} | {id: kept for id, (kept, _, _) in self._kept.items()}
            points = {(id.name, id.partition): log.flushed_offset for id, log in logs.items()}
            await self._in_worker(partial(self._directory.checkpoint, points), self._checkpoint_worker)
        except OSError as error:
            log.warning("housekeeping failed", reason=str(error))

    async def _drop_old(self, id: LogId, kept: Log, retention_ms: int, failed: Callable[[AppendFailed], None]) -> None:
        now = self._now()
        if not kept.usable or now < 0 or retention_ms < 0:
            return
        try:
            bases = kept.drop_old(now, round(self._loop.time() * 1000), retention_ms)
        except AppendFailed as failure:
            failed(failure)
            return
        await self._dropped(id, kept, bases)

    async def _drop_largest(self) -> bool:
        """The first segment of the largest log that is kept for a time; whether there was one to drop."""
        usable = [(kept.size, id) for id, (kept, _, _) in self._kept.items() if kept.usable]
        if not usable:
            return False
        id = max(usable)[1]
        kept, _, failed = self._kept[id]
        try:
            if len(kept.closed) == 0 and not kept.roll(ROLL_BYTES):
                return False
            bases = kept.drop_first()
        except AppendFailed as failure:
            failed(failure)
            return False
        await self._dropped(id, kept, bases)
        return bool(bases)

    async def _dropped(self, id: LogId, kept: Log, bases: list[int]) -> None:
        if bases:
            log.info("old segments dropped", log=str(id), segments=len(bases), start_offset=kept.start_offset)
            await self._in_worker(partial(remove_deleted, self._disk, kept.folder, bases))
            await self._in_worker(partial(self._directory.checkpoint_starts, {(id.name, id.partition): kept.start_offset}), self._checkpoint_worker)

    async def _in_worker(self, work: Callable[[], T], workers: Workers | None = None) -> T:
        """What waits for the disk; raises what it raised. Being cancelled does not leave it running behind our back."""
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
            await asyncio.wait([done], timeout=LOOK_SECONDS)
            if done.done():
                done.exception()
            raise
