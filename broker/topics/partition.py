"""One partition of a topic as it is served here."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from broker.topics.registry import Topic
from broker.topics.settings import LogSettings
from protocol.batch import BatchHeader
from protocol.errors import ErrorCode
from storage import AppendFailed, DamagedLog, LogId, Producers, Readable, ServedLog, TopicLog

OPENING = ErrorCode.NOT_LEADER_OR_FOLLOWER
FAILED = ErrorCode.KAFKA_STORAGE_ERROR
GONE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Waiter(Protocol):
    """Somebody who wants to hear when a partition gets something, or is not what it was."""

    def grown(self, partition: Partition) -> None:
        """Cheap: called on the way of an append. What is to be done about it waits for the end of the turn."""
        ...


class Keeper(Protocol):
    """Who looks after partitions."""

    def append_failed(self, partition: Partition, failure: AppendFailed) -> None: ...


class Partition:
    """`log` and `producers` may be used while `error` is 0."""

    __slots__ = ("_keeper", "error", "index", "late", "log", "opened", "owned", "producers", "settings", "topic", "trouble", "waiters")

    log: Readable
    owned: TopicLog

    def __init__(self, topic: Topic, index: int, settings: LogSettings, keeper: Keeper) -> None:
        self.topic = topic
        self.index = index
        self.settings = settings
        self.producers = Producers()
        self.error: int = OPENING
        self.trouble = ""  # why it refuses, in words for people; "" while it is opened
        self.opened = False  # there is a log, usable or not
        self.waiters: dict[Waiter, None] = {}
        self.late: deque[Any] | None = None  # batches that are not appended yet, in order (late_batches.py)
        self._keeper = keeper

    def __str__(self) -> str:
        return f"{self.topic.name}-{self.index}"

    @property
    def id(self) -> LogId:
        return LogId(self.topic.name, self.index)

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def end_offset(self) -> int:
        """Behind the last record that may be read: the high watermark, and the last stable offset."""
        return self.log.high_watermark

    @property
    def leader_epoch(self) -> int:
        """-1 while that is not known."""
        return self.log.epoch if self.opened else -1

    @property
    def immediate(self) -> bool:
        """A batch that is appended has its offset at once. In any other partition one batch after the other is late."""
        return self.owned.immediate

    def append(self, batch: bytearray, header: BatchHeader) -> int:
        """The offset of its first record, in an immediate log. Raises AppendFailed: it is not there, and may be sent again.

        The batch is stamped in place, `header` is what it was read to be. A producer that has an id is noted, and whatever
        waits hears of the batch.
        """
        try:
            offset = self.owned.append(batch, _unheard)
        except AppendFailed as failure:
            self._keeper.append_failed(self, failure)
            raise
        if header.producer_id >= 0:
            self.producers.note(header, offset)
        if self.waiters:
            self.wake()
        return offset

    def append_late(self, batch: bytearray, header: BatchHeader, done: Callable[[int | AppendFailed], None]) -> None:
        """The same in any log; `done` is called at once or later."""
        if self.owned.immediate:
            result: int | AppendFailed
            try:
                result = self.append(batch, header)
            except AppendFailed as failure:
                result = failure
            done(result)
            return

        def appended(result: int | AppendFailed) -> None:
            if isinstance(result, AppendFailed):
                self._keeper.append_failed(self, result)
            else:
                if header.producer_id >= 0:
                    self.producers.note(header, result)
                self.wake()
            done(result)

        self.owned.append(batch, appended)

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Whole batches from the one that holds `offset` on, of one segment, as many as fit but one at least; b"" at the end.

        Raises OSError and DamagedLog.
        """
        return self.log.read(offset, bytes_max)

    def use(self, owned: TopicLog) -> None:
        self.owned = owned
        if not owned.immediate and self.late is None:
            self.late = deque()
        self._serve(owned)

    def _serve(self, log: ServedLog) -> None:
        self.log = log.records
        self.opened = True
        self.error = 0
        self.trouble = ""

    def failed(self, failure: AppendFailed) -> None:
        """Its log broke on a way that was not an append."""
        self._keeper.append_failed(self, failure)

    def refuse(self, error: int, trouble: str) -> None:
        self.error = error
        self.trouble = trouble
        self.wake()

    def wake(self) -> None:
        for waiter in list(self.waiters):
            waiter.grown(self)


def _unheard(result: int | AppendFailed) -> None: ...


def unreadable(problem: Exception) -> int:
    """The code for a log that gives no records: its bytes are wrong, or the disk does not give them."""
    return ErrorCode.CORRUPT_MESSAGE if isinstance(problem, DamagedLog) else ErrorCode.KAFKA_STORAGE_ERROR


class InternalPartition(Partition):
    """One partition of __consumer_offsets or __coordinator_notes: this broker alone writes it, everybody may read what is durable of it."""

    __slots__ = ("_served",)

    def follow(self, log: ServedLog) -> None:
        """Its log is open: what becomes durable in it may be read."""
        self._served = log
        self._serve(log)
        log.watch_growth(self.wake)

    @property
    def end_offset(self) -> int:
        return self._served.high_watermark

    def append(self, batch: bytearray, header: BatchHeader) -> int:
        raise AssertionError("no client writes there")

    def read(self, offset: int, bytes_max: int) -> bytes:
        return self.log.read(offset, bytes_max, self._served.high_watermark)
