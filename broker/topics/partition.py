"""One partition of a topic as it is served here."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from broker.stores.owned import LocalLog
from broker.topics.registry import Topic
from broker.topics.settings import LogSettings
from protocol.batch import BatchHeader
from protocol.errors import ErrorCode
from storage import AppendFailed, DamagedLog, Log, LogId
from storage.producers import Producers

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

    def rolled(self, partition: Partition) -> None:
        """Its log has begun another segment."""
        ...


class Partition:
    """`log` and `producers` may be used while `error` is 0."""

    __slots__ = ("_keeper", "error", "index", "late", "log", "opened", "owned", "producers", "settings", "topic", "trouble", "waiters")

    log: Log
    owned: LocalLog

    def __init__(self, topic: Topic, index: int, settings: LogSettings, keeper: Keeper) -> None:
        self.topic = topic
        self.index = index
        self.settings = settings
        self.producers = Producers()
        self.error: int = OPENING
        self.trouble = ""  # why it refuses, in words for people; "" while it is opened
        self.opened = False  # there is a log, usable or not
        self.waiters: dict[Waiter, None] = {}
        self.late: deque[Any] | None = None  # batches that are not appended yet, in order (handlers/late_batches.py)
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
        return self.log.next_offset

    @property
    def leader_epoch(self) -> int:
        """-1 while that is not known."""
        return self.log.epoch if self.opened else -1

    def append(self, batch: bytearray, header: BatchHeader) -> int:
        """The offset of its first record. Raises AppendFailed: it is not in the log, and may be sent again.

        The batch is stamped in place, `header` is what it was read to be. A producer that has an id is noted, and whoever
        waits hears of the batch.
        """
        log = self.log
        try:
            offset = log.append(batch, self.owned.epoch)
        except AppendFailed as failure:
            self._keeper.append_failed(self, failure)
            raise
        if header.producer_id >= 0:
            self.producers.note(header, offset)
        if offset == log.last_base:
            self._keeper.rolled(self)
        if self.waiters:
            self.wake()
        return offset

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Whole batches from the one that holds `offset` on, of one segment, as many as fit but one at least; b"" at the end.

        Raises OSError and DamagedLog.
        """
        return self.log.read(offset, bytes_max)

    def use(self, owned: LocalLog) -> None:
        self.owned = owned
        self.log = owned.log
        self.opened = True
        self.error = 0
        self.trouble = ""

    def failed(self, failure: AppendFailed) -> None:
        """Its log broke on a way that was not an append."""
        self._keeper.append_failed(self, failure)

    def rolled(self) -> None:
        """Its log was rolled on a way that was not an append."""
        self._keeper.rolled(self)

    def refuse(self, error: int, trouble: str) -> None:
        self.error = error
        self.trouble = trouble
        self.wake()

    def wake(self) -> None:
        for waiter in list(self.waiters):
            waiter.grown(self)


def unreadable(problem: Exception) -> int:
    """The code for a log that gives no records: its bytes are wrong, or the disk does not give them."""
    return ErrorCode.CORRUPT_MESSAGE if isinstance(problem, DamagedLog) else ErrorCode.KAFKA_STORAGE_ERROR


class InternalPartition(Partition):
    """One partition of __consumer_offsets or __coordinator_notes: this broker alone writes it, everybody may read what is durable of it."""

    __slots__ = ()

    @property
    def end_offset(self) -> int:
        return self.owned.durable_offset

    def append(self, batch: bytearray, header: BatchHeader) -> int:
        raise AssertionError("no client writes there")

    def read(self, offset: int, bytes_max: int) -> bytes:
        return self.log.read(offset, bytes_max, self.owned.durable_offset)
