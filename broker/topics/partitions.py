"""All partitions of topics: which there are, whether their logs can be used, and how they come and go.

A log that does not exist yet needs no disk before its first append. All others are opened by threads in the background,
those that somebody asked for first, and until then they answer with a code on which clients come again. What cannot
be read or written refuses alone.
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
from broker.runtime.contain import Contained, run
from broker.topics.folders import TopicFolders
from broker.topics.partition import FAILED, GONE, OPENING, InternalPartition, Partition, Waiter
from broker.topics.registry import DeletedTopic, Topic, Topics
from broker.topics.settings import LogSettings, log_settings
from storage import AppendFailed, LogId, TopicInfo, TopicLog, TopicStore, Unreadable

__all__ = ["FAILED", "GONE", "OPENING", "InternalPartition", "Partition", "Partitions", "Waiter"]


OPENED_AT_ONCE = 3  # by two threads: there is always one that waits for them
OPENED_IN_A_PASS = 64  # then everything else has its turn: logs without a folder need no thread
RETRY_SECONDS_MIN = 0.25
BUSY_SECONDS = 0.05  # until the folder of a deleted topic is tried again, where something was at work in it
RETRY_SECONDS_MAX = 15.0
# A thread that opens a log needs Python's lock some twenty times. While the loop has much to do it would get it each time
# only after Python's usual 5 ms, and clients that ask without a pause would keep logs from being opened.
OPENING_SWITCH_SECONDS = 0.0002
SWITCH_SECONDS = sys.getswitchinterval()
COMPLAIN_SECONDS = 15.0
# A log that could not be read is tried again after so long, and so is a folder that could not be renamed.
UNREADABLE_RETRY_SECONDS = 15.0
UNDECIDED_RETRY_SECONDS = 1.0
SLICE_SECONDS = 0.003  # so long folders are renamed before the loop goes on


class _Served:
    """The partitions of one topic. There may be more than it has: those of a growth that the registry refused."""

    __slots__ = ("partitions", "topic")

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.partitions: list[Partition] = []


class Partitions:
    """By topic and number."""

    def __init__(
        self,
        topics: Topics,
        registry: Journal,
        store: TopicStore,
        loop: asyncio.AbstractEventLoop,
        defaults: Mapping[str, str],
        open_notes: Callable[[int], None] = lambda partition: None,
    ) -> None:
        self._topics = topics
        self._registry = registry
        self._store = store
        self._loop = loop
        self._defaults = defaults  # by the names of topics' settings
        self._open_notes = open_notes  # of that partition: they are opened when there is one to write, or somebody who reads
        self._folders = TopicFolders(topics, registry, store, loop)
        self._served: dict[bytes, _Served] = {}
        # What is still to be opened: first what somebody asked for. What waits for the folder of a deleted topic to go.
        self._asked: dict[Partition, None] = {}
        self._queue: dict[Partition, None] = {}
        self._blocked: dict[LogId, Partition] = {}
        self._leaving: dict[LogId, int] = {}  # how many deleted topics still have to do with that name
        self._opening: set[Partition] = set()
        self._recovering: set[Partition] = set()
        self._retry_seconds: dict[Partition, float] = {}  # of suspended ones: how long until writing is tried again
        self._complained: dict[Partition, float] = {}  # until when nothing more is said of what cannot be written
        self._stopped = False
        self._shares = False  # the threads that open logs get their part of the processor quickly
        self._in_pass = False
        # Hears when Serving.leader_epoch may be another one than before; not of internal topics, whose logs others open.
        self.epoch_changed: Callable[[Partition], None] = _nobody

    # Finding.

    def find(self, name: str, index: int) -> Partition | None:
        """None: there is no such topic or partition. It is opened if it was not yet; until then its error says so."""
        topic = self._topics.by_name.get(name)
        if topic is None:
            return None
        served = self._served.get(topic.id)
        if served is None or served.topic is not topic:
            served = self._take_up(topic)
        if not 0 <= index < topic.partitions:
            return None
        partition = served.partitions[index]
        if partition.error:
            self._ask(partition)
        return partition

    def of(self, topic: Topic) -> list[Partition]:
        """In order; none is opened for that."""
        served = self._served.get(topic.id)
        if served is None or served.topic is not topic:
            served = self._take_up(topic)
        return served.partitions[: topic.partitions]

    def has_nothing(self, partition: Partition) -> bool:
        """Nobody ever wrote to it: it has no folder, and needs none before its first append."""
        return partition.error == OPENING and not any(partition in waiting for waiting in (self._queue, self._asked, self._opening))

    def __iter__(self) -> Iterator[Partition]:
        """All but those of internal topics."""
        for id in list(self._topics.by_id):
            topic = self._topics.by_id.get(id)  # who takes a while over them may meet one that is gone
            if topic is not None and not topic.internal:
                yield from self.of(topic)

    def _take_up(self, topic: Topic) -> _Served:
        """What the registry says of it now."""
        served = self._served.get(topic.id)
        if served is None:
            served = self._served[topic.id] = _Served(topic)
        served.topic = topic
        settings = log_settings(topic.settings, self._defaults)
        for partition in served.partitions:
            partition.topic = topic
            partition.settings = settings
            if partition.opened and not isinstance(partition, InternalPartition):
                set_limits(partition.owned, settings)
        kind = InternalPartition if topic.internal else Partition
        for index in range(len(served.partitions), topic.partitions):
            served.partitions.append(kind(topic, index, settings, self))
        return served

    # Topics come and go; to be told when the fact is emitted.

    def created(self, topic: Topic) -> None:
        self._take_up(topic)

    def grown(self, topic: Topic, before: int) -> None:
        self._take_up(topic)

    def altered(self, topic: Topic) -> None:
        """At once, for what is open too."""
        self._take_up(topic)

    def deleted(self, topic: Topic) -> None:
        """Nobody finds them any more; their folders go when that is durable."""
        served = self._served.get(topic.id) or self._take_up(topic)
        for partition in served.partitions:
            self._asked.pop(partition, None)
            self._queue.pop(partition, None)
            if self._blocked.get(partition.id) is partition:
                del self._blocked[partition.id]
            self._leaving[partition.id] = self._leaving.get(partition.id, 0) + 1
            partition.refuse(GONE, "its topic was deleted")
        self._registry.reply(_Deletion(self, served))

    def deletion_decided(self, served: _Served) -> None:
        """The deletion is durable, or void."""
        if self._stopped:
            return
        if served.topic.id in self._topics.by_id:
            self._bring_back(served)
        elif self._registry.readable:
            self._set_aside(served, list(served.partitions))
        else:
            self._loop.call_later(UNDECIDED_RETRY_SECONDS, Contained(self.ask_again), served)

    def ask_again(self, served: _Served) -> None:
        """The registry did not say; when it has read its log once more it can."""
        if not self._stopped:
            self._loop.call_soon(Contained(self._registry.reply), _Deletion(self, served))

    def _bring_back(self, served: _Served) -> None:
        """The registry could not be written: the topic was never deleted."""
        self._left([partition.id for partition in served.partitions])
        for partition in served.partitions:
            if not partition.opened:
                partition.error = OPENING
            elif partition.owned.usable():
                partition.use(partition.owned)
            else:
                partition.error = FAILED
                self._try_later(partition)
            self.epoch_changed(partition)
        self._unblock()

    def _set_aside(self, served: _Served, left: list[Partition]) -> None:
        """Some folders at a time; in the end their names are free. What a stop interrupts the next start goes on with."""
        if self._stopped:
            return
        later = []
        pause = BUSY_SECONDS
        until = time.monotonic() + SLICE_SECONDS
        done = 0
        while done < len(left) and time.monotonic() < until:
            partition = left[done]
            done += 1
            if partition in self._opening or partition in self._recovering:  # a thread is at work on it
                later.append(partition)
                continue
            if partition.opened and partition.owned.busy:  # and here too, or the process that compacts it
                partition.owned.interrupt()
                later.append(partition)
                continue
            owned = partition.owned if partition.opened else None
            try:
                self._folders.set_aside(partition.id, served.topic.id, owned, partition.settings.file_delete_delay_ms)
            except OSError as error:
                log.warning("folder of a deleted topic stays", log=str(partition), reason=str(error))
                later.append(partition)
                pause = RETRY_SECONDS_MIN
        left = left[done:] + later
        if not left:
            ids = [partition.id for partition in served.partitions]
            self._folders.forget(served.topic.id, ids, partial(self._gone, served))
        elif len(later) == len(left):
            self._loop.call_later(pause, self._setting_aside(served, left), served, left)
        else:
            self._loop.call_soon(self._setting_aside(served, left), served, left)

    def _setting_aside(self, served: _Served, left: list[Partition]) -> Contained:
        """The next slice; after an exception of ours all of these are tried again, later."""
        return Contained(self._set_aside, partial(self._set_aside_later, served, left))

    def _set_aside_later(self, served: _Served, left: list[Partition]) -> None:
        self._loop.call_later(UNREADABLE_RETRY_SECONDS, self._setting_aside(served, left), served, left)

    def _gone(self, served: _Served) -> None:
        self._served.pop(served.topic.id, None)
        self._free([partition.id for partition in served.partitions])

    def _free(self, ids: Iterable[LogId]) -> None:
        """A deleted topic has nothing to do with these names any more, on the disk either."""
        self._left(ids)
        self._unblock()

    def _left(self, ids: Iterable[LogId]) -> None:
        for id in ids:
            self._leaving[id] -= 1
            if not self._leaving[id]:
                del self._leaving[id]

    def _unblock(self) -> None:
        for id in [id for id in self._blocked if id not in self._leaving]:
            partition = self._blocked.pop(id)
            self._asked[partition] = None
            self.epoch_changed(partition)
        self._open_next()

    # Opening.

    def open_all(self) -> None:
        """In the background, one after the other; what bears the name of a deleted topic when that is quite gone."""
        delay_ms = log_settings({}, self._defaults).file_delete_delay_ms
        for deleted in list(self._topics.deleted.values()):
            ids = [LogId(deleted.name, index) for index in range(deleted.partitions)]
            for id in ids:
                self._leaving[id] = self._leaving.get(id, 0) + 1
            self._finish_deletion(deleted, ids, delay_ms)
        found = self._folders.take_stock(delay_ms)
        for partition in self:
            if partition.id in found:
                self._queue[partition] = None
                self.epoch_changed(partition)
        self._open_next()

    def _finish_deletion(self, deleted: DeletedTopic, ids: list[LogId], delay_ms: int) -> None:
        """Its folders are set aside and forgotten, as a dead broker had begun."""
        if self._stopped:
            return
        try:
            free = self._folders.finish_deletion(deleted, delay_ms)
        except OSError as error:
            log.warning("folder of a deleted topic stays", log=deleted.name, reason=str(error))
            self._loop.call_later(UNREADABLE_RETRY_SECONDS, Contained(self._finish_deletion), deleted, ids, delay_ms)
        else:
            self._folders.forget(deleted.id, free, partial(self._free, ids))

    def _ask(self, partition: Partition) -> None:
        """Somebody wants it: it comes before what nobody asked for."""
        if isinstance(partition, InternalPartition):
            self._look_for(partition)
        elif partition.error == OPENING and partition not in self._opening and partition not in self._asked and not self._stopped:
            self._queue.pop(partition, None)
            self._asked[partition] = None
            self.epoch_changed(partition)
            self._open_next()

    def _look_for(self, partition: InternalPartition) -> None:
        """It is not opened here, but used when it is open."""
        served = self._store.served_log(partition.id)
        if served is None and partition.topic.name == NOTES_LOG:
            self._open_notes(partition.index)
            served = self._store.served_log(partition.id)  # a new one is there at once
        if served is not None:
            partition.follow(served)

    def _open_next(self) -> None:
        if self._in_pass:  # a log without a folder is open at once, and the pass goes on
            return
        self._in_pass = True
        try:
            self._open_some()
        finally:
            self._in_pass = False

    def _open_some(self) -> None:
        opened = 0
        while len(self._opening) < OPENED_AT_ONCE and not self._stopped:
            queue = self._asked or self._queue
            if not queue:
                break
            if opened == OPENED_IN_A_PASS:
                self._loop.call_soon(Contained(self._open_next))
                break
            opened += 1
            partition = next(iter(queue))
            del queue[partition]
            if partition.id in self._leaving:
                self._blocked[partition.id] = partition
                self.epoch_changed(partition)
            else:
                self._open(partition)
        if bool(self._opening) != self._shares:
            self._shares = not self._shares
            sys.setswitchinterval(OPENING_SWITCH_SECONDS if self._shares else SWITCH_SECONDS)

    def _open(self, partition: Partition) -> None:
        self._opening.add(partition)
        topic = TopicInfo(
            partition.topic.id,
            partition.settings.segment_bytes,
            partition.producers,
            partial(self._tell_strayed, partition),
        )
        opened = Contained(partial(self._opened, partition), partial(self._opening_failed, partition))
        if not run(self._store.open_topic_log, partition.id, topic, opened):
            self._opening_failed(partition)

    def _opening_failed(self, partition: Partition) -> None:
        """An exception of ours ended it: this partition alone is suspended, the next ones are opened."""
        self._opening.discard(partition)
        if partition.error != GONE:
            self._refuse(partition, Unreadable("a defect in this version", False))
        self._loop.call_soon(Contained(self._open_next))

    def _tell_strayed(self, partition: Partition, moved: str) -> None:
        log.warning("a folder of another topic stood in the way and is kept under another name", log=str(partition), folder=moved)

    def _opened(self, partition: Partition, result: TopicLog | Unreadable) -> None:
        self._opening.discard(partition)
        if partition.error == GONE:  # deleted meanwhile: there are files to be set aside
            if not isinstance(result, Unreadable):
                partition.owned, partition.log, partition.opened = result, result.records, True
        elif isinstance(result, Unreadable):
            self._refuse(partition, result)
        else:
            set_limits(result, partition.settings)  # which may have changed meanwhile
            result.watch(partial(self.append_failed, partition))
            partition.use(result)
            partition.wake()
        self.epoch_changed(partition)
        self._open_next()

    def _refuse(self, partition: Partition, why: Unreadable) -> None:
        partition.refuse(FAILED, why.reason)
        again = "after a restart" if why.damaged else f"in {UNREADABLE_RETRY_SECONDS:.0f} s"
        log.error("partition cannot be read", log=str(partition), reason=why.reason, again=again)
        if not why.damaged:
            self._loop.call_later(UNREADABLE_RETRY_SECONDS, Contained(self._open_again), partition)

    def _open_again(self, partition: Partition) -> None:
        if partition.error == FAILED:
            partition.error = OPENING
            self._ask(partition)

    # Logs that refuse, and logs that roll.

    def append_failed(self, partition: Partition, failure: AppendFailed) -> None:
        """Nothing of what failed is in the log. Where that is still sound it is read on, and the next append tries again."""
        if partition.error == GONE:
            return
        now = self._loop.time()
        if self._complained.get(partition, 0.0) <= now:
            self._complained[partition] = now + COMPLAIN_SECONDS
            log.error("partition cannot be written", log=str(partition), reason=str(failure))
        if not partition.owned.usable() and not partition.error:
            partition.refuse(FAILED, str(failure))
            self._try_later(partition)

    def _try_later(self, partition: Partition) -> None:
        seconds = min(2 * self._retry_seconds.get(partition, RETRY_SECONDS_MIN / 2), RETRY_SECONDS_MAX)
        self._retry_seconds[partition] = seconds
        self._loop.call_later(seconds, Contained(self._recover, partial(self._recovery_failed, partition)), partition)

    def _recover(self, partition: Partition) -> None:
        if partition.error == FAILED and not self._stopped:
            self._recovering.add(partition)
            partition.owned.recover(Contained(partial(self._recovered, partition), partial(self._recovery_failed, partition)))

    def _recovery_failed(self, partition: Partition) -> None:
        """An exception of ours ended it: the partition stays suspended, and is tried again."""
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
        self._complained.pop(partition, None)
        partition.use(partition.owned)
        log.info("partition serves again", log=str(partition))
        partition.wake()

    def stop(self) -> None:
        """Nothing is opened or tried again any more."""
        self._stopped = True


class _Deletion:
    """Waits, like a reply, until the registry has it that a topic is no more."""

    __slots__ = ("_partitions", "_served")

    def __init__(self, partitions: Partitions, served: _Served) -> None:
        self._partitions = partitions
        self._served = served

    def release(self) -> None:
        self._partitions.deletion_decided(self._served)

    def fail(self, error: int) -> None:
        self._partitions.ask_again(self._served)


def set_limits(log: TopicLog, settings: LogSettings) -> None:
    """What a log itself goes by; all other settings are read from their partition when they are needed."""
    log.set_segment_limits(settings.segment_bytes, rolls_after_ms(settings))


def _nobody(partition: Partition) -> None: ...


def rolls_after_ms(settings: LogSettings) -> int:
    """How old a segment may become. What is to be compacted in time has to be closed in time, as in Kafka."""
    age = min(settings.segment_ms, settings.max_compaction_lag_ms) if settings.compact else settings.segment_ms
    return max(age - random.randint(0, min(settings.segment_jitter_ms, settings.segment_ms)), 1)
