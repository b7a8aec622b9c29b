"""When logs are cleaned: their dirty bytes together stay below a bound, so that reading them again stays proportional to
what they hold.

Once a second the sums are looked at: what came to each log since it was cleaned last, and what its cleanings left. Above
the bound the dirtiest log is rolled, as soon as one of its flushes has just ended, and a process of its own cleans what
is closed (storage/cleaner.py): one at a time, with a low priority, for a limited time. What waits for a disk runs in
a thread; in the loop there are a few renames. A cleaner that fails or is killed has changed nothing.

Logs that are kept for a time instead lose their oldest segments here. And recovery points are written now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from broker.logs import get_logger
from broker.workers import Workers
from storage import AppendFailed, DataDirectory, Disk, Log, LogId
from storage.cleaner import Report, request_line
from storage.swap import promote, remove_deleted, remove_unfinished

log = get_logger("broker.cleaning")

LOOK_SECONDS = 1.0
HOUSE_SECONDS = 60.0  # Kafka's log.flush.offset.checkpoint.interval.ms
ROLL_BYTES = 1 << 20  # a roll waits for the disk in the thread of the loop: for no more than this
ROLL_TRIES = 5  # of a roll that waits for nothing, before one that waits a little
RETRY_SECONDS_MIN = 30.0
RETRY_SECONDS_MAX = 3600.0
NICENESS = 10  # a tenth of a busy processor; at 19 it would be a sixtieth, and the bound would not hold
NICENESS_LATE = 5  # twice above the bound
REPORT_BYTES_MAX = 1 << 24
BYTES_A_SECOND_MIN = 1 << 20  # a cleaner slower than this, at its lowest priority, is taken to hang

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CleaningRules:
    segment_bytes: int
    delete_retention_ms: int = 86_400_000  # Kafka's delete.retention.ms
    dirty_bytes_min: int = 32 << 20  # so much is read again in a third of a second
    map_bytes_max: int = 128 << 20  # Kafka's log.cleaner.dedupe.buffer.size
    time_limit_seconds: float = 600.0


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
        command: tuple[str, ...] = (sys.executable, "-P", "-m", "storage.cleaner"),
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
        self._watched: dict[LogId, Watched] = {}
        self._kept: dict[LogId, tuple[Log, int, Callable[[AppendFailed], None]]] = {}
        self._rolling: Watched | None = None
        self._task: asyncio.Task[None] | None = None
        self._housekeeping: asyncio.Task[None] | None = None
        self._keep_house_at = loop.time() + LOOK_SECONDS  # soon: so much less is taken for a torn end after a crash
        self._timer = loop.call_later(LOOK_SECONDS, self._look)

    def watch(self, id: LogId, log: Log, flush: Callable[[Callable[[Any], None]], None], failed: Callable[[AppendFailed], None]) -> None:
        """Clean this log when it is time. `flush` makes its bytes safe; `failed` hears when it has to be repaired."""
        watched = Watched(id, log, flush, failed)
        known = self._watched.get(id)
        watched.clean_to = known.clean_to if known is not None else min(self._directory.cleaner_points.get(id, 0), log.next_offset)
        self._watched[id] = watched

    def keep_for(self, id: LogId, log: Log, retention_ms: int, failed: Callable[[AppendFailed], None]) -> None:
        """Drop what is older from this log, whole segments at a time."""
        self._kept[id] = (log, retention_ms, failed)

    def forget(self, id: LogId) -> None:
        """It is not ours any more. A cleaning under way does not reach it."""
        self._watched.pop(id, None)
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
        self._rolling = None
        tasks = [task for task in (self._task, self._housekeeping) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._workers.close()

    # What is to be done?

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_SECONDS, self._look)
        if self._loop.time() >= self._keep_house_at and (self._housekeeping is None or self._housekeeping.done()):
            self._keep_house_at = self._loop.time() + HOUSE_SECONDS
            self._housekeeping = self._loop.create_task(self._keep_house())
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
            self._task = self._loop.create_task(self._clean(watched))
        if rolled or not watched.log.usable:
            self._rolling = None
        return rolled

    def _later(self, watched: Watched, reason: str) -> None:
        pause = min(RETRY_SECONDS_MIN * 2**watched.failures, RETRY_SECONDS_MAX)
        watched.failures += 1
        self.failures += 1
        watched.not_before = self._loop.time() + pause
        log.warning("cleaning a log failed", log=str(watched.id), reason=reason, retry_seconds=round(pause))

    # One cleaning.

    async def _clean(self, watched: Watched) -> None:
        begun = self._loop.time()
        folder = watched.log.folder
        token = f"{os.getpid()}-{self.cleanings}-{self.failures}"
        try:
            await self._in_worker(partial(remove_unfinished, self._disk, folder))
            sources = watched.log.closed
            report = await self._run_cleaner(watched, token)
            if report.cleaned:
                promoted = await self._in_worker(partial(promote, self._disk, folder, report.cleaned, token))
                if self._watched.get(watched.id) is not watched or not watched.log.usable or watched.log.closed[: len(sources)] != sources:
                    raise CleaningFailed("the log was repaired or given away meanwhile")
                bases = watched.log.exchange(report.cleaned, promoted)
                watched.clean_to = report.clean_to
                await self._in_worker(partial(remove_deleted, self._disk, folder, bases))
            watched.clean_to = report.clean_to
            await self._in_worker(partial(self._directory.checkpoint_cleaned, {watched.id: report.clean_to}))
        except AppendFailed as failure:
            self._later(watched, str(failure))
            watched.failed(failure)
        except Exception as error:  # whatever it was, nothing was changed
            self._later(watched, str(error) or repr(error))
        else:
            watched.failures = 0
            self.cleanings += 1
            log.info(
                "log cleaned",
                log=str(watched.id),
                bytes_before=report.bytes_before,
                bytes_after=report.bytes_after,
                seconds=round(self._loop.time() - begun, 1),
            )

    async def _run_cleaner(self, watched: Watched, token: str) -> Report:
        request = request_line(
            watched.log.folder,
            watched.log.closed,
            watched.log.last_base,
            first_dirty=watched.clean_to,
            now=self._now(),
            delete_retention_ms=self._rules.delete_retention_ms,
            segment_bytes=self._rules.segment_bytes,
            map_bytes_max=self._rules.map_bytes_max,
            token=token,
        )
        limit = max(self._rules.time_limit_seconds, watched.log.size / BYTES_A_SECOND_MIN)
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self._command, watched.log.folder, stdin=pipe, stdout=pipe, stderr=pipe, limit=REPORT_BYTES_MAX
        )
        try:
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS_LATE if self.dirty_bytes > 2 * self._bound else NICENESS)
            async with asyncio.timeout(limit):
                assert process.stdin is not None
                assert process.stdout is not None
                assert process.stderr is not None
                process.stdin.write(request)  # and left open: its end tells the cleaner that we are gone
                line, complaint = await asyncio.gather(process.stdout.read(), process.stderr.read())
                code = await process.wait()
        except TimeoutError:
            raise CleaningFailed(f"it took longer than {limit:g} s") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            if process.stdin is not None:
                process.stdin.close()
        if code:
            said = complaint.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise CleaningFailed(said or (f"killed by signal {-code}" if code < 0 else f"exit code {code}"))
        return Report(line)

    # What else is done now and then.

    async def _keep_house(self) -> None:
        try:
            for id, (kept, retention_ms, failed) in list(self._kept.items()):
                await self._drop_old(id, kept, retention_ms, failed)
            logs = {id: watched.log for id, watched in self._watched.items()} | {id: kept for id, (kept, _, _) in self._kept.items()}
            points = {(id.name, id.partition): log.flushed_offset for id, log in logs.items()}
            await self._in_worker(partial(self._directory.checkpoint, points))
        except OSError as error:
            log.warning("housekeeping failed", reason=str(error))

    async def _drop_old(self, id: LogId, kept: Log, retention_ms: int, failed: Callable[[AppendFailed], None]) -> None:
        if not kept.usable:
            return
        try:
            bases = kept.drop_before(self._now() - retention_ms)
        except AppendFailed as failure:
            failed(failure)
            return
        if bases:
            log.info("old segments dropped", log=str(id), segments=len(bases), start_offset=kept.start_offset)
            await self._in_worker(partial(remove_deleted, self._disk, kept.folder, bases))
            await self._in_worker(partial(self._directory.checkpoint_starts, {(id.name, id.partition): kept.start_offset}))

    async def _in_worker(self, work: Callable[[], T]) -> T:
        """What waits for the disk; raises what it raised. Being cancelled does not leave it running behind our back."""
        done: asyncio.Future[T] = self._loop.create_future()

        def settle(result: Any) -> None:
            if isinstance(result, Exception):
                done.set_exception(result)
            else:
                done.set_result(result)

        self._workers.submit(work, settle)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            await asyncio.wait([done], timeout=LOOK_SECONDS)
            if done.done():
                done.exception()
            raise


class CleaningFailed(Exception):
    """Nothing was changed; it is tried again later."""
