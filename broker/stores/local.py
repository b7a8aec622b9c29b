"""Logs in one directory of this machine: one process owns them all (a file lock says so)."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import threading
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from broker.internal_topics import NOTES_LOG, NOTES_SEGMENT_BYTES
from broker.logging.logs import log
from broker.runtime.contain import Contained, failed, run
from broker.runtime.start import ExitCode, StartError, for_whom
from broker.runtime.workers import Workers
from broker.settings.config import Config
from broker.stores.bulk_flush import BulkFlusher, flush_in_parts
from broker.stores.owned import TOPIC_RULES, Done, Flusher, LocalLog, OpenLog, Rules, tell_cut
from broker.stores.turn_flushes import Appended, TurnFlushes
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
    Handles,
    Log,
    LogId,
    NodeInfo,
    OsDisk,
    Recovery,
    Undecided,
    Unreadable,
    describe_error,
)
from storage.turn_format import Lost, NewerTurns
from storage.turn_log import PREFIX, Leftover

FLUSH_THREADS = 4
TOPIC_THREADS = 2  # for the logs of topics, of which there may be thousands: offsets must not wait behind them
OPENING_HANDLES = 4  # in each thread that opens a log
LOG_FILES_MAX = 512
ROOM_SECONDS = 2.0


# Losing some loses evidence, never a commit. Small segments, for they are dropped whole.
NOTES_RULES = Rules("interval", 5.0)
_LOG_NAME = re.compile(r"(.+)-([0-9]+)")


class Cleaner(Protocol):
    """What removes records that nobody needs any more from the logs of a store."""

    def watch(self, id: LogId, log: Log, flush: Callable[[Callable[[Any], None]], None], failed: Callable[[AppendFailed], None]) -> None: ...

    def keep_for(self, id: LogId, log: Log, retention_ms: int, failed: Callable[[AppendFailed], None]) -> None: ...

    def flushed(self, log: Log) -> None: ...

    def forget(self, id: LogId) -> None: ...

    def give_up(self, cleaned: Log) -> None: ...


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

    def __init__(
        self, config: Config, loop: asyncio.AbstractEventLoop, disk: Disk | None = None, log_files_max: int = LOG_FILES_MAX
    ) -> None:
        """`log_files_max`: so many files of logs stay open."""
        self.loop = loop
        self._thread = threading.get_ident()
        self._rules = Rules(config.offsets_flush, config.offsets_flush_interval_ms / 1000)
        self._segment_bytes = config.offsets_topic_segment_bytes
        self.disk = disk or OsDisk()
        self.directory = _open_directory(self.disk, config)
        self.cluster_id = self.directory.cluster_id
        self.handles = Handles(self.disk, log_files_max)
        self._at_once = max(log_files_max // 4, 1)
        if isinstance(self.disk, OsDisk):
            self.disk.make_room = self._close_idle_files
        self.workers = Workers(loop, FLUSH_THREADS)
        self.background_flusher = Workers(loop, 1, yielding=True)  # for flushes that nobody waits for
        self.topic_workers = Workers(loop, TOPIC_THREADS)
        self.bulk_flusher = BulkFlusher(loop, self.disk, self.directory.path, self._at_once)
        self.checkpoint_worker = Workers(loop, 1)  # writes what must be written one at a time: the directory's checkpoints
        self.cleaning: Cleaner | None = None  # set before the first log is acquired, where logs are to be cleaned
        self.topic_ids: dict[str, str] = {}  # kept beside the logs of a topic, as Kafka keeps it
        self._notes_retention_ms = config.notes_retention_ms
        self._me = NodeInfo(config.node_id, ())
        self._logs: dict[LogId, OpenLog] = {}
        self._planned: dict[float, list[Flusher]] = {}  # logs to flush, by how long after their first append
        self._appended: list[Appended] = []  # in this turn, where somebody waits until it is safe
        self.finishing = False
        try:
            self.turn_flushes = TurnFlushes(self.disk, self.directory.path, self.workers, self._flush_each, self._flush_behind)
        except OSError as error:
            self.directory.close()
            raise StartError(f"data directory {self.directory.path}: {error.strerror or error}", ExitCode.DISK) from error
        except NewerTurns as error:
            self.directory.close()
            raise StartError(f"data directory {self.directory.path}: {PREFIX}N: {error}", ExitCode.DATA) from error
        for path, piece in self.turn_flushes.leftover.damage:
            reason = piece.reason if isinstance(piece, Lost) else f"a batch of {piece.name} is not what was written"
            log.error("log of turns is damaged", file=path, position=piece.position, reason=reason)

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
        elif self.disk.exists(self._folder(id)):
            self.workers.submit(partial(self._open, id, self.few_handles()), partial(self._opened, id, done))
        else:
            self._opened(id, done, self._open_new(id))

    def owned(self, id: LogId) -> OpenLog | None:
        """The log, if it is open."""
        return self._logs.get(id)

    def add(self, owned: OpenLog) -> None:
        self._logs[owned.id] = owned

    def few_handles(self) -> Handles:
        """For a thread that opens a log."""
        return Handles(self.disk, OPENING_HANDLES)

    def _folder(self, id: LogId) -> str:
        return self.directory.log_folder(id.name, id.partition)

    def _open_new(self, id: LogId) -> tuple[Log, Recovery] | Exception:
        try:
            return self._open(id, self.handles)
        except (OSError, DamagedLog) as error:  # what was in it may be in a log of turns alone
            return error

    def _open(self, id: LogId, handles: Handles) -> tuple[Log, Recovery]:
        directory = self.directory
        recovery_point = directory.recovery_points.get((id.name, id.partition), 0)
        segment_bytes = NOTES_SEGMENT_BYTES if id.name == NOTES_LOG else self._segment_bytes
        leftover = self.turn_flushes.leftover
        try:
            opened, recovery = Log.open(
                handles,
                self._folder(id),
                segment_bytes,
                recovery_point,
                directory.clean,
                self.topic_ids.get(id.name, ""),
                written_twice=partial(leftover.batches_of, str(id)),
                cut_damage=id.name == NOTES_LOG,
            )
            lacking = leftover.restore(str(id), opened) if id.name != NOTES_LOG else 0
            if lacking:
                log.info("log completed after a crash", log=str(id), batches=lacking)
            return opened, recovery
        finally:
            if handles is not self.handles:
                handles.close()

    def _opened(self, id: LogId, done: Acquired, result: tuple[Log, Recovery] | Exception) -> None:
        opened = self.sound(id, result)
        if self.finishing:
            return
        if isinstance(opened, Unreadable):
            done(opened)
            return
        self.turn_flushes.restored()
        done(self._own(id, Flusher(self, self.workers, opened), opened.epoch))

    def sound(self, id: LogId, result: tuple[Log, Recovery] | Exception) -> Log | Unreadable:
        if isinstance(result, Exception):
            return Unreadable(describe_error(result, self._folder(id)), isinstance(result, DamagedLog))
        opened, recovery = result
        opened.use(self.handles)
        tell_cut(recovery)
        return opened

    def _own(self, id: LogId, flusher: Flusher, epoch: int) -> LocalLog:
        rules = NOTES_RULES if id.name == NOTES_LOG else self._rules
        self._logs[id] = owned = LocalLog(self, self.workers, id, flusher, epoch, rules)
        if self.cleaning is not None:
            if id.name != NOTES_LOG:
                self.cleaning.watch(id, flusher.log, flusher.flush, flusher.broke)
            else:
                self.cleaning.keep_for(id, flusher.log, self._notes_retention_ms, flusher.broke)
        return owned

    def flushed(self, log: Log) -> None:
        if self.cleaning is not None:
            self.cleaning.flushed(log)

    def forget(self, id: LogId) -> None:
        if self.cleaning is not None:
            self.cleaning.forget(id)

    def give_up_compaction(self, log: Log) -> None:
        if self.cleaning is not None:
            self.cleaning.give_up(log)

    def drop(self, id: LogId) -> None:
        """The log is not there any more."""
        self.forget(id)
        self._logs.pop(id, None)

    def flush_topics(self) -> None:
        """What of them is not flushed yet; nobody waits for it."""
        self.bulk_flusher.flush([owned.flusher for owned in self._logs.values() if _is_unflushed(owned)], None)

    def _own_again(self, id: LogId, before: OpenLog, done: Acquired) -> None:
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
        self.finishing = True
        logs = list(self._logs.values())
        waiting = len(logs)
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
                    self.bulk_flusher.close_logs([owned.log for owned in logs], closed)

        def closed(problem: str) -> None:
            if problem:
                done(problem)
            else:
                self.checkpoint_worker.submit(self._mark_clean, lambda problem: done(str(problem or "")))

        if not waiting:
            flushed(None)
        unflushed = []
        ours: list[tuple[Flusher, Done]] = []
        for owned in logs:
            if owned.rules is not TOPIC_RULES:
                ours.append((owned.flusher, flushed))
            elif _is_unflushed(owned):
                unflushed.append(owned.flusher)
            else:
                flushed(None)
        flush_in_parts(self.workers, FLUSH_THREADS, ours, self._at_once)
        self.bulk_flusher.flush(unflushed, flushed)

    def _mark_clean(self) -> str:
        """In a worker thread, when the loop has nothing more to do with the logs: this too waits for the disk."""
        try:
            self.directory.checkpoint({(id.name, id.partition): owned.log.flushed_offset for id, owned in self._logs.items()})
            starts = {(id.name, id.partition): owned.log.start_offset for id, owned in self._logs.items() if owned.log.start_offset}
            self.directory.checkpoint_starts(starts)
            self.turn_flushes.remove_all()
            if not self.unchecked():
                self.directory.mark_clean()
        except OSError as error:
            return describe_error(error, self.directory.path)
        return ""

    def unchecked(self) -> list[LogId]:
        """Logs that nobody has opened since a stop that was not in order: the next start has to look at them."""
        if self.directory.clean:
            return []
        ids = map(log_id_of, self.disk.list(self.directory.path))
        return [id for id in ids if id is not None and id not in self._logs]

    def plan_flush(self, flusher: Flusher, seconds: float) -> None:
        """Flush the log when so much time has passed; nobody waits for it."""
        planned = self._planned.get(seconds)
        if planned is None:
            planned = self._planned[seconds] = []
            self.loop.call_later(seconds, Contained(partial(self._flush_planned, seconds)))
        planned.append(flusher)
        flusher.planned = True

    def _flush_planned(self, seconds: float) -> None:
        flushers = self._planned.pop(seconds)
        for flusher in flushers:
            flusher.planned = False
        self._flush_behind(flushers, None)

    def _flush_behind(self, flushers: list[Flusher], done: Done | None) -> None:
        """Nobody waits for it. `done` hears of each besides who has the log."""
        heard = [partial(_both, flusher.report_failure, done) if done is not None else flusher.report_failure for flusher in flushers]
        flush_in_parts(self.background_flusher, 1, list(zip(flushers, heard, strict=True)), self._at_once)

    def flush_soon(self, flusher: Flusher, batch: bytearray, offset: int, done: Done) -> None:
        """Make safe what was just appended to the log at this offset, together with what others got in this turn."""
        if not self._appended:
            self.loop.call_soon(Contained(self._flush_appended))
        self._appended.append(Appended(flusher, batch, offset, flusher.log.next_offset, done))

    def _flush_appended(self) -> None:
        appended, self._appended = self._appended, []
        try:
            self.turn_flushes.add(appended)
        except Exception as error:
            failed(self._flush_appended, error)
            for one in appended:  # some of it may be safe; who hears twice has heard the first time
                run(one.done, Undecided("a defect in this version"))

    def written_twice(self, id: LogId) -> list[bytes]:
        """Batches of the log that are in another file too; in any thread. Raises OSError."""
        return Leftover(self.disk, self.directory.path).batches_of(str(id))

    def _flush_each(self, appended: list[Appended]) -> None:
        flush_in_parts(self.workers, FLUSH_THREADS, [(one.flusher, one.done) for one in appended], self._at_once)

    def _close_idle_files(self) -> bool:
        """No descriptor is left, in whatever thread: files of logs that nobody uses just now give theirs back."""
        if threading.get_ident() == self._thread:
            return self.handles.close_idle()
        closed: SimpleQueue[bool] = SimpleQueue()
        try:
            self.loop.call_soon_threadsafe(Contained(lambda: closed.put(self.handles.close_idle())))
            return closed.get(timeout=ROOM_SECONDS)
        except (RuntimeError, Empty):  # the loop is closed, or has other things to do
            return False

    def close(self) -> None:
        self.turn_flushes.close()
        self.workers.close()
        self.background_flusher.close()
        self.topic_workers.close()
        self.bulk_flusher.close()
        self.checkpoint_worker.close()
        self.handles.close()
        self.directory.close()


def _both(first: Done, second: Done, failure: AppendFailed | None) -> None:
    first(failure)
    second(failure)


def _is_unflushed(owned: OpenLog) -> bool:
    log = owned.log
    return owned.rules is TOPIC_RULES and (log.flushed_offset < log.next_offset or not log.usable)


def log_id_of(name: str) -> LogId | None:
    """Of a folder of that name; None: it is not the folder of a log."""
    match = _LOG_NAME.fullmatch(name)
    return LogId(match[1], int(match[2])) if match is not None else None


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
        # Compiled code sets `__context__` alone.
        raise StartError(f"{error}{for_whom(error.__cause__ or error.__context__)}", ExitCode.DIRECTORY) from None


def id_text(id: bytes) -> str:
    """22 characters, as Kafka writes its ids."""
    return base64.urlsafe_b64encode(id).decode().rstrip("=")


def new_id() -> str:
    """Never beginning with a dash, which command lines take for an option."""
    while True:
        text = id_text(uuid.uuid4().bytes)
        if not text.startswith("-"):
            return text
