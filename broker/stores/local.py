"""A LogStore over the data directory; a file lock makes this process its only owner."""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from queue import Empty, SimpleQueue
from typing import NamedTuple, cast

from broker.internal_topics import CONSUMER_OFFSETS, NOTES_LOG, NOTES_SEGMENT_BYTES
from broker.logging.logs import log
from broker.runtime.contain import Contained, report_failed, run_contained
from broker.runtime.start import ExitCode, StartError, describe_permissions
from broker.runtime.workers import Workers
from broker.settings.config import Config
from broker.stores.bulk_flush import THREADS as CLOSING_THREADS
from broker.stores.bulk_flush import BulkFlusher, flush_in_parts
from broker.stores.compaction import LogCleaner
from broker.stores.owned import TOPIC_RULES, Done, Flusher, FlushRules, LocalLog, OpenLog, log_truncation
from broker.stores.tokens import RandomBytes, fresh_cluster_id, fresh_token
from broker.stores.turn_flushes import TurnFlushes, UnflushedBatch
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
    SharedDisk,
    Truncation,
    Undecided,
    Unreadable,
    describe_error,
)
from storage.directory import OWNERS_FILE, check_location
from storage.segment import may_have_segments
from storage.turn_format import LostTurns, NewerTurns, StoredBatch
from storage.turn_log import PREFIX, LeftoverTurns

FLUSH_THREADS = 4
TOPIC_THREADS = 2  # for topic logs, of which there may be thousands: offsets logs must not wait for them
OPENING_HANDLES = 4  # in each thread that opens a log
LOG_FILES_MAX = 512
CLOSE_IDLE_SECONDS = 2.0
NAMES_SHOWN_MAX = 5

# Notes, which explain rebalances to people, are flushed every five seconds: a crash may lose some.
NOTES_RULES = FlushRules("interval", 5.0)
_LOG_NAME = re.compile(r"(.+)-([0-9]+)")


class Inherited(NamedTuple):
    """The state in which the last writer left a log, read before it is opened."""

    recovery_point: int  # records before it were flushed: damage there is not caused by a power failure
    start_offset: int  # records before it were deleted
    clean: bool  # closed in order: no check is needed
    leftover: LeftoverTurns  # the `turns.N` files, with batches that a crash may have lost from the log


class SingleNodeView:
    """The ClusterView of a single broker, which owns every log."""

    def __init__(self, me: NodeInfo) -> None:
        self._me = me

    def nodes(self) -> list[NodeInfo]:
        return [self._me]

    def owner(self, log: LogId) -> NodeInfo | None:
        return self._me


class LocalStore:
    """A LogStore over the data directory. Raises StartError when the directory cannot be used."""

    def __init__(
        self,
        config: Config,
        loop: asyncio.AbstractEventLoop,
        disk: Disk | None = None,
        log_files_max: int = LOG_FILES_MAX,
        new_workers: Callable[[asyncio.AbstractEventLoop, int, bool], Workers] = Workers,
        random_bytes: RandomBytes = os.urandom,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`log_files_max`: the most log files to keep open. `new_workers` gets the arguments of Workers."""
        self.loop = loop
        self._loop_thread = threading.get_ident()
        self._rules = FlushRules(config.offsets_flush, config.offsets_flush_interval_ms / 1000)
        self._segment_bytes = config.offsets_topic_segment_bytes
        self.disk = disk or OsDisk()
        # The epochs of logs that several nodes owned before this single broker: clients refuse a lower leader epoch.
        self._epoch_before: Callable[[LogId], int] = lambda id: 0
        self._close_epochs: Callable[[], None] = lambda: None
        self.directory = self._open_directory(config, partial(fresh_cluster_id, random_bytes))
        self.fresh_token = partial(fresh_token, random_bytes)
        self.cluster_id = self.directory.cluster_id
        self.handles = Handles(self.disk, log_files_max)
        self._flush_concurrency = max(log_files_max // 4, 1)
        if isinstance(self.disk, OsDisk):
            self.disk.make_room = self._close_idle_files
        self.workers = new_workers(loop, FLUSH_THREADS, False)
        self.background_flusher = new_workers(loop, 1, True)  # for flushes for which no reply waits
        self.topic_workers = new_workers(loop, TOPIC_THREADS, False)
        self.bulk_flusher = BulkFlusher(new_workers(loop, CLOSING_THREADS, False), self.disk, self.directory.path, self._flush_concurrency, monotonic)
        self.checkpoint_worker = new_workers(loop, 1, False)  # one thread: checkpoints are written one after another
        self.cleaning: LogCleaner | None = None  # set before the first log is acquired; None: no compaction
        self.topic_ids: dict[str, str] = {}  # topic name -> id, for partition.metadata
        self._notes_retention_ms = config.notes_retention_ms
        self._me = NodeInfo(config.node_id, ())
        self._logs: dict[LogId, OpenLog] = {}
        self._scheduled: dict[float, list[Flusher]] = {}  # logs to flush, by delay after their first append
        self._appended: list[UnflushedBatch] = []  # this turn's appends whose replies wait for a flush
        self.finishing = False
        try:
            self.turn_flushes = TurnFlushes(self.disk, self.directory.path, self.workers, self._flush_each, self._flush_in_background, monotonic)
        except OSError as error:
            self.directory.close()
            raise StartError(f"data directory {self.directory.path}: {error.strerror or error}", ExitCode.DISK) from error
        except NewerTurns as newer:
            self.directory.close()
            raise StartError(f"data directory {self.directory.path}: {PREFIX}N: {newer}", ExitCode.DATA) from newer
        for path, piece in self.turn_flushes.leftover.damage:
            log_turn_damage(path, piece)

    def _open_directory(self, config: Config, new_id: Callable[[], str]) -> DataDirectory:
        path = os.path.abspath(config.data_directory)

        def open_or_merge(holder: str) -> DataDirectory:
            try:
                return DataDirectory.open(self.disk, path, config.node_id, config.cluster_id, holder, new_id)
            except DirectoryForeign:
                if not self._merge_nodes(path, config.node_id, holder):
                    raise
            return DataDirectory.open(self.disk, path, config.node_id, config.cluster_id, holder, new_id)

        directory = open_directory(self.disk, path, open_or_merge)
        try:
            if self.disk.exists(f"{path}/{OWNERS_FILE}"):
                from storage.owners import OwnerTable  # not needed by most brokers

                table = OwnerTable(cast(SharedDisk, self.disk), path)
                self._epoch_before = lambda id: table.read(id).epoch
                self._close_epochs = table.close
        except OSError as error:
            directory.close()
            raise StartError(f"data directory {path}: {error.strerror or error}", ExitCode.DISK) from error
        return directory

    def _merge_nodes(self, path: str, node_id: int, holder: str) -> bool:
        """Convert a data directory of several nodes for this broker; False: it is not such a directory."""
        from storage.node_merge import is_shared, merge_nodes  # needed at most once

        if not is_shared(self.disk, path):
            return False
        try:
            merge_nodes(cast(SharedDisk, self.disk), path, node_id, holder)
        except OSError as error:
            raise DirectoryUnusable(f"data directory {path}: {error.strerror or error}") from error
        log.info("the data directory of several nodes was converted for this broker")
        return True

    def start(self, me: NodeInfo) -> None:
        self._me = me

    def view(self) -> ClusterView:
        return SingleNodeView(self._me)

    def acquire(self, id: LogId, done: Acquired) -> None:
        """Open the log: an existing one in a worker thread, since it may have to be read; a new one at once."""
        owned = self._logs.get(id)
        if owned is not None:
            self._reacquire(id, owned, done)
        elif self.disk.exists(self._folder(id)):
            self.workers.submit(partial(self._open, id, self.new_handles()), partial(self._opened, id, done))
        else:
            self._opened(id, done, self._open_new(id))

    def owned_log(self, id: LogId) -> OpenLog | None:
        """The log, if it is open."""
        return self._logs.get(id)

    def add(self, owned: OpenLog) -> None:
        self._logs[owned.id] = owned

    def new_handles(self) -> Handles:
        """File handles for a thread that opens a log."""
        return Handles(self.disk, OPENING_HANDLES)

    def _folder(self, id: LogId) -> str:
        return self.directory.log_folder(id.name, id.partition)

    def inherited(self, id: LogId, is_new: bool = False) -> Inherited:
        """The state in which the previous process left the log. Called in any thread; raises OSError.

        `is_new`: the log's folder was that of another topic, whose checkpoint entries were removed.
        """
        directory = self.directory
        return Inherited(
            directory.recovery_points.get(id, 0), directory.log_starts.get(id, 0), directory.clean, self.turn_flushes.leftover
        )

    @property
    def data_path(self) -> str:
        return self.directory.path

    def _open_new(self, id: LogId) -> tuple[Log, Truncation] | Exception:
        try:
            return self._open(id, self.handles)
        except (OSError, DamagedLog) as error:  # `turns.N` may hold batches for a log without a folder
            return error

    def _open(self, id: LogId, handles: Handles) -> tuple[Log, Truncation]:
        inherited = self.inherited(id)
        segment_bytes = NOTES_SEGMENT_BYTES if id.name == NOTES_LOG else self._segment_bytes
        leftover = inherited.leftover
        try:
            opened, truncation = Log.open(
                handles,
                self._folder(id),
                segment_bytes,
                inherited.recovery_point,
                inherited.clean,
                self.topic_ids.get(id.name, ""),
                batch_copies=partial(leftover.batches_of, str(id)),
                cut_damage=id.name == NOTES_LOG or (id.name == CONSUMER_OFFSETS and self._rules.flush != "always"),
            )
            restored = leftover.restore(str(id), opened) if id.name != NOTES_LOG else 0
            if restored:
                log.info("log completed after a crash", log=str(id), batches=restored)
            return opened, truncation
        finally:
            if handles is not self.handles:
                handles.close()

    def _opened(self, id: LogId, done: Acquired, result: tuple[Log, Truncation] | Exception) -> None:
        opened = self.check_opened(id, result)
        if self.finishing:
            return
        if isinstance(opened, Unreadable):
            done(opened)
            return
        self.turn_flushes.remove_restored_files()
        done(self._register(id, Flusher(self, self.workers, opened), opened.epoch))

    def check_opened(self, id: LogId, result: tuple[Log, Truncation] | Exception) -> Log | Unreadable:
        if isinstance(result, Exception):
            return Unreadable(describe_error(result, self._folder(id)), isinstance(result, DamagedLog))
        opened, truncation = result
        opened.use(self.handles)
        log_truncation(truncation)
        opened.epoch = max(opened.epoch, self._epoch_before(id))
        return opened

    def _register(self, id: LogId, flusher: Flusher, epoch: int) -> LocalLog:
        rules = NOTES_RULES if id.name == NOTES_LOG else self._rules
        self._logs[id] = owned = LocalLog(self, self.workers, id, flusher, epoch, rules)
        if self.cleaning is not None:
            if id.name != NOTES_LOG:
                self.cleaning.watch(id, flusher.log, flusher.flush, flusher.report_failure)
            else:
                self.cleaning.watch_retention(id, flusher.log, self._notes_retention_ms, flusher.report_failure)
        return owned

    def flushed(self, log: Log) -> None:
        if self.cleaning is not None:
            self.cleaning.flushed(log)

    def flushed_offsets(self) -> dict[tuple[str, int], int]:
        """The flushed offsets of the internal logs, which become their recovery points."""
        return {(id.name, id.partition): owned.log.flushed_offset for id, owned in self._logs.items() if owned.rules is not TOPIC_RULES}

    def forget(self, id: LogId) -> None:
        if self.cleaning is not None:
            self.cleaning.forget(id)

    def cancel_compaction(self, log: Log) -> None:
        if self.cleaning is not None:
            self.cleaning.cancel(log)

    def drop(self, id: LogId) -> None:
        """Stop compacting the log and forget it: it was deleted, or this store no longer has it open."""
        self.forget(id)
        self._logs.pop(id, None)

    def flush_topics(self) -> None:
        self.bulk_flusher.flush([owned.flusher for owned in self._logs.values() if _is_unflushed(owned)], None)

    def _reacquire(self, id: LogId, before: OpenLog, done: Acquired) -> None:
        """Acquire a released log again: no other process can have written to it."""

        def recovered(failure: AppendFailed | None) -> None:
            if failure is not None:
                done(Unreadable(str(failure), False))
            else:
                done(self._register(id, before.flusher, before.log.claim()))

        if before.log.usable:
            recovered(None)
        else:
            before.recover(recovered)

    def finish(self, all_written: bool, done: Callable[[str], None]) -> None:
        """Flush and close every log; then, if `all_written`, mark the directory clean, so that the next start skips the checks.

        The directory is not marked if a flush failed or a log has not been opened since a crash. `done` gets the first problem, or "".
        """
        self.finishing = True
        logs = list(self._logs.values())
        waiting = len(logs)
        failures = [] if all_written else ["not everything was written"]

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
        internal: list[tuple[Flusher, Done]] = []
        for owned in logs:
            if owned.rules is not TOPIC_RULES:
                internal.append((owned.flusher, flushed))
            elif _is_unflushed(owned):
                unflushed.append(owned.flusher)
            else:
                flushed(None)
        flush_in_parts(self.workers, FLUSH_THREADS, internal, self._flush_concurrency)
        self.bulk_flusher.flush(unflushed, flushed)

    def _mark_clean(self) -> str:
        """Write the checkpoints and, if all logs were opened, the clean marker. In a worker thread, once the loop no longer uses the logs."""
        try:
            self.directory.checkpoint({(id.name, id.partition): owned.log.flushed_offset for id, owned in self._logs.items()})
            starts = {(id.name, id.partition): owned.log.start_offset for id, owned in self._logs.items() if owned.log.start_offset}
            self.directory.checkpoint_starts(starts)
            self.turn_flushes.remove_all()
            unchecked = self.unchecked_logs()
            if not unchecked:
                self.directory.mark_clean()
            else:  # the marker would cover these logs too, also for a Kafka broker that is started on this directory
                names = ", ".join(map(str, unchecked[:NAMES_SHOWN_MAX]))
                log.warning("the next start checks all logs: some were not opened since a crash", count=len(unchecked), folders=names)
        except OSError as error:
            return describe_error(error, self.directory.path)
        return ""

    def unchecked_logs(self) -> list[LogId]:
        if self.directory.clean:
            return []
        ids = map(log_id_of, self.disk.list(self.directory.path))
        return [id for id in ids if id is not None and id not in self._logs and may_have_segments(self.disk, self._folder(id))]

    def schedule_flush(self, flusher: Flusher, seconds: float) -> None:
        scheduled = self._scheduled.get(seconds)
        if scheduled is None:
            scheduled = self._scheduled[seconds] = []
            self.loop.call_later(seconds, Contained(partial(self._flush_scheduled, seconds)))
        scheduled.append(flusher)
        flusher.scheduled = True

    def _flush_scheduled(self, seconds: float) -> None:
        flushers = self._scheduled.pop(seconds)
        for flusher in flushers:
            flusher.scheduled = False
        self._flush_in_background(flushers, None)

    def _flush_in_background(self, flushers: list[Flusher], done: Done | None) -> None:
        """Flush logs for which no reply waits. A failure is reported to the log's owner; `done` gets the result of each log."""
        callbacks = [partial(_call_both, flusher.report_failure, done) if done is not None else flusher.report_failure for flusher in flushers]
        flush_in_parts(self.background_flusher, 1, list(zip(flushers, callbacks, strict=True)), self._flush_concurrency)

    def flush_at_turn_end(self, flusher: Flusher, batch: bytearray, offset: int, done: Done) -> None:
        if not self._appended:
            self.loop.call_soon(Contained(self._flush_appended))
        self._appended.append(UnflushedBatch(flusher, batch, offset, flusher.log.next_offset, done))

    def _flush_appended(self) -> None:
        appended, self._appended = self._appended, []
        try:
            self.turn_flushes.add(appended)
        except Exception as error:
            report_failed(self._flush_appended, error)
            for append in appended:  # a second callback, for an append already flushed, has no effect
                run_contained(append.done, Undecided("a defect in this version"))

    def batch_copies(self, id: LogId) -> list[bytes]:
        return LeftoverTurns(self.disk, self.directory.path).batches_of(str(id))

    def _flush_each(self, appended: list[UnflushedBatch]) -> None:
        flush_in_parts(self.workers, FLUSH_THREADS, [(append.flusher, append.done) for append in appended], self._flush_concurrency)

    def _close_idle_files(self) -> bool:
        """Close idle log files when the process runs out of descriptors. Called in any thread."""
        if threading.get_ident() == self._loop_thread:
            return self.handles.close_idle()
        closed: SimpleQueue[bool] = SimpleQueue()
        try:
            self.loop.call_soon_threadsafe(Contained(lambda: closed.put(self.handles.close_idle())))
            return closed.get(timeout=CLOSE_IDLE_SECONDS)
        except (RuntimeError, Empty):  # the loop is closed, or busy
            return False

    def close(self) -> None:
        self.turn_flushes.close()
        self.workers.close()
        self.background_flusher.close()
        self.topic_workers.close()
        self.bulk_flusher.close()
        self.checkpoint_worker.close()
        self.handles.close()
        self._close_epochs()
        self.directory.close()


def _call_both(first: Done, second: Done, failure: AppendFailed | None) -> None:
    first(failure)
    second(failure)


def _is_unflushed(owned: OpenLog) -> bool:
    log = owned.log
    return owned.rules is TOPIC_RULES and (log.flushed_offset < log.next_offset or not log.usable)


def log_turn_damage(path: str, piece: LostTurns | StoredBatch) -> None:
    reason = piece.reason if isinstance(piece, LostTurns) else f"a batch of {piece.name} is damaged"
    log.error("log of turns is damaged", file=path, position=piece.position, reason=reason)


def log_id_of(name: str) -> LogId | None:
    """The log in a folder of this name; None: not a log folder."""
    match = _LOG_NAME.fullmatch(name)
    return LogId(match[1], int(match[2])) if match is not None else None


def open_directory(disk: Disk, path: str, open_with_holder: Callable[[str], DataDirectory]) -> DataDirectory:
    """Open the data directory; its lock file then describes this process. Raises StartError."""
    holder = f"process {os.getpid()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    try:
        check_location(disk, path)
        directory = open_with_holder(holder)
        directory.remove_clean_marker()
        return directory
    except DirectoryLocked as locked:
        raise StartError(str(locked), ExitCode.LOCKED) from None
    except DirectoryForeign as foreign:
        raise StartError(str(foreign), ExitCode.DATA) from None
    except DirectoryUnusable as error:
        # Compiled code sets only `__context__`.
        raise StartError(f"{error}{describe_permissions(error.__cause__ or error.__context__)}", ExitCode.DIRECTORY) from None
