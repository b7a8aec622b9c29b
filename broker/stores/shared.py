"""A LogStore over a data directory that several nodes on one machine share; experimental.

A log belongs to the node that holds the lock on the log's byte of the lock file. The byte is that of a name, which topics may have one after
the other: so a node locks it for the log of one topic, and whatever it does with the lock and the log's slot names that topic. A node takes over the log of a dead node as a single
broker opens a log after a crash: it reads the log's last segment and the dead node's checkpoints and `turns.N`. The table of owners
names the dead node as the last writer until the new owner has opened the log. If the new owner dies before that, the next one reads the
same files.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable, Container
from functools import partial
from typing import Final

from broker.internal_topics import CONSUMER_OFFSETS, NOTES_LOG, owning_log
from broker.logging.logs import log
from broker.runtime.contain import Contained, run_contained
from broker.runtime.repeating import Repeating
from broker.runtime.start import ExitCode, StartError
from broker.runtime.workers import Workers
from broker.settings.config import Config
from broker.stores.local import LOG_FILES_MAX, Inherited, LocalStore, log_id_of, log_turn_damage, open_directory
from broker.stores.node_files import NewLiveNodes, NodeFiles
from broker.stores.owned import OpenLog
from broker.stores.tokens import RandomBytes
from broker.stores.topic_logs import LocalTopicStore
from storage import (
    Acquired,
    AppendFailed,
    DataDirectory,
    DirectoryLocked,
    HeldBy,
    LogId,
    NodeInfo,
    OsDisk,
    OwnedLog,
    SharedDisk,
    TopicInfo,
    TopicLog,
    Unreadable,
)
from storage.checkpoints import LOG_STARTS, RECOVERY_POINTS, read_offset
from storage.directory import CLEAN_SHUTDOWN_FILE
from storage.node_directory import NODES_FOLDER, SINGLE, NodeDirectory, node_folder
from storage.owners import (
    FREE,
    GONE,
    LOCKS_FILE,
    NO_SLOT,
    NO_TOPIC,
    NO_WRITER,
    OWNED,
    SINGLE_BROKER,
    OwnerTable,
    Slot,
    lock_byte_of,
    writer_closed,
    writer_open,
)
from storage.turn_log import LeftoverTurns, turn_log_sizes

START_SECONDS: Final = 5.0  # for other nodes to prepare the directory, and for watchers to release this node's file
START_PAUSE_SECONDS: Final = 0.05
FIND_NODES_SECONDS: Final = 0.5  # between two searches for new nodes
WARN_SECONDS: Final = 15.0  # between two warnings that the search fails
BUSY_SECONDS: Final = 0.02
PROBE_BYTE: Final = 1 << 62  # after the bytes of all logs


class SharedStoreView:
    """The live nodes and the table of owners."""

    def __init__(self, node_id: int, table: OwnerTable, locked_logs: Container[LogId]) -> None:
        self.live: dict[int, NodeInfo] = {}
        self.changes = 0  # the number of changes of live nodes
        self._node_id = node_id
        self._table = table
        self._locked_logs = locked_logs

    @property
    def version(self) -> object:
        return self.changes, self._table.version

    def nodes(self) -> list[NodeInfo]:
        return sorted(self.live.values())

    def owner(self, log: LogId) -> NodeInfo | None:
        log = owning_log(log)
        node = self._table.owner(log)
        if node == self._node_id and log not in self._locked_logs:
            return None
        return self.live.get(node)

    def epoch(self, log: LogId) -> int:
        return self._table.read(owning_log(log)).epoch

    def since_ms(self, log: LogId) -> int:
        """When the log's owner acquired it, in milliseconds since 1970."""
        return self._table.read(owning_log(log)).since_ms


class LockedLog:
    """The log of one topic whose byte this node has locked. Only whoever has this object gives the lock up."""

    __slots__ = ("epoch", "inherited", "opening", "topic_id")

    def __init__(self, topic_id: bytes, epoch: int) -> None:
        self.topic_id = topic_id
        self.epoch = epoch
        self.inherited: Inherited | None = None  # of a topic's log, once it was read for opening
        self.opening = False  # a topic's log is being opened: the lock is kept until that has ended


class OpenedLog:
    """A log that this node has opened, and may use once the table of owners names this node."""

    __slots__ = ("id", "locked", "owned", "ready")

    def __init__(self, id: LogId, locked: LockedLog, owned: OpenLog, ready: Callable[[Exception | None], None]) -> None:
        self.id = id
        self.locked = locked
        self.owned = owned
        self.ready = ready


class SharedStore(LocalStore):
    """One node's view of the store. Raises StartError when the directory cannot be used."""

    def __init__(
        self,
        config: Config,
        loop: asyncio.AbstractEventLoop,
        disk: SharedDisk | None = None,
        log_files_max: int = LOG_FILES_MAX,
        new_workers: Callable[[asyncio.AbstractEventLoop, int, bool], Workers] = Workers,
        random_bytes: RandomBytes = os.urandom,
        monotonic: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
        sleep: Callable[[float], None] = time.sleep,
        new_live_nodes: NewLiveNodes = NodeFiles,
    ) -> None:
        self._node_id = config.node_id
        self._root = os.path.abspath(config.data_directory)
        self._wall_ns = wall_ns
        self._monotonic = monotonic
        self._sleep = sleep
        self._shared_disk = shared = disk or OsDisk()
        super().__init__(config, loop, shared, log_files_max, new_workers, random_bytes, monotonic)
        self._locked_logs: dict[LogId, LockedLog] = {}
        self._opened_logs: list[OpenedLog] = []  # to be entered by the next write of the table
        self._registering = False
        self._leaving: dict[LogId, list[Callable[[], None]]] = {}  # logs being released, and the callbacks after that
        self._opening_notes: set[LogId] = set()
        self._leftovers: dict[str, tuple[object, LeftoverTurns]] = {}  # other nodes' turn logs, by folder, with file sizes
        self._leftovers_lock = threading.Lock()
        self._watcher: Callable[[int, bool], None] = lambda node, alive: None
        self._finding: Repeating | None = None  # set while nodes are looked for
        self._warn_at = 0.0
        try:
            self._table = OwnerTable(shared, self._root)
            self._locks = shared.byte_locks(f"{self._root}/{LOCKS_FILE}")
            if not self._locks.are_supported(PROBE_BYTE + self._node_id):
                self.directory.close()
                raise StartError(f"data directory {self._root}: several nodes need file locks, which its file system lacks", ExitCode.DIRECTORY)
            self._live_nodes = new_live_nodes(f"{self._root}/{NODES_FOLDER}", self._node_id, self._node_ended_in_thread)
            self._retry_at_start(self._live_nodes.enter)
            self._free_former_logs()
        except OSError as error:
            self.directory.close()
            raise StartError(f"data directory {self._root}: {error.strerror or error}", ExitCode.DIRECTORY) from error
        self._view = SharedStoreView(self._node_id, self._table, self._locked_logs)

    def _free_former_logs(self) -> None:
        """Mark the logs of this node's previous process as free: nodes that did not notice its end still count this node as their owner."""
        for id in self._table.logs_of(self._node_id):
            if self._locks.lock(id):
                self._table.free(id, self._node_id)
                self._locks.drop(id)
        self._table.count_change(self._node_id)

    def _open_directory(self, config: Config, new_id: Callable[[], str]) -> DataDirectory:
        def open_node(holder: str) -> DataDirectory:
            until = self._monotonic() + START_SECONDS
            while True:
                try:
                    return NodeDirectory.open_node(self._shared_disk, self._root, self._node_id, config.cluster_id, holder, new_id)
                except DirectoryLocked:  # by another node that starts too
                    if self._monotonic() > until:
                        raise
                self._sleep(START_PAUSE_SECONDS)

        return open_directory(self._shared_disk, self._root, open_node)

    def _retry_at_start(self, step: Callable[[], bool]) -> None:
        until = self._monotonic() + START_SECONDS
        while not step():
            if self._monotonic() > until:
                self.directory.close()
                raise StartError(f"node {self._node_id} of data directory {self._root} runs already", ExitCode.LOCKED)
            self._sleep(START_PAUSE_SECONDS)

    @property
    def data_path(self) -> str:
        return self._root

    def start(self, me: NodeInfo) -> None:
        super().start(me)
        self._view.live[me.id] = me
        self._live_nodes.publish(me)

    def view(self) -> SharedStoreView:
        return self._view

    # Nodes.

    def watch_nodes(self, changed: Callable[[int, bool], None]) -> None:
        self._watcher = changed
        self._finding = Repeating(self.loop, FIND_NODES_SECONDS, self._find_nodes_if_changed)
        self._find_nodes_if_changed()

    def _find_nodes_if_changed(self) -> None:
        try:
            if not self.finishing and self._live_nodes.changed():
                self._find_nodes()
        except OSError as error:
            self._warn(error)

    def when_current(self, done: Callable[[], None]) -> None:
        done()  # the table is in memory that all nodes share

    def find_new_nodes(self) -> None:
        try:
            self._find_nodes()
        except OSError as error:
            self._warn(error)

    def _find_nodes(self) -> None:
        for id, node in self._live_nodes.find_changes():
            self._view.changes += 1
            if node is not None:
                self._view.live[id] = node
            else:
                self._view.live.pop(id, None)
            run_contained(self._watcher, id, node is not None)

    def _warn(self, error: OSError) -> None:
        if self.loop.time() >= self._warn_at:
            self._warn_at = self.loop.time() + WARN_SECONDS
            log.warning("other nodes cannot be looked for", reason=error.strerror or str(error), again_seconds=FIND_NODES_SECONDS)

    def _node_ended_in_thread(self) -> None:
        try:
            self.loop.call_soon_threadsafe(Contained(self._node_ended))
        except RuntimeError:  # the loop is closed
            return

    def _node_ended(self) -> None:
        if not self.finishing:
            self.find_new_nodes()

    shows_deletions = True

    @property
    def last_deletion(self) -> int:
        return self._table.last_deletion

    def set_last_deletion(self, number: int) -> None:
        self._table.set_last_deletion(number)

    # Owning logs.

    def lock_log(self, id: LogId, topic_id: bytes, last_deletion: int) -> HeldBy | Unreadable | int:
        locked = self.lock(id, topic_id, last_deletion)
        return locked.epoch if isinstance(locked, LockedLog) else locked

    def lock(self, id: LogId, topic_id: bytes, last_deletion: int = 0) -> HeldBy | Unreadable | LockedLog:
        """Lock the log of this topic; HeldBy also while this node has the lock for the log of another topic of that name.

        HeldBy too for a topic's log if `last_deletion`, the newest deletion that this node knows, is not the newest of all nodes: the topic may
        be a deleted one, and the log that of a new topic, which other nodes have served already. As long as the log's byte is locked, no
        other node opens a new topic's log of that name.
        """
        locked = self._locked_logs.get(id)
        if locked is not None:
            return locked if locked.topic_id == topic_id and id not in self._leaving else HeldBy(f"node {self._node_id}")
        try:
            if id in self._leaving or not self._locks.lock(lock_byte_of(id)):
                return HeldBy(f"node {self._table.read(id).node}")
            if topic_id != NO_TOPIC and self._table.last_deletion > last_deletion:
                self._locks.drop(lock_byte_of(id))
                return HeldBy("a new topic of the name, perhaps")
            before = self._table.read(id)
            epoch = before.epoch + 1
            writer = before.writer if self._has_state_of(topic_id, before, id) else NO_WRITER
            self._table.write(id, Slot(self._node_id, epoch, self._wall_ns() // 1_000_000, OWNED, writer, topic_id))
        except OSError as error:
            self._locks.drop(lock_byte_of(id))
            return Unreadable(f"{self._root}: {error.strerror or error}", False)
        locked = self._locked_logs[id] = LockedLog(topic_id, epoch)
        self._table.count_change(self._node_id)
        return locked

    def _has_state_of(self, topic_id: bytes, slot: Slot, id: LogId) -> bool:
        """Whether the checkpoints and turn logs of the slot's writer are those of this topic's log."""
        if slot.topic_id == NO_TOPIC:
            return (topic_id == NO_TOPIC and slot != NO_SLOT) or self.disk.exists(self.directory.log_folder(*id))
        return slot.topic_id == topic_id

    def locked_log(self, id: LogId) -> LockedLog | None:
        """The log that this node has locked under this name."""
        return self._locked_logs.get(id)

    def unlock(self, id: LogId, locked: LockedLog, writer: int | None = None, state: int = FREE) -> None:
        """Unlock this very log, so that other nodes can acquire it."""
        if self._locked_logs.get(id) is not locked:
            return
        del self._locked_logs[id]
        slot = self._table.read(id)
        writer = slot.writer if writer is None else writer
        self._table.write(id, slot._replace(state=state, since_ms=self._wall_ns() // 1_000_000, writer=writer))
        self._table.count_change(self._node_id)
        self._locks.drop(lock_byte_of(id))

    def inherited(self, id: LogId, is_new: bool = False) -> Inherited:
        """The state in which the last writer left the log: this node, another node, or a single broker.

        `is_new`: the log's folder was that of another topic, so nothing is inherited.
        """
        log_state = self._new_log_state() if is_new else self._state_by(self._table.read(owning_log(id)).writer, id)
        locked = self._locked_logs.get(id)
        if locked is not None and locked.topic_id != NO_TOPIC:
            locked.inherited = log_state
        return log_state

    def _new_log_state(self) -> Inherited:
        return Inherited(0, 0, False, self.turn_flushes.leftover)

    def _state_by(self, writer: int, id: LogId) -> Inherited:
        if writer == NO_WRITER:
            return self._new_log_state()
        folder = node_folder(self._root, SINGLE if writer == SINGLE_BROKER else abs(writer) - 1)
        point = read_offset(self.disk, f"{folder}/{RECOVERY_POINTS}", id)
        start = read_offset(self.disk, f"{folder}/{LOG_STARTS}", id)
        clean = self.disk.exists(f"{folder}/{CLEAN_SHUTDOWN_FILE}") if writer == SINGLE_BROKER else writer < 0 and id.name != NOTES_LOG
        return Inherited(point, start, clean, self._leftover(folder))

    def _leftover(self, folder: str) -> LeftoverTurns:
        """The `turns.N` files of a node, read again if they have changed."""
        if not self.disk.exists(folder):
            return self.turn_flushes.leftover
        with self._leftovers_lock:
            sizes = turn_log_sizes(self.disk, folder)
            read_sizes, leftover = self._leftovers.get(folder, (None, self.turn_flushes.leftover))
            if read_sizes != sizes:
                leftover = LeftoverTurns(self.disk, folder)
                self._leftovers[folder] = sizes, leftover
                for path, piece in leftover.damage:
                    log_turn_damage(path, piece)
            return leftover

    def acquire(self, id: LogId, done: Acquired) -> None:
        if id.name == NOTES_LOG:
            if self._may_have_notes(id):
                self._opening_notes.add(id)
                super().acquire(id, partial(self._notes_opened, id, done))
            else:
                done(HeldBy("another node"))
            return
        locked = self.lock(id, NO_TOPIC)
        if isinstance(locked, LockedLog):
            super().acquire(id, partial(self._acquired, id, locked, done))
        else:
            done(locked)

    def _may_have_notes(self, id: LogId) -> bool:
        offsets = owning_log(id)
        return offsets in self._locked_logs and offsets not in self._leaving

    def _notes_opened(self, id: LogId, done: Acquired, result: OwnedLog | HeldBy | Unreadable) -> None:
        self._opening_notes.discard(id)
        owned = self.owned_log(id)
        if owned is not None and not self._may_have_notes(id):  # the partition's offsets log is being released
            owned.log.retire()
            self.drop(id)
            result = HeldBy("another node")
        done(result)

    def opens_notes(self, id: LogId) -> bool:
        """Whether the notes log of this partition is being opened."""
        return LogId(NOTES_LOG, id.partition) in self._opening_notes

    def _acquired(self, id: LogId, locked: LockedLog, done: Acquired, result: OwnedLog | HeldBy | Unreadable) -> None:
        if isinstance(result, Unreadable | HeldBy):
            self.unlock(id, locked)
            done(result)
            return
        assert isinstance(result, OpenLog)
        self.register_writer(id, locked, result, lambda problem: done(result if problem is None else problem))

    def register_writer(self, id: LogId, locked: LockedLog, owned: OpenLog, done: Callable[[Unreadable | None], None]) -> None:
        """Call `done` with None once the table durably names this node as the writer of the opened log, otherwise with the reason.

        A log that cannot be registered is closed and unlocked, so that another node can acquire it.
        """

        def ready(failure: Exception | None) -> None:
            done(None if failure is None else self._close_unregistered(id, locked, owned, failure))

        self._opened_logs.append(OpenedLog(id, locked, owned, ready))
        if not self._registering:
            self._registering = True
            self.loop.call_soon(Contained(self._adopt))

    def _adopt(self) -> None:
        """Write the opened logs' checkpoints, which the next owner will read, to this node's folder; then write the table."""
        opened, self._opened_logs = self._opened_logs, []
        points = {}
        for opening in opened:
            inherited = opening.locked.inherited
            if inherited is not None:
                points[opening.id.name, opening.id.partition] = inherited.recovery_point, inherited.start_offset
        directory = self.directory
        assert isinstance(directory, NodeDirectory)
        self.checkpoint_worker.submit(partial(directory.adopt, points), partial(self._write_slots, opened))

    def _write_slots(self, opened: list[OpenedLog], result: object) -> None:
        if isinstance(result, Exception):
            self._registered(opened, result)
            return
        written = [opening for opening in opened if self._write_slot(opening)]
        self._table.count_change(self._node_id)
        self.checkpoint_worker.submit(self._table.sync, partial(self._registered, written))
        self._call_ready([opening for opening in opened if opening not in written], OSError(errno.ENOLCK, "the log's lock was given up while it was opened"))

    def _write_slot(self, log: OpenedLog) -> bool:
        """Name this node as the log's writer; False if the log is not locked, or not open, any more."""
        if self._locked_logs.get(log.id) is not log.locked or self.owned_log(log.id) is not log.owned:
            return False
        owned = log.owned
        owned.epoch = owned.log.epoch = max(owned.log.epoch, log.locked.epoch)
        self._table.write(log.id, self._table.read(log.id)._replace(epoch=owned.epoch, writer=writer_open(self._node_id)))
        return True

    def _registered(self, written: list[OpenedLog], result: object) -> None:
        self._registering = False
        if self._opened_logs:
            self._registering = True
            self._adopt()
        self._clear_turns()
        self._call_ready(written, result if isinstance(result, Exception) else None)

    def _call_ready(self, logs: list[OpenedLog], failure: Exception | None) -> None:
        if not self.finishing:
            for opened in logs:
                run_contained(partial(opened.ready, failure))

    def _close_unregistered(self, id: LogId, locked: LockedLog, owned: OpenLog, failure: Exception) -> Unreadable:
        if self.owned_log(id) is owned:
            owned.log.retire()
            self.drop(id)
        self.unlock(id, locked)
        return Unreadable(f"{self._root}: {failure}", False)

    def drop_if_leaving(self, id: LogId, owned: OpenLog) -> bool:
        """Close a log that is to be released before it was used; returns whether it is."""
        if id not in self._leaving:
            return False
        owned.log.retire()
        self.drop(id)
        return True

    def _clear_turns(self) -> None:
        """Remove the `turns.N` files of this node's previous process once each of their logs was opened, here or on another node."""
        leftover = self.turn_flushes.leftover
        for name in leftover.names:
            id = log_id_of(name)
            if id is not None and (id in self._logs or self._table.read(id).writer != writer_open(self._node_id)):
                leftover.discard(name)
        self.turn_flushes.remove_restored_files()

    def release(self, id: LogId, done: Callable[[], None]) -> None:
        waiting = self._leaving.get(id)
        if waiting is not None:
            waiting.append(done)
            return
        self._leaving[id] = [done]
        ids = [id, LogId(NOTES_LOG, id.partition)] if id.name == CONSUMER_OFFSETS else [id]
        logs = [owned for owned in map(self.owned_log, ids) if owned is not None]
        _Release(self, id, logs, partial(self._released, id)).flush()

    def _released(self, id: LogId) -> None:
        for done in self._leaving.pop(id):
            run_contained(done)

    def release_unopened(self, id: LogId, topic_id: bytes) -> None:
        """Give up the lock on the log of a deleted topic that this node locked and did not open."""
        locked = self._locked_logs.get(id)
        if locked is not None and locked.topic_id == topic_id and self.owned_log(id) is None and id not in self._leaving:
            self.unlock(id, locked)

    def set_deleted_aside(self, id: LogId, topic_id: bytes, set_aside: Callable[[], bool]) -> None:
        """Call `set_aside`, which renames the folder of a deleted topic's log, under the log's lock; then the log exists no more.

        `set_aside` returns whether there was a folder. Raises BlockingIOError while the log cannot be locked; the caller checks whether a
        folder of this topic is there at all.
        """
        locked = self._locked_logs.get(id)
        if locked is not None:
            if locked.topic_id == topic_id:
                if id in self._leaving:
                    raise BlockingIOError("its log is being closed")
                set_aside()
                self.unlock(id, locked, NO_WRITER, GONE)
            return  # otherwise locked for a new topic of this name, whose opening moves a folder of another topic away
        if id in self._leaving or not self._locks.lock(lock_byte_of(id)):
            raise BlockingIOError("another node has its log open")
        try:
            had_folder = set_aside()
            slot = self._table.read(id)
            if slot.state != GONE and (slot.topic_id == topic_id or (slot.topic_id == NO_TOPIC and had_folder)):
                self._table.write(id, slot._replace(state=GONE, since_ms=self._wall_ns() // 1_000_000, writer=NO_WRITER))
                self._table.count_change(self._node_id)
        finally:
            self._locks.drop(lock_byte_of(id))

    def finish_release(self, id: LogId, locked: LockedLog | None, logs: list[OpenLog], problem: str, done: Callable[[], None]) -> None:
        """Store the log's checkpoints, and let other nodes acquire the log. `problem`: why its files could not be flushed and closed, or ""."""
        points = {(owned.id.name, owned.id.partition): owned.log.flushed_offset for owned in logs if owned.log.flushed_offset}
        starts = {(owned.id.name, owned.id.partition): owned.log.start_offset for owned in logs if owned.log.start_offset}

        def write() -> None:
            self.directory.checkpoint(points)
            if starts:
                self.directory.checkpoint_starts(starts)

        def written(result: object) -> None:
            in_order = logs and not problem and not isinstance(result, Exception)
            if locked is not None:
                self.unlock(id, locked, self._writer_when_closed(id) if in_order else None)
            done()

        self.checkpoint_worker.submit(write, written)

    def _writer_when_closed(self, id: LogId) -> int:
        writer = self._table.read(id).writer
        return writer_closed(self._node_id) if writer == writer_open(self._node_id) else writer

    def _mark_clean(self) -> str:
        problem = super()._mark_clean()
        if not problem:
            try:
                for id in [id for id in self._logs if id in self._locked_logs]:
                    self._table.write(id, self._table.read(id)._replace(writer=self._writer_when_closed(id), state=FREE))
                self._table.count_change(self._node_id)
                self._table.sync()
            except OSError as error:
                return f"{self._root}: {error}"
        return problem

    def unchecked_logs(self) -> list[LogId]:
        return []  # a log is checked by the node that takes it over

    def close(self) -> None:
        super().close()
        if self._finding is not None:
            self._finding.stop()
        self._live_nodes.close()
        self._locked_logs.clear()  # a release that ends later writes nothing: another node may have these logs by then
        self._locks.close()


class _Release:
    """The release of one log, or of the offsets log and notes log of a partition."""

    def __init__(self, store: SharedStore, id: LogId, logs: list[OpenLog], done: Callable[[], None]) -> None:
        self._store = store
        self._id = id
        self._locked = store.locked_log(id)
        self._logs = logs
        self._done = done
        self._waiting = len(logs)
        self._problem = ""

    def flush(self) -> None:
        for owned in self._logs:
            owned.flusher.flush(self._flushed)
        if not self._logs:
            self._close()

    def _flushed(self, failure: AppendFailed | None) -> None:
        self._waiting -= 1
        if failure is not None:
            self._problem = str(failure)
        if self._waiting <= 0:
            self._close()

    def _close(self) -> None:
        """Close the files once no flush or compaction uses them."""
        busy = self._locked is not None and self._locked.opening
        busy = busy or (self._id.name == CONSUMER_OFFSETS and self._store.opens_notes(self._id))
        for owned in self._logs:
            if owned.log.busy:
                self._store.cancel_compaction(owned.log)
                busy = True
        if busy:
            self._store.loop.call_later(BUSY_SECONDS, Contained(self._close, self._done))
            return
        for owned in self._logs:
            owned.log.claim()  # fences other users of the log object
            owned.log.retire()  # other nodes may replace the files
            self._store.turn_flushes.forget(owned.flusher)
            self._store.drop(owned.id)
        self._store.bulk_flusher.close_logs([owned.log for owned in self._logs], self._closed)

    def _closed(self, problem: str) -> None:
        self._store.finish_release(self._id, self._locked, self._logs, self._problem or problem, self._done)


class SharedTopicStore(LocalTopicStore):
    """The logs of topics in a SharedStore."""

    def __init__(self, store: SharedStore) -> None:
        super().__init__(store)
        self._shared = store

    def open_topic_log(self, id: LogId, topic: TopicInfo, done: Callable[[TopicLog | HeldBy | Unreadable], None]) -> None:
        locked = self._shared.lock(id, topic.topic_id, topic.last_deletion)
        if not isinstance(locked, LockedLog):
            done(locked)
            return

        def opened(result: TopicLog | HeldBy | Unreadable) -> None:
            locked.opening = False
            if isinstance(result, OpenLog) and self._shared.drop_if_leaving(id, result):
                result = HeldBy("another node")
            if isinstance(result, Unreadable | HeldBy):
                self._shared.unlock(id, locked)
                done(result)
            else:
                assert isinstance(result, OpenLog)
                self._shared.register_writer(id, locked, result, lambda problem: done(result if problem is None else problem))

        locked.opening = True
        try:
            super().open_topic_log(id, topic, opened)
        except BaseException:
            locked.opening = False
            raise

    def set_aside(self, id: LogId, topic_id: bytes, opened: TopicLog | None, name_in_use: bool, delete_delay_ms: int) -> None:
        if self.served_log(id) is not opened:
            return  # a log of a new topic of the same name
        try:
            self._shared.set_deleted_aside(id, topic_id, partial(self._set_folder_aside, id, topic_id, name_in_use, delete_delay_ms))
        except BlockingIOError:
            if self._has_folder_of(id, topic_id, name_in_use):
                raise
            # Otherwise the lock is that of a new topic's log.
