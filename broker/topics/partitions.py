"""All partitions of topics: finding, opening, suspending and deleting them.

A new log needs no disk access before its first append. Worker threads open existing logs in the background, requested ones first; until
then requests get a retriable error. A log that cannot be read or written affects only its own partition.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from broker.groups.journal import Journal
from broker.internal_topics import NOTES_LOG
from broker.logging.logs import log
from broker.runtime.contain import Contained, run_contained
from broker.topics.folders import TopicFolders
from broker.topics.partition import FAILED, GONE, NOT_SERVED, InternalPartition, Partition, Waiter
from broker.topics.registry import DeletedTopic, Topic, TopicRegistry
from broker.topics.settings import LogSettings, log_settings
from storage import AppendFailed, HeldBy, LogId, TopicInfo, TopicLog, TopicStore, Unreadable

__all__ = ["FAILED", "GONE", "NOT_SERVED", "InternalPartition", "Partition", "Partitions", "Waiter"]


OPEN_CONCURRENCY = 3  # one for each of two worker threads, and one that is queued for the next free thread
OPENED_PER_PASS = 64  # new logs, which need no thread, opened before the loop runs
RETRY_SECONDS_MIN = 0.25
BUSY_SECONDS = 0.05  # before another attempt to rename a folder that is in use
RETRY_SECONDS_MAX = 15.0
# Opening a log takes the GIL some twenty times. With Python's usual switch interval, a busy event loop could delay each time by
# 5 ms, and so starve the threads that open logs.
OPENING_SWITCH_SECONDS = 0.0002
SWITCH_SECONDS = sys.getswitchinterval()
LOG_FAILURE_SECONDS = 15.0  # write failures of a partition are logged at most this often
UNREADABLE_RETRY_SECONDS = 15.0  # before another attempt to read a log, or to rename a folder
UNDECIDED_RETRY_SECONDS = 1.0
SLICE_SECONDS = 0.003  # folders are renamed for so long before the loop runs


class _TopicPartitions:
    """The partitions of one topic. If the registry could not store added partitions, this list is longer than the topic."""

    __slots__ = ("partitions", "topic")

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.partitions: list[Partition] = []


class Partitions:
    """All partitions, by topic and index."""

    open_concurrency = OPEN_CONCURRENCY

    def __init__(
        self,
        topics: TopicRegistry,
        registry_journal: Journal,
        store: TopicStore,
        loop: asyncio.AbstractEventLoop,
        defaults: Mapping[str, str],
        open_notes: Callable[[int], None] = lambda partition: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topics = topics
        self._registry_journal = registry_journal
        self._store = store
        self._loop = loop
        self._monotonic = monotonic
        self._defaults = defaults  # the broker's defaults of topic settings
        self._open_notes = open_notes  # opens a partition of __coordinator_notes that a consumer reads
        self._folders = TopicFolders(topics, registry_journal, store, loop)
        self._of_topic: dict[bytes, _TopicPartitions] = {}
        self._requested: dict[Partition, None] = {}  # requested by clients, to be opened first
        self._queue: dict[Partition, None] = {}  # to be opened
        self._blocked: dict[LogId, Partition] = {}  # to be opened when the folder of a deleted topic is gone
        self._unreleased_names: dict[LogId, int] = {}  # number of deleted topics that still use the folder name
        self._opening: set[Partition] = set()
        self._recovering: set[Partition] = set()
        self._retry_seconds: dict[Partition, float] = {}  # of suspended partitions: the pause before the next attempt to write
        self._next_failure_log: dict[Partition, float] = {}  # when the next write failure is logged
        self._stopped = False
        self._short_switches = False  # the switch interval is shortened for threads that open logs
        self._in_pass = False
        # Called when a partition's leader epoch may have changed; not for internal topics, whose logs the group coordinator opens.
        self.epoch_changed: Callable[[Partition], None] = _ignore_epoch

    # Finding.

    def find(self, name: str, index: int) -> Partition | None:
        """Find a partition, and open it if necessary; until it is open it has an error. None: no such topic or partition."""
        topic = self._topics.by_name.get(name)
        if topic is None:
            return None
        topic_partitions = self._of_topic.get(topic.id)
        if topic_partitions is None or topic_partitions.topic is not topic:
            topic_partitions = self._update(topic)
        if not 0 <= index < topic.partition_count:
            return None
        partition = topic_partitions.partitions[index]
        if partition.error:
            self._request(partition)
        return partition

    def of_topic(self, topic: Topic) -> list[Partition]:
        """The partitions of a topic in order, without opening them."""
        topic_partitions = self._of_topic.get(topic.id)
        if topic_partitions is None or topic_partitions.topic is not topic:
            topic_partitions = self._update(topic)
        return topic_partitions.partitions[: topic.partition_count]

    def was_never_written(self, partition: Partition) -> bool:
        """Whether the partition has no log because nothing was ever written: a start queues all existing logs for opening."""
        return partition.error == NOT_SERVED and not any(partition in waiting for waiting in (self._queue, self._requested, self._opening))

    def __iter__(self) -> Iterator[Partition]:
        """All partitions except those of internal topics."""
        for id in list(self._topics.by_id):
            topic = self._topics.by_id.get(id)  # None: deleted during the iteration
            if topic is not None and not topic.internal:
                yield from self.of_topic(topic)

    def _update(self, topic: Topic) -> _TopicPartitions:
        """Create or update the partitions from the topic in the registry."""
        topic_partitions = self._of_topic.get(topic.id)
        if topic_partitions is None:
            topic_partitions = self._of_topic[topic.id] = _TopicPartitions(topic)
        topic_partitions.topic = topic
        settings = log_settings(topic.settings, self._defaults)
        for partition in topic_partitions.partitions:
            partition.topic = topic
            partition.settings = settings
            if partition.opened and not isinstance(partition, InternalPartition):
                set_limits(partition.owned_log, settings)
        kind = InternalPartition if topic.internal else Partition
        for index in range(len(topic_partitions.partitions), topic.partition_count):
            topic_partitions.partitions.append(kind(topic, index, settings, self))
        return topic_partitions

    # Changes of topics. Called when the registry has changed in memory; its log may not have the change yet.

    def created(self, topic: Topic) -> None:
        self._update(topic)

    def partitions_added(self, topic: Topic) -> None:
        self._update(topic)

    def altered(self, topic: Topic) -> None:
        self._update(topic)

    def deleted(self, topic: Topic) -> None:
        """Refuse requests at once; remove the folders when the deletion is durable."""
        topic_partitions = self._of_topic.get(topic.id) or self._update(topic)
        for partition in topic_partitions.partitions:
            self._requested.pop(partition, None)
            self._queue.pop(partition, None)
            if self._blocked.get(partition.id) is partition:
                del self._blocked[partition.id]
            self._unreleased_names[partition.id] = self._unreleased_names.get(partition.id, 0) + 1
            partition.refuse(GONE, "its topic was deleted")
        self._registry_journal.hold_reply(_AwaitedDeletion(self, topic_partitions))

    def deletion_decided(self, topic_partitions: _TopicPartitions) -> None:
        """Remove the folders of a durable deletion; restore the partitions after a failed one."""
        if self._stopped:
            return
        if topic_partitions.topic.id in self._topics.by_id:
            self._restore(topic_partitions)
        elif self._registry_journal.readable:
            self._set_aside(topic_partitions, list(topic_partitions.partitions))
        else:
            self._loop.call_later(UNDECIDED_RETRY_SECONDS, Contained(self.check_deletion), topic_partitions)

    def check_deletion(self, topic_partitions: _TopicPartitions) -> None:
        """Wait for the registry again: after a failed append, its replay decides whether the topic is deleted."""
        if not self._stopped:
            self._loop.call_soon(Contained(self._registry_journal.hold_reply), _AwaitedDeletion(self, topic_partitions))

    def _restore(self, topic_partitions: _TopicPartitions) -> None:
        """Restore the partitions: the registry could not store the deletion."""
        self._release_names([partition.id for partition in topic_partitions.partitions])
        for partition in topic_partitions.partitions:
            if not partition.opened:
                partition.refuse(NOT_SERVED, "")
            elif partition.owned_log.usable():
                partition.use_log(partition.owned_log)
            else:
                partition.error = FAILED
                self._try_later(partition)
            self.epoch_changed(partition)
        self._unblock()

    def _set_aside(self, topic_partitions: _TopicPartitions, remaining: list[Partition]) -> None:
        """Rename the folders, some per slice, then free their names. After a stop, the next start continues."""
        if self._stopped:
            return
        retries = []
        pause = BUSY_SECONDS
        until = self._monotonic() + SLICE_SECONDS
        done = 0
        while done < len(remaining) and self._monotonic() < until:
            partition = remaining[done]
            done += 1
            if partition in self._opening or partition in self._recovering:  # a worker thread uses it
                retries.append(partition)
                continue
            if partition.opened and partition.owned_log.busy:  # a flush or a compaction uses it
                partition.owned_log.interrupt()
                retries.append(partition)
                continue
            owned = partition.owned_log if partition.opened else None
            try:
                if not self._set_folder_aside(partition, topic_partitions.topic, owned):
                    retries.append(partition)
            except OSError as error:
                log.warning("folder of a deleted topic stays", log=str(partition), reason=str(error))
                retries.append(partition)
                pause = RETRY_SECONDS_MIN
        remaining = remaining[done:] + retries
        if not remaining:
            ids = [partition.id for partition in topic_partitions.partitions]
            self._folders.forget(topic_partitions.topic.id, ids, partial(self._folders_forgotten, topic_partitions))
        elif len(retries) == len(remaining):
            self._loop.call_later(pause, self._continue_deletion(topic_partitions, remaining), topic_partitions, remaining)
        else:
            self._loop.call_soon(self._continue_deletion(topic_partitions, remaining), topic_partitions, remaining)

    def _set_folder_aside(self, partition: Partition, topic: Topic, owned: TopicLog | None) -> bool:
        """Rename the folder of a deleted topic's partition; False: not possible yet. Raises OSError."""
        self._folders.set_aside(partition.id, topic.id, owned, partition.settings.file_delete_delay_ms)
        return True

    def _continue_deletion(self, topic_partitions: _TopicPartitions, remaining: list[Partition]) -> Contained:
        """The next slice; if it raises, its folders are retried later."""
        return Contained(self._set_aside, partial(self._set_aside_later, topic_partitions, remaining))

    def _set_aside_later(self, topic_partitions: _TopicPartitions, remaining: list[Partition]) -> None:
        self._loop.call_later(UNREADABLE_RETRY_SECONDS, self._continue_deletion(topic_partitions, remaining), topic_partitions, remaining)

    def _folders_forgotten(self, topic_partitions: _TopicPartitions) -> None:
        self._of_topic.pop(topic_partitions.topic.id, None)
        self._free([partition.id for partition in topic_partitions.partitions])

    def _free(self, ids: Iterable[LogId]) -> None:
        """Allow new logs under the names of a deleted topic."""
        self._release_names(ids)
        self._unblock()

    def _release_names(self, ids: Iterable[LogId]) -> None:
        for id in ids:
            self._unreleased_names[id] -= 1
            if not self._unreleased_names[id]:
                del self._unreleased_names[id]

    def _unblock(self) -> None:
        for id in [id for id in self._blocked if id not in self._unreleased_names]:
            partition = self._blocked.pop(id)
            self._requested[partition] = None
            self.epoch_changed(partition)
        self._open_next()

    # Opening.

    def open_all(self) -> None:
        """Open all existing logs in the background. Logs with the name of a deleted topic wait until its folders are renamed."""
        delay_ms = log_settings({}, self._defaults).file_delete_delay_ms
        for deleted in list(self._topics.deleted.values()):
            ids = [LogId(deleted.name, index) for index in range(deleted.partition_count)]
            for id in ids:
                self._unreleased_names[id] = self._unreleased_names.get(id, 0) + 1
            self._finish_deletion(deleted, ids, ids, delay_ms, BUSY_SECONDS)
        existing = self._existing_logs(delay_ms)
        for partition in self:
            if partition.id in existing:
                self._queue[partition] = None
                self.epoch_changed(partition)
        self._open_next()

    def _existing_logs(self, delay_ms: int) -> set[LogId]:
        """The logs to open at the start."""
        return self._folders.existing_logs(delay_ms)

    def _finish_deletion(self, deleted: DeletedTopic, ids: list[LogId], remaining: list[LogId], delay_ms: int, pause: float) -> None:
        """Complete a deletion that was interrupted by a crash, or by a change of controller: `remaining` are the logs that still have folders."""
        if self._stopped:
            return
        remaining, problem = self._folders.finish_deletion(deleted, remaining, delay_ms)
        if problem is not None:
            log.warning("folder of a deleted topic stays", log=deleted.name, reason=str(problem))
            pause = UNREADABLE_RETRY_SECONDS
        if remaining:
            self._finish_deletion_later(pause, (deleted, ids, remaining, delay_ms, min(2 * pause, UNREADABLE_RETRY_SECONDS)))
        else:
            self._folders.forget(deleted.id, self._folders.free_names(ids), partial(self._free, ids))

    def _finish_deletion_later(self, seconds: float, arguments: tuple[DeletedTopic, list[LogId], list[LogId], int, float]) -> None:
        """Go on with a deletion, also after a defect."""
        again = partial(self._finish_deletion_later, UNREADABLE_RETRY_SECONDS, arguments)
        self._loop.call_later(seconds, Contained(self._finish_deletion, again), *arguments)

    def _request(self, partition: Partition) -> None:
        """Open a requested partition before all others."""
        if isinstance(partition, InternalPartition):
            self._follow_log(partition)
        elif partition.error == NOT_SERVED and partition not in self._opening and partition not in self._requested and not self._stopped:
            self._queue.pop(partition, None)
            self._requested[partition] = None
            self.epoch_changed(partition)
            self._open_next()

    def _follow_log(self, partition: InternalPartition) -> None:
        """Use the log of an internal partition, if its owner has opened it."""
        served = self._store.served_log(partition.id)
        if served is None and partition.topic.name == NOTES_LOG:
            self._open_notes(partition.index)
            served = self._store.served_log(partition.id)  # a new log is open at once
        if served is not None:
            partition.follow(served)

    def _open_next(self) -> None:
        if self._in_pass:  # a new log opens at once, and its callback `_opened` calls this method again
            return
        self._in_pass = True
        try:
            self._open_queued()
        finally:
            self._in_pass = False

    def _open_queued(self) -> None:
        opened = 0
        while len(self._opening) < self.open_concurrency and not self._stopped:
            queue = self._requested or self._queue
            if not queue:
                break
            if opened == OPENED_PER_PASS:
                self._loop.call_soon(Contained(self._open_next))
                break
            opened += 1
            partition = next(iter(queue))
            del queue[partition]
            if partition.id in self._unreleased_names:
                self._blocked[partition.id] = partition
                self.epoch_changed(partition)
            else:
                self._open(partition)
        if bool(self._opening) != self._short_switches:
            self._short_switches = not self._short_switches
            sys.setswitchinterval(OPENING_SWITCH_SECONDS if self._short_switches else SWITCH_SECONDS)

    def _open(self, partition: Partition) -> None:
        self._opening.add(partition)
        topic = TopicInfo(
            partition.topic.id,
            partition.settings.segment_bytes,
            partition.producers,
            self._topics.last_deletion,
            partial(self._log_renamed, partition),
        )
        opened = Contained(partial(self._opened, partition), partial(self._opening_failed, partition))
        if not run_contained(self._store.open_topic_log, partition.id, topic, opened):
            self._opening_failed(partition)

    def _opening_failed(self, partition: Partition) -> None:
        """Suspend a partition whose opening raised, and open the next partitions."""
        self._opening.discard(partition)
        if partition.error != GONE:
            self._refuse(partition, Unreadable("a defect in this version", False))
        self._loop.call_soon(Contained(self._open_next))

    def _log_renamed(self, partition: Partition, moved: str) -> None:
        log.warning("a folder of another topic with this name was renamed", log=str(partition), folder=moved)

    def _opened(self, partition: Partition, result: TopicLog | HeldBy | Unreadable) -> None:
        self._opening.discard(partition)
        if isinstance(result, HeldBy):
            result = Unreadable(f"it is held by {result.holder}", False)
        if partition.error == GONE:  # the topic was deleted meanwhile: the folder must be renamed
            if not isinstance(result, Unreadable):
                partition.owned_log, partition.log, partition.opened = result, result.records, True
        elif isinstance(result, Unreadable):
            self._refuse(partition, result)
        else:
            set_limits(result, partition.settings)  # the settings may have changed meanwhile
            result.watch(partial(self.append_failed, partition))
            partition.use_log(result)
            partition.wake()
        self.epoch_changed(partition)
        self._open_next()

    def _refuse(self, partition: Partition, failure: Unreadable) -> None:
        partition.refuse(FAILED, failure.reason)
        retry = "after a restart" if failure.damaged else f"in {UNREADABLE_RETRY_SECONDS:.0f} s"
        log.error("partition cannot be read", log=str(partition), reason=failure.reason, again=retry)
        if not failure.damaged:
            self._retry_open_later(partition)

    def _retry_open_later(self, partition: Partition) -> None:
        self._loop.call_later(UNREADABLE_RETRY_SECONDS, Contained(self._retry_open, partial(self._retry_failed, partition)), partition)

    def _retry_failed(self, partition: Partition) -> None:
        """After a defect the partition is refused as before, and opened later."""
        partition.refuse(FAILED, "there is a defect in this version")
        self._retry_open_later(partition)

    def _retry_open(self, partition: Partition) -> None:
        if partition.error == FAILED:
            partition.error = NOT_SERVED
            self._request(partition)

    # Suspension.

    def append_failed(self, partition: Partition, failure: AppendFailed) -> None:
        """Log the failure, and suspend the partition unless its log is still usable."""
        if partition.error == GONE:
            return
        now = self._loop.time()
        if self._next_failure_log.get(partition, 0.0) <= now:
            self._next_failure_log[partition] = now + LOG_FAILURE_SECONDS
            log.error("partition cannot be written", log=str(partition), reason=str(failure))
        if not partition.owned_log.usable() and not partition.error:
            partition.refuse(FAILED, str(failure))
            self._try_later(partition)

    def _try_later(self, partition: Partition) -> None:
        seconds = min(2 * self._retry_seconds.get(partition, RETRY_SECONDS_MIN / 2), RETRY_SECONDS_MAX)
        self._retry_seconds[partition] = seconds
        self._loop.call_later(seconds, Contained(self._recover, partial(self._recovery_failed, partition)), partition)

    def _recover(self, partition: Partition) -> None:
        if partition.error == FAILED and not self._stopped:
            self._recovering.add(partition)
            partition.owned_log.recover(Contained(partial(self._recovered, partition), partial(self._recovery_failed, partition)))

    def _recovery_failed(self, partition: Partition) -> None:
        """Keep a partition suspended whose recovery raised, and try again later."""
        self._recovering.discard(partition)
        if partition.error != GONE and not self._stopped:
            partition.refuse(FAILED, "a defect in this version")
            self._try_later(partition)

    def _recovered(self, partition: Partition, failure: AppendFailed | None) -> None:
        self._recovering.discard(partition)
        if partition.error == GONE:
            return
        if failure is not None:
            log.warning("partition stays suspended", log=str(partition), reason=str(failure))
            self._try_later(partition)
            return
        self._retry_seconds.pop(partition, None)
        self._next_failure_log.pop(partition, None)
        partition.use_log(partition.owned_log)
        log.info("partition serves again", log=str(partition))
        partition.wake()

    def stop(self) -> None:
        """Open and retry no more logs."""
        self._stopped = True


class _AwaitedDeletion:
    """Waits until a topic's deletion is durable, as a reply does that the registry holds (`coordinator.hold`)."""

    __slots__ = ("_partitions", "_topic_partitions")

    def __init__(self, partitions: Partitions, topic_partitions: _TopicPartitions) -> None:
        self._partitions = partitions
        self._topic_partitions = topic_partitions

    def release(self) -> None:
        self._partitions.deletion_decided(self._topic_partitions)

    def fail(self, error: int) -> None:
        self._partitions.check_deletion(self._topic_partitions)


def set_limits(log: TopicLog, settings: LogSettings) -> None:
    """Pass the segment settings to the log; other settings are read from the partition when needed."""
    log.set_segment_limits(settings.segment_bytes, rolls_after_ms(settings))


def _ignore_epoch(partition: Partition) -> None: ...


def rolls_after_ms(settings: LogSettings) -> int:
    """The age at which a segment is rolled, less a random jitter. In a compacted topic at most max.compaction.lag.ms, since only closed
    segments are compacted.
    """
    age = min(settings.segment_ms, settings.max_compaction_lag_ms) if settings.compact else settings.segment_ms
    return max(age - random.randint(0, min(settings.segment_jitter_ms, settings.segment_ms)), 1)
