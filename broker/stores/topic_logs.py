"""Topic logs in the data directory: opening, retention, deletion with their folders, and checkpoints.

Each folder has at most one log object. Deleted files are removed later, in a worker thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from functools import partial

from broker.internal_topics import CONSUMER_OFFSETS, NOTES_LOG, REGISTRY_LOG
from broker.logging.logs import log
from broker.runtime.contain import Contained
from broker.stores.local import LocalStore, log_id_of
from broker.stores.owned import TOPIC_RULES, Appended, Flusher, OpenLog
from broker.stores.tokens import id_text
from storage import Handles, HeldBy, Log, LogId, RetentionLimits, ServedLog, TopicInfo, TopicLog, Truncation, Unreadable, describe_error
from storage.flush import belongs_to_other_topic, read_topic_id
from storage.removal import STRAY, folders_set_aside, remove_folder, set_folder_aside
from storage.swap import remove_deleted

BUSY_SECONDS = 0.05  # between two checks whether a busy log has become idle
RETRY_SECONDS = 15.0

Opened = Callable[[TopicLog | HeldBy | Unreadable], None]
Done = Callable[[Exception | None], None]


class LocalTopicLog(OpenLog):
    """The log of one topic partition. As in Kafka, an append does not wait for a flush."""

    assigns_offsets_at_once = True
    batch_bytes_max = (1 << 31) - 1  # a batch has its size in 32 bits

    def __init__(self, store: LocalStore, id: LogId, opened: Log) -> None:
        super().__init__(store, store.topic_workers, id, Flusher(store, store.topic_workers, opened), opened.epoch, TOPIC_RULES)
        self._directory = store

    @property
    def high_watermark(self) -> int:
        return self.log.next_offset

    @property
    def durable_offset(self) -> int:
        return self.log.flushed_offset

    @property
    def busy(self) -> bool:
        return self.log.busy

    def interrupt(self) -> None:
        self._store.cancel_compaction(self.log)

    def append(self, batch: bytearray, done: Appended) -> int:
        log = self.log
        offset = log.append(batch, self.epoch)
        if offset == log.active_base:
            self._flush_closed()
        return offset

    def _flush_closed(self) -> None:
        """Flush closed segments in the background, so that little must be verified after a crash."""
        if self.log.flushed_offset < self.log.active_base:
            self.flusher.flush(self.flusher.report_failure, closed=True)

    def set_segment_limits(self, segment_bytes: int, segment_ms: int) -> None:
        self.log.segment_bytes = segment_bytes
        self.log.segment_ms = segment_ms

    def apply_retention(self, now: int, monotonic: int, limits: RetentionLimits) -> int:
        log = self.log
        active_base = log.active_base
        log.roll_if_old(monotonic, log.segment_ms)
        bases = log.apply_retention(now, monotonic, limits.retention_ms if now >= 0 else -1, limits.retention_bytes)
        if log.active_base != active_base:
            self._flush_closed()
        if bases:
            self._directory.loop.call_later(limits.delete_delay_ms / 1000, Contained(self._remove), bases)
        return len(bases)

    def delete_before(self, offset: int) -> None:
        self.log.delete_before(offset)

    def _remove(self, bases: list[int]) -> None:
        """Remove the files, unless their topic was deleted: then a folder of this name may belong to another log."""
        if self._directory.owned_log(self.id) is not self:
            return
        log = self.log
        log.folder_users += 1

        def removed(result: object) -> None:
            log.folder_users -= 1

        self._workers.submit(partial(self._remove_files, log.folder, bases), removed)

    def _remove_files(self, folder: str, bases: list[int]) -> None:
        """Runs in a worker thread. Files that a compaction removed already are skipped."""
        for base in bases:
            with contextlib.suppress(OSError):
                remove_deleted(self._directory.disk, folder, [base])


class LocalTopicStore:
    """The logs of topics in a LocalStore."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store
        self._disk = store.disk
        self._directory = store.directory
        self._loop = store.loop

    @property
    def durable_starts(self) -> dict[tuple[str, int], int]:
        return self._directory.log_starts

    def served_log(self, id: LogId) -> ServedLog | None:
        return self._store.owned_log(id)

    # Opening.

    def open_topic_log(self, id: LogId, topic: TopicInfo, done: Opened) -> None:
        if self._store.finishing:
            return
        previous = self._store.owned_log(id)
        if previous is not None:  # the log of a topic whose creation the registry could not store: its folder will be moved
            previous.log.retire()
            if previous.log.busy:
                self._store.cancel_compaction(previous.log)
                self._loop.call_later(BUSY_SECONDS, Contained(self.open_topic_log), id, topic, done)
                return
            self._store.drop(id)
        if self.exists(id):
            self._open_in_worker(id, topic, done, False)
        else:
            self._opened(id, topic, done, self._open(id, topic, self._store.handles, False))

    def _open_in_worker(self, id: LogId, topic: TopicInfo, done: Opened, checkpoints_cleared: bool) -> None:
        open_log = partial(self._open, id, topic, self._store.new_handles(), checkpoints_cleared)
        self._store.topic_workers.submit(open_log, partial(self._opened, id, topic, done))

    def _open(self, id: LogId, topic: TopicInfo, handles: Handles, checkpoints_cleared: bool) -> tuple[str, Log, Truncation] | None:
        """Open the log; None: the folder belongs to another topic, whose checkpoint entries must be removed first."""
        folder = self._directory.log_folder(*id)
        topic_id = id_text(topic.topic_id)
        try:
            stray_folder = ""
            if belongs_to_other_topic(self._disk, folder, topic_id):
                if not checkpoints_cleared:
                    return None
                stray_folder = set_folder_aside(self._disk, folder, self._store.fresh_token(), STRAY)
            inherited = self._store.inherited(id, bool(stray_folder))
            opened, truncation = Log.open(
                handles,
                folder,
                topic.segment_bytes,
                inherited.recovery_point,
                inherited.clean,
                topic_id,
                deferred=True,
                start_offset=inherited.start_offset,
                producers=topic.producers,
            )
            return stray_folder, opened, truncation
        finally:
            if handles is not self._store.handles:
                handles.close()

    def _opened(self, id: LogId, topic: TopicInfo, done: Opened, result: tuple[str, Log, Truncation] | Exception | None) -> None:
        if result is None:
            self._store.checkpoint_worker.submit(partial(self._directory.forget, [id]), partial(self._checkpoints_cleared, id, topic, done))
            return
        if isinstance(result, tuple) and result[0]:
            topic.strayed(result[0])
        self._add_opened(id, done, self._store.check_opened(id, result[1:] if isinstance(result, tuple) else result))

    def _checkpoints_cleared(self, id: LogId, topic: TopicInfo, done: Opened, result: object) -> None:
        """Set the other topic's folder aside and open the log: no checkpoint has entries of the other topic's log any more."""
        if isinstance(result, Exception):
            self._add_opened(id, done, Unreadable(describe_error(result, self._directory.path), False))
        else:
            self._open_in_worker(id, topic, done, True)

    def _add_opened(self, id: LogId, done: Opened, opened: Log | Unreadable) -> None:
        if self._store.finishing:
            return
        if isinstance(opened, Unreadable):
            done(opened)
            return
        owned = LocalTopicLog(self._store, id, opened)
        self._store.add(owned)
        done(owned)

    # Deleted topics.

    def list_existing_logs(self, delete_delay_ms: int) -> list[LogId]:
        path = self._store.data_path
        self._remove_later(folders_set_aside(self._disk, path), delete_delay_ms)
        ids = map(log_id_of, self._disk.list(path))
        return [id for id in ids if id is not None and id.name not in (CONSUMER_OFFSETS, NOTES_LOG, REGISTRY_LOG)]

    def exists(self, id: LogId) -> bool:
        return self._disk.exists(self._directory.log_folder(*id))

    def set_aside(self, id: LogId, topic_id: bytes, opened: TopicLog | None, name_in_use: bool, delete_delay_ms: int) -> None:
        """Rename the folder at once, as Kafka does, so that a topic of the same name can be created."""
        if self.served_log(id) is opened:  # otherwise another log has opened a folder of this name since
            self._set_folder_aside(id, topic_id, name_in_use, delete_delay_ms)

    def _set_folder_aside(self, id: LogId, topic_id: bytes, name_in_use: bool, delete_delay_ms: int) -> bool:
        """Rename the log's folder, that of the open log or of a closed one of this topic; returns whether there was one."""
        owned = self._store.owned_log(id)
        moved = ""
        if owned is not None:
            moved = owned.log.set_folder_aside(self._store.fresh_token())
            self._store.drop(id)
        elif self._has_folder_of(id, topic_id, name_in_use):
            moved = set_folder_aside(self._disk, self._directory.log_folder(*id), self._store.fresh_token())
        if moved:
            self._remove_later([moved], delete_delay_ms)
        return bool(moved)

    def _has_folder_of(self, id: LogId, topic_id: bytes, name_in_use: bool) -> bool:
        """Whether the log's folder exists and belongs to this topic; a folder without a topic id belongs to the topic that has the name."""
        folder = self._directory.log_folder(*id)
        if not self._disk.exists(folder):
            return False
        stored = read_topic_id(self._disk, folder)
        return stored == id_text(topic_id) or (not stored and not name_in_use)

    def forget_topics(self, ids: Collection[LogId], done: Done) -> None:
        self._store.checkpoint_worker.submit(partial(self._forget, ids), Contained(partial(_report, done)))

    def _forget(self, ids: Collection[LogId]) -> None:
        self._disk.sync_folder(self._store.data_path)
        self._directory.forget(ids)

    def _remove_later(self, folders: Sequence[str], delay_ms: int) -> None:
        if folders:
            self._loop.call_later(delay_ms / 1000, Contained(self._remove), folders)

    def _remove(self, folders: Sequence[str]) -> None:
        self._store.topic_workers.submit(partial(self._remove_all, folders), self._removed)

    def _remove_all(self, folders: Sequence[str]) -> list[str]:
        """Remove the folders in a worker thread; returns those that could not be removed."""
        remaining = []
        for folder in folders:
            try:
                remove_folder(self._disk, folder)
            except OSError as error:
                log.warning("folder of a deleted topic stays", folder=folder, reason=str(error))
                remaining.append(folder)
        return remaining

    def _removed(self, remaining: list[str]) -> None:
        if remaining and not isinstance(remaining, Exception):
            self._loop.call_later(RETRY_SECONDS, Contained(self._remove), remaining)

    # Checkpoints.

    def save_start_offsets(self, offsets: dict[tuple[str, int], int], done: Done) -> None:
        self._store.checkpoint_worker.submit(partial(self._directory.checkpoint_starts, offsets), partial(_report, done))

    def save_recovery_points(self, offsets: dict[tuple[str, int], int], done: Done) -> None:
        """Save these recovery points, and those of the internal logs."""
        points = offsets | self._store.flushed_offsets()
        self._store.checkpoint_worker.submit(partial(self._directory.checkpoint, points), partial(_report, done))


def _report(done: Done, result: object) -> None:
    done(result if isinstance(result, Exception) else None)
