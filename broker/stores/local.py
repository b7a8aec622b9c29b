"""Logs in one directory of this machine: one process owns them all (a file lock says so)."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from broker.cleaning import Cleaning
from broker.config import Config
from broker.logs import get_logger
from broker.start import ExitCode, StartError
from broker.topics import CONSUMER_OFFSETS, NOTES_LOG, REGISTRY_LOG
from broker.workers import Workers
from protocol.batch import Fact
from storage import (
    Acquired,
    AppendFailed,
    ClusterView,
    DamagedLog,
    DataDirectory,
    DirectoryForeign,
    DirectoryLocked,
    DirectoryUnusable,
    Disk,
    Flush,
    Handles,
    Log,
    LogId,
    NodeInfo,
    OsDisk,
    Position,
    Recovery,
    Repair,
    Unreadable,
    told,
)

log = get_logger("broker.store")

FLUSH_THREADS = 4
OPENING_THREADS = 2  # for the logs of topics, of which there may be thousands: offsets must not wait behind them
OPENING_HANDLES = 8


class Rules(NamedTuple):
    """How logs of one name are written."""

    segment_bytes: int
    flush: str  # as offsets.flush
    flush_seconds: float  # with `interval`


# Losing some loses evidence, never a commit. Small segments, for they are dropped whole.
NOTES_RULES = Rules(16 << 20, "interval", 5.0)
OUR_LOGS = (CONSUMER_OFFSETS, NOTES_LOG, REGISTRY_LOG)
_IS_LOG = re.compile(r"(.+)-([0-9]+)")

Appended = Callable[[Position | AppendFailed], None]
Done = Callable[[AppendFailed | None], None]


class Alone:
    """The ClusterView of a directory that one process has: it owns every log."""

    def __init__(self, me: NodeInfo) -> None:
        self._me = me

    def nodes(self) -> list[NodeInfo]:
        return [self._me]

    def owner(self, log: LogId) -> NodeInfo | None:
        return self._me


class LocalStore:
    """A LogStore over the data directory. Raises StartError when that cannot be used."""

    def __init__(self, config: Config, loop: asyncio.AbstractEventLoop, disk: Disk | None = None) -> None:
        self.loop = loop
        self._rules = Rules(config.offsets_topic_segment_bytes, config.offsets_flush, config.offsets_flush_interval_ms / 1000)
        self._disk = disk or OsDisk()
        self.directory = _open_directory(self._disk, config)
        self.cluster_id = self.directory.cluster_id
        self.handles = Handles(self._disk)
        self.workers = Workers(loop, FLUSH_THREADS)
        self.openers = Workers(loop, OPENING_THREADS)
        self.cleaning: Cleaning | None = None  # set before the first log is acquired, where logs are to be cleaned
        self.topic_ids: dict[str, str] = {}  # kept beside the logs of a topic, as Kafka keeps it
        self.topic_rules: Callable[[LogId], int] | None = None  # segment.bytes of the logs that are topics'
        self._notes_retention_ms = config.notes_retention_ms
        self._me = NodeInfo(config.node_id, ())
        self._logs: dict[LogId, LocalLog] = {}
        self._planned: dict[float, dict[Flusher, None]] = {}  # logs to flush, by how long after their first append
        self._finishing = False

    def start(self, me: NodeInfo) -> None:
        """This is how clients find us: known once the listeners are open."""
        self._me = me

    def view(self) -> ClusterView:
        return Alone(self._me)

    def acquire(self, id: LogId, done: Acquired) -> None:
        """A log that exists is opened in a worker thread, for it may have to be read; a new one at once."""
        known = self._logs.get(id)
        if known is not None:
            self._own_again(id, known, done)
        elif self._disk.exists(self._folder(id)):
            workers = self.openers if self._is_topics(id) else self.workers
            workers.submit(partial(self._open, id, Handles(self._disk, OPENING_HANDLES)), partial(self._opened, id, done))
        else:
            self._opened(id, done, self._open(id, self.handles))

    def rules(self, id: LogId) -> Rules:
        if id.name == NOTES_LOG:
            return NOTES_RULES
        if self.topic_rules is not None and self._is_topics(id):
            return Rules(self.topic_rules(id), "never", 0.0)
        return self._rules

    def _is_topics(self, id: LogId) -> bool:
        return self.topic_rules is not None and id.name not in OUR_LOGS

    def owned(self, id: LogId) -> LocalLog | None:
        """The log, if it is open."""
        return self._logs.get(id)

    def _folder(self, id: LogId) -> str:
        return self.directory.log_folder(id.name, id.partition)

    def _open(self, id: LogId, handles: Handles) -> tuple[Log, Recovery]:
        directory = self.directory
        recovery_point = directory.recovery_points.get((id.name, id.partition), 0)
        try:
            return Log.open(
                handles, self._folder(id), self.rules(id).segment_bytes, recovery_point, directory.clean, self.topic_ids.get(id.name, "")
            )
        finally:
            if handles is not self.handles:
                handles.close()

    def _opened(self, id: LogId, done: Acquired, result: tuple[Log, Recovery] | Exception) -> None:
        if self._finishing:
            return
        if isinstance(result, Exception):
            done(Unreadable(told(result, self._folder(id)), isinstance(result, DamagedLog)))
            return
        opened, recovery = result
        opened.use(self.handles)
        if recovery.cut_bytes:
            log.warning(
                "torn end of a log cut off",
                file=recovery.path,
                position=recovery.position,
                bytes=recovery.cut_bytes,
                reason=recovery.reason,
            )
        done(self._own(id, Flusher(self, opened), opened.epoch))

    def _own(self, id: LogId, flusher: Flusher, epoch: int) -> LocalLog:
        self._logs[id] = owned = LocalLog(self, id, flusher, epoch)
        if self.cleaning is not None:
            if self._is_topics(id):
                pass
            elif id.name != NOTES_LOG:
                self.cleaning.watch(id, flusher.log, flusher.flush, flusher.broke)
            elif self._notes_retention_ms >= 0:
                self.cleaning.keep_for(id, flusher.log, self._notes_retention_ms, flusher.broke)
        return owned

    def forget(self, id: LogId) -> None:
        if self.cleaning is not None:
            self.cleaning.forget(id)

    def _own_again(self, id: LogId, before: LocalLog, done: Acquired) -> None:
        """It was ours, and released: nobody else can have written."""

        def recovered(failure: AppendFailed | None) -> None:
            if failure is not None:
                done(Unreadable(str(failure), False))
            else:
                done(self._own(id, before.flusher, before.log.claim()))

        if before.log.usable:
            recovered(None)
        else:
            before.recover(recovered)

    def finish(self, sound: bool, done: Callable[[str], None]) -> None:
        """Flush and close every log and say, where all is `sound`, that the next start need not check them.

        `done` hears what went wrong, or "".
        """
        self._finishing = True
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
            owned.flusher.flush(flushed)

    def _mark_clean(self) -> str:
        """In a worker thread, when the loop has nothing more to do with the logs: this too waits for the disk."""
        try:
            for owned in self._logs.values():
                owned.log.close()
            self.directory.checkpoint({(id.name, id.partition): owned.log.flushed_offset for id, owned in self._logs.items()})
            if not self.unchecked():
                self.directory.mark_clean()
        except OSError as error:
            return told(error, self.directory.path)
        return ""

    def unchecked(self) -> list[LogId]:
        """Logs that nobody has opened since a stop that was not in order: the next start has to look at them."""
        if self.directory.clean:
            return []
        found = [match for name in self._disk.list(self.directory.path) if (match := _IS_LOG.fullmatch(name)) is not None]
        ids = [LogId(match[1], int(match[2])) for match in found]
        return [id for id in ids if id not in self._logs]

    def plan_flush(self, flusher: Flusher, seconds: float) -> None:
        """Flush the log when so much time has passed; nobody waits for it."""
        planned = self._planned.get(seconds)
        if planned is None:
            planned = self._planned[seconds] = {}
            self.loop.call_later(seconds, partial(self._flush_planned, seconds))
        planned[flusher] = None

    def _flush_planned(self, seconds: float) -> None:
        """All of them by one thread, one behind the other: waking a thread for each costs more than most flushes."""
        begun: list[tuple[Flusher, Flush]] = []
        for flusher in self._planned.pop(seconds):
            flush = flusher.begin(flusher.told_nobody)
            if flush is not None:
                begun.append((flusher, flush))
        if begun:
            flushes = [flush for _, flush in begun]
            self.workers.submit(partial(run_all, flushes), partial(self._flushed_planned, begun))

    def _flushed_planned(self, begun: list[tuple[Flusher, Flush]], results: list[Exception | None]) -> None:
        for (flusher, flush), result in zip(begun, results, strict=True):
            flusher.flushed(flush, flusher.told_nobody, result)

    def close(self) -> None:
        self.workers.close()
        self.openers.close()
        self.handles.close()
        self.directory.close()


def run_all(flushes: list[Flush]) -> list[Exception | None]:
    """What became of each; in a worker thread."""
    results: list[Exception | None] = []
    for flush in flushes:
        try:
            flush.run()
        except Exception as error:
            results.append(error)
        else:
            results.append(None)
    return results


class Flusher:
    """The flushes of one log: in worker threads, one at a time."""

    def __init__(self, store: LocalStore, log: Log) -> None:
        self.log = log
        self.busy = False
        self.failed: Callable[[AppendFailed], None] = lambda failure: None
        self.grown: Callable[[], None] | None = None  # hears when there is more that may be read
        self._store = store
        self._next: list[Done] = []

    def flush(self, done: Done) -> None:
        """Who comes while one is under way is served by the next."""
        flush = self.begin(done)
        if flush is not None:
            self._store.workers.submit(flush.run, partial(self.flushed, flush, done))

    def begin(self, done: Done) -> Flush | None:
        """A flush to run and to tell of with `flushed`; None: `done` will hear of another one, or has heard that it cannot be."""
        if self.busy:
            self._next.append(done)
            return None
        try:
            flush = self.log.start_flush()
        except AppendFailed as failure:
            done(failure)
            return None
        self.busy = True
        return flush

    def flushed(self, flush: Flush, done: Done, result: object) -> None:
        self.busy = False
        failure: AppendFailed | None = None
        try:
            self.log.finish_flush(flush, result if isinstance(result, Exception) else None)
        except AppendFailed as error:
            failure = error
        if self._store.cleaning is not None and failure is None:
            self._store.cleaning.flushed(self.log)
        if self.grown is not None:
            self.grown()
        waiting, self._next = self._next, []
        if waiting:
            # Started before anybody hears of this one; after a failure it fails at once.
            self.flush(partial(_tell, waiting))
        done(failure)

    def broke(self, failure: AppendFailed) -> None:
        """Whoever owns the log now hears of it."""
        self.failed(failure)

    def told_nobody(self, failure: AppendFailed | None) -> None:
        """A flush for which nobody waited came to its end."""
        if failure is not None:
            self.failed(failure)


class LocalLog:
    """One log of the store, at the epoch at which it was acquired."""

    def __init__(self, store: LocalStore, id: LogId, flusher: Flusher, epoch: int) -> None:
        self.id = id
        self.log = flusher.log
        self.flusher = flusher
        self.epoch = epoch
        self._rules = rules = store.rules(id)
        self._always = rules.flush == "always"
        self._interval = rules.flush == "interval"
        self._store = store

    def usable(self) -> bool:
        return self.log.usable and self.epoch == self.log.epoch

    @property
    def newest_timestamp(self) -> int:
        return self.log.newest_timestamp

    @property
    def durable_offset(self) -> int:
        """Everything before it is true. With `always` nobody was told of what is not flushed."""
        return self.log.flushed_offset if self._always else self.log.next_offset

    def replay(self) -> Iterator[list[Fact]]:
        return self.log.facts(end=self.durable_offset)

    def append(self, batch: bytes | bytearray, records: int, done: Appended) -> None:
        try:
            position = Position(self.log.append(batch, self.epoch))
        except AppendFailed as failure:
            done(failure)
            return
        if self._always:
            self.flusher.flush(lambda failure: done(failure or position))
            return
        if self._interval:
            self._store.plan_flush(self.flusher, self._rules.flush_seconds)
        if self.flusher.grown is not None:
            self.flusher.grown()
        done(position)

    def watch(self, failed: Callable[[AppendFailed], None]) -> None:
        self.flusher.failed = failed

    def recover(self, done: Done) -> None:
        """Try whether writing works again; if so, cut the log back to what was acknowledged."""
        if self.flusher.busy:
            done(AppendFailed("the flush under way does not end"))
            return
        repair = self.log.start_repair(keep_unflushed=not self._always)
        self._store.workers.submit(repair.run, partial(self._repaired, repair, done))

    def _repaired(self, repair: Repair, done: Done, result: object) -> None:
        if isinstance(result, Exception):
            done(AppendFailed(told(result, self.log.folder)))
            return
        self.log.finish_repair(repair)
        done(None)

    def release(self) -> None:
        self._store.forget(self.id)
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


def id_text(id: bytes) -> str:
    """22 characters, as Kafka writes its ids."""
    return base64.urlsafe_b64encode(id).decode().rstrip("=")


def new_id() -> str:
    """Never beginning with a dash, which command lines take for an option."""
    while True:
        text = id_text(uuid.uuid4().bytes)
        if not text.startswith("-"):
            return text
