"""The partitions of topics as they are served here: which there are, whether their logs can be used, and who waits for
what they get.

A log that does not exist yet needs no disk before its first append. All others are opened by threads in the background,
those that somebody asked for first, and until then they answer with a code on which clients come again. What cannot
be read or written refuses alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from broker.logs import get_logger
from broker.stores.local import LocalLog, LocalStore, id_text
from broker.topic_settings import LogSettings, log_settings
from broker.topics import CONSUMER_OFFSETS, Topic, Topics
from protocol.batch import BatchHeader
from protocol.errors import ErrorCode
from storage import AppendFailed, HeldBy, Log, LogId, OwnedLog, Unreadable

log = get_logger("broker.partitions")

OPENING = ErrorCode.NOT_LEADER_OR_FOLLOWER
FAILED = ErrorCode.KAFKA_STORAGE_ERROR
GONE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

OPENED_AT_ONCE = 3  # by two threads: there is always one that waits for them
RETRY_SECONDS_MIN = 0.25
RETRY_SECONDS_MAX = 15.0
COMPLAIN_SECONDS = 15.0
# A log that could not be read is tried again after so long.
UNREADABLE_RETRY_SECONDS = 15.0


class Waiter(Protocol):
    """Somebody who wants to hear when a partition gets something, or is not what it was."""

    def grown(self, partition: Partition) -> None:
        """Cheap: called on the way of an append. What is to be done about it waits for the end of the turn."""
        ...


class Partition:
    """One partition of a topic. `log` and `producers` may be used while `error` is 0."""

    __slots__ = ("_failed", "error", "index", "log", "owned", "producers", "settings", "topic", "trouble", "waiters")

    log: Log
    owned: LocalLog
    producers: Any

    def __init__(self, topic: Topic, index: int, settings: LogSettings, failed: Callable[[Partition, AppendFailed], None]) -> None:
        self.topic = topic
        self.index = index
        self.settings = settings
        self.error: int = OPENING
        self.trouble = ""  # why it refuses, in words for people; "" while it is opened
        self.waiters: dict[Waiter, None] = {}
        self._failed = failed

    def __str__(self) -> str:
        return f"{self.topic.name}-{self.index}"

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def end_offset(self) -> int:
        """Behind the last record that may be read: the high watermark, and the last stable offset."""
        return self.log.next_offset

    @property
    def leader_epoch(self) -> int:
        """-1 while that is not known."""
        return -1 if self.error else self.owned.epoch

    def append(self, batch: bytearray, header: BatchHeader) -> int:
        """The offset of its first record. Raises AppendFailed: it is not in the log, and may be sent again.

        The batch is stamped in place. What its producer sent is noted, and whoever waits hears of it.
        """
        try:
            offset = self.log.append(batch, self.owned.epoch)
        except AppendFailed as failure:
            self._failed(self, failure)
            raise
        if self.waiters:
            self.wake()
        return offset

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Whole batches from the one that holds `offset` on, of one segment, as many as fit but one at least; b"" at the end.

        Raises OSError and DamagedLog.
        """
        return self.log.read(offset, bytes_max)

    def wake(self) -> None:
        for waiter in list(self.waiters):
            waiter.grown(self)


class OffsetsPartition(Partition):
    """One partition of __consumer_offsets: its groups write it, everybody may read what is durable of it."""

    __slots__ = ()

    @property
    def end_offset(self) -> int:
        return self.owned.durable_offset

    def append(self, batch: bytearray, header: BatchHeader) -> int:
        raise AssertionError("only groups write there")


class _Served:
    """The partitions of one topic."""

    __slots__ = ("partitions", "topic")

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.partitions: list[Partition] = []


class Partitions:
    """All of them, by topic and number."""

    def __init__(self, topics: Topics, store: LocalStore, loop: asyncio.AbstractEventLoop, defaults: Mapping[str, str]) -> None:
        self._topics = topics
        self._store = store
        self._loop = loop
        self._defaults = defaults  # by the names of topics' settings
        self._served: dict[bytes, _Served] = {}
        # What is still to be opened: first what somebody asked for.
        self._asked: dict[Partition, None] = {}
        self._queue: dict[Partition, None] = {}
        self._opening: set[Partition] = set()
        self._retry_seconds: dict[Partition, float] = {}  # of suspended ones: how long until writing is tried again
        self._complained: dict[Partition, float] = {}  # until when nothing more is said of what cannot be written
        self._stopped = False
        store.topic_rules = self._segment_bytes

    def _segment_bytes(self, id: LogId) -> int:
        return log_settings(self._topics.by_name[id.name].settings, self._defaults).segment_bytes

    # Finding.

    def find(self, name: str, index: int) -> Partition | None:
        """None: there is no such topic or partition. It is opened if it was not yet; until then its error says so."""
        topic = self._topics.by_name.get(name)
        return self._find(topic, index) if topic is not None else None

    def find_by_id(self, topic_id: bytes, index: int) -> Partition | None:
        topic = self._topics.by_id.get(topic_id)
        return self._find(topic, index) if topic is not None else None

    def _find(self, topic: Topic, index: int) -> Partition | None:
        served = self._served.get(topic.id)
        if served is None or served.topic is not topic:
            served = self._take_up(topic)
        if not 0 <= index < len(served.partitions):
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
        return served.partitions

    def _take_up(self, topic: Topic) -> _Served:
        """What the registry says of it now."""
        served = self._served.get(topic.id)
        if served is None:
            served = self._served[topic.id] = _Served(topic)
            self._store.topic_ids[topic.name] = id_text(topic.id)
        served.topic = topic
        settings = log_settings(topic.settings, self._defaults)
        for partition in served.partitions:
            partition.topic = topic
            partition.settings = settings
        kind = OffsetsPartition if topic.name == CONSUMER_OFFSETS else Partition
        for index in range(len(served.partitions), topic.partitions):
            served.partitions.append(kind(topic, index, settings, self._append_failed))
        return served

    # Topics come and go; after the fact is emitted.

    def created(self, topic: Topic) -> None:
        self._take_up(topic)

    def grown(self, topic: Topic, before: int) -> None:
        self._take_up(topic)

    def altered(self, topic: Topic) -> None:
        self._take_up(topic)

    def deleted(self, topic: Topic) -> None:
        served = self._served.pop(topic.id, None)
        if served is None:
            return
        for partition in served.partitions:
            self._asked.pop(partition, None)
            self._queue.pop(partition, None)
            partition.error = GONE
            partition.wake()

    # Opening.

    def open_all(self) -> None:
        """In the background, one after the other."""
        for topic in self._topics.by_name.values():
            if topic.name != CONSUMER_OFFSETS:
                for partition in self.of(topic):
                    self._queue[partition] = None
        self._open_next()

    def _ask(self, partition: Partition) -> None:
        """Somebody wants it: it comes before what nobody asked for."""
        if isinstance(partition, OffsetsPartition):
            self._look(partition)
        elif partition.error == OPENING and partition not in self._opening and partition not in self._asked and not self._stopped:
            self._queue.pop(partition, None)
            self._asked[partition] = None
            self._open_next()

    def _look(self, partition: OffsetsPartition) -> None:
        owned = self._store.owned(LogId(CONSUMER_OFFSETS, partition.index))
        if owned is None:
            return
        partition.owned = owned
        partition.log = owned.log
        partition.error = 0
        owned.flusher.grown = partition.wake

    def _open_next(self) -> None:
        while len(self._opening) < OPENED_AT_ONCE and not self._stopped:
            queue = self._asked or self._queue
            if not queue:
                return
            partition = next(iter(queue))
            del queue[partition]
            self._opening.add(partition)
            id = LogId(partition.topic.name, partition.index)
            self._store.acquire(id, partial(self._acquired, partition))

    def _acquired(self, partition: Partition, result: OwnedLog | HeldBy | Unreadable) -> None:
        self._opening.discard(partition)
        if isinstance(result, HeldBy | Unreadable):
            damaged = isinstance(result, Unreadable) and result.damaged
            partition.error = FAILED
            partition.trouble = result.reason if isinstance(result, Unreadable) else f"it is held by {result.who}"
            log.error("partition cannot be read", log=str(partition), reason=partition.trouble, again="after a restart" if damaged else "soon")
            if not damaged:
                self._loop.call_later(UNREADABLE_RETRY_SECONDS, self._open_again, partition)
        else:
            assert isinstance(result, LocalLog)
            partition.owned = result
            partition.log = result.log
            result.watch(partial(self._append_failed, partition))
            partition.error = 0
            partition.trouble = ""
            partition.wake()
        self._open_next()

    def _open_again(self, partition: Partition) -> None:
        if partition.error == FAILED:
            partition.error = OPENING
            self._ask(partition)

    # Logs that refuse.

    def _append_failed(self, partition: Partition, failure: AppendFailed) -> None:
        """Nothing is in the log of what failed. Where that can be read on it is; the next append tries again."""
        time = self._loop.time()
        if self._complained.get(partition, 0.0) <= time:
            self._complained[partition] = time + COMPLAIN_SECONDS
            log.error("partition cannot be written", log=str(partition), reason=str(failure))
        if partition.log.usable or partition.error:
            return
        partition.error = FAILED
        partition.trouble = str(failure)
        partition.wake()
        self._try_later(partition)

    def _try_later(self, partition: Partition) -> None:
        seconds = min(2 * self._retry_seconds.get(partition, RETRY_SECONDS_MIN / 2), RETRY_SECONDS_MAX)
        self._retry_seconds[partition] = seconds
        self._loop.call_later(seconds, self._recover, partition)

    def _recover(self, partition: Partition) -> None:
        if partition.error == FAILED and not self._stopped:
            partition.owned.recover(partial(self._recovered, partition))

    def _recovered(self, partition: Partition, failure: AppendFailed | None) -> None:
        if failure is not None:
            log.warning("partition stays suspended", log=str(partition), reason=str(failure))
            self._try_later(partition)
            return
        del self._retry_seconds[partition]
        self._complained.pop(partition, None)
        partition.error = 0
        partition.trouble = ""
        log.info("partition serves again", log=str(partition))
        partition.wake()

    def stop(self) -> None:
        """Nothing is opened any more."""
        self._stopped = True
