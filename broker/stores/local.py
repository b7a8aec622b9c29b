"""Logs in one directory of this machine: one process owns them all (a file lock says so)."""

from __future__ import annotations

import asyncio
import base64
import os
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial

from broker.config import Config
from broker.logs import get_logger
from broker.start import ExitCode, StartError
from broker.workers import Workers
from storage import (
    AppendFailed,
    DamagedLog,
    DataDirectory,
    DirectoryForeign,
    DirectoryLocked,
    DirectoryUnusable,
    Disk,
    Flush,
    Handles,
    HeldBy,
    Log,
    LogId,
    OsDisk,
    OwnedLog,
    Position,
    Repair,
    told,
)

log = get_logger("broker.store")

FLUSH_THREADS = 4

Appended = Callable[[Position | AppendFailed], None]
Done = Callable[[AppendFailed | None], None]


class LocalStore:
    """A LogStore over the data directory. Raises StartError when that cannot be used."""

    def __init__(self, config: Config, loop: asyncio.AbstractEventLoop, disk: Disk | None = None) -> None:
        self.loop = loop
        self.policy = config.offsets_flush
        self.flush_seconds = config.offsets_flush_interval_ms / 1000
        self._segment_bytes = config.offsets_topic_segment_bytes
        disk = disk or OsDisk()
        self.directory = _open_directory(disk, config)
        self.cluster_id = self.directory.cluster_id
        self.handles = Handles(disk)
        self.workers = Workers(loop, FLUSH_THREADS)
        self._logs: dict[LogId, LocalLog] = {}

    def acquire(self, id: LogId, done: Callable[[OwnedLog | HeldBy], None]) -> None:
        """Open the log. Raises StartError when it is damaged: such a log serves nobody until somebody decides."""
        directory = self.directory
        folder = directory.log_folder(id.name, id.partition)
        recovery_point = directory.recovery_points.get((id.name, id.partition), 0)
        try:
            opened, recovery = Log.open(self.handles, folder, self._segment_bytes, recovery_point, directory.clean)
        except DamagedLog as error:
            raise StartError(str(error), ExitCode.DATA) from None
        except OSError as error:
            raise StartError(told(error, folder), ExitCode.DISK) from None
        if recovery.cut_bytes:
            log.warning(
                "torn end of a log cut off",
                file=recovery.path,
                position=recovery.position,
                bytes=recovery.cut_bytes,
                reason=recovery.reason,
            )
        self._logs[id] = LocalLog(self, id, opened)
        done(self._logs[id])

    def watch(self, id: LogId, failed: Callable[[AppendFailed], None]) -> None:
        """Hear of a flush that failed while nobody waited for it."""
        self._logs[id].failed = failed

    def finish(self, sound: bool, done: Callable[[str], None]) -> None:
        """Flush and close every log and say, where all is `sound`, that the next start need not check them.

        `done` hears what went wrong, or "".
        """
        waiting = len(self._logs)
        failures = [] if sound else ["not everything was written"]

        def flushed(failure: AppendFailed | None) -> None:
            nonlocal waiting
            waiting -= 1
            if failure is not None:
                failures.append(str(failure))
            if waiting <= 0:
                if failures:
                    done(failures[0])
                else:
                    self.workers.submit(self._mark_clean, lambda problem: done(str(problem or "")))

        if not waiting:
            flushed(None)
        for owned in list(self._logs.values()):
            owned.flush(flushed)

    def _mark_clean(self) -> str:
        """In a worker thread, when the loop has nothing more to do with the logs: this too waits for the disk."""
        try:
            for owned in self._logs.values():
                owned.log.close()
            self.directory.checkpoint({(id.name, id.partition): owned.log.flushed_offset for id, owned in self._logs.items()})
            self.directory.mark_clean()
        except OSError as error:
            return told(error, self.directory.path)
        return ""

    def close(self) -> None:
        self.workers.close()
        self.handles.close()
        self.directory.close()


class LocalLog:
    """One log of the store, at the epoch at which it was opened."""

    def __init__(self, store: LocalStore, id: LogId, opened: Log) -> None:
        self.id = id
        self.log = opened
        self.epoch = opened.epoch
        self.failed: Callable[[AppendFailed], None] = lambda failure: None
        self._store = store
        self._flushing = False
        self._flush_planned = False
        self._flush_next: list[Done] = []

    def usable(self) -> bool:
        return self.log.usable and self.epoch == self.log.epoch

    def replay(self) -> Iterator[bytes]:
        # With `always` nobody was told of what is not flushed, so it is not true yet.
        return self.log.scan(end=self.log.flushed_offset if self._store.policy == "always" else None)

    def append(self, batch: bytes, records: int, done: Appended) -> None:
        try:
            position = Position(self.log.append(batch, self.epoch))
        except AppendFailed as failure:
            done(failure)
            return
        if self._store.policy == "always":
            self.flush(lambda failure: done(failure or position))
            return
        if self._store.policy == "interval" and not self._flush_planned:
            self._flush_planned = True
            self._store.loop.call_later(self._store.flush_seconds, self._flush_as_planned)
        done(position)

    def flush(self, done: Done) -> None:
        """Flush in a worker thread, one at a time for a log; who comes meanwhile is served by the next."""
        if self._flushing:
            self._flush_next.append(done)
            return
        try:
            flush = self.log.start_flush()
        except AppendFailed as failure:
            done(failure)
            return
        self._flushing = True
        self._store.workers.submit(flush.run, partial(self._flushed, flush, done))

    def _flushed(self, flush: Flush, done: Done, result: object) -> None:
        self._flushing = False
        failure: AppendFailed | None = None
        try:
            self.log.finish_flush(flush, result if isinstance(result, Exception) else None)
        except AppendFailed as error:
            failure = error
        waiting, self._flush_next = self._flush_next, []
        if waiting:
            # Started before anybody hears of this one; after a failure it fails at once.
            self.flush(partial(_tell, waiting))
        done(failure)

    def _flush_as_planned(self) -> None:
        self._flush_planned = False
        self.flush(self._flushed_as_planned)

    def _flushed_as_planned(self, failure: AppendFailed | None) -> None:
        if failure is not None:
            self.failed(failure)

    def recover(self, done: Done) -> None:
        """Try whether writing works again; if so, cut the log back to what was acknowledged."""
        if self._flushing:
            done(AppendFailed("the flush under way does not end"))
            return
        repair = self.log.start_repair(keep_unflushed=self._store.policy != "always")
        self._store.workers.submit(repair.run, partial(self._repaired, repair, done))

    def _repaired(self, repair: Repair, done: Done, result: object) -> None:
        if isinstance(result, Exception):
            done(AppendFailed(told(result, self.log.folder)))
            return
        self.log.finish_repair(repair)
        done(None)

    def release(self) -> None:
        self.log.claim()  # whoever still holds this is refused from now on


def _tell(waiting: list[Done], failure: AppendFailed | None) -> None:
    for one in waiting:
        one(failure)


def _open_directory(disk: Disk, config: Config) -> DataDirectory:
    holder = f"process {os.getpid()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    try:
        directory = DataDirectory.open(disk, os.path.abspath(config.data_directory), config.node_id, config.cluster_id, holder, new_id)
        directory.begin()
        return directory
    except DirectoryLocked as error:
        raise StartError(str(error), ExitCode.LOCKED) from None
    except DirectoryForeign as error:
        raise StartError(str(error), ExitCode.DATA) from None
    except DirectoryUnusable as error:
        raise StartError(str(error), ExitCode.DIRECTORY) from None


def new_id() -> str:
    """22 characters, as Kafka writes its ids; never beginning with a dash, which command lines take for an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
