"""One partition of a topic: its state, its log, and the fetches that wait for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from broker.topics.registry import Topic
from broker.topics.settings import LogSettings
from protocol.batch import BatchHeader
from protocol.errors import ErrorCode
from storage import AppendFailed, DamagedLog, LogId, Producers, Readable, ServedLog, TopicLog

NOT_SERVED = ErrorCode.NOT_LEADER_OR_FOLLOWER
FAILED = ErrorCode.KAFKA_STORAGE_ERROR
GONE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Waiter(Protocol):
    """Is notified when a partition grows or changes its state."""

    def grown(self, partition: Partition) -> None:
        """Called during an append: must be cheap, and defer its work to the end of the turn."""
        ...


class FailureHandler(Protocol):
    """Handles failed appends; implemented by `Partitions`."""

    def append_failed(self, partition: Partition, failure: AppendFailed) -> None: ...


class Partition:
    """One partition. `log` and `producers` may be used while `error` is 0."""

    __slots__ = (
        "_failure_handler",
        "batch_queue",
        "error",
        "index",
        "log",
        "opened",
        "owned_log",
        "producers",
        "refusal_reason",
        "settings",
        "topic",
        "waiters",
    )

    log: Readable
    owned_log: TopicLog

    def __init__(self, topic: Topic, index: int, settings: LogSettings, failure_handler: FailureHandler) -> None:
        self.topic = topic
        self.index = index
        self.settings = settings
        self.producers = Producers()
        self.error: int = NOT_SERVED
        self.refusal_reason = ""  # why the partition refuses requests, for people; "" while it serves or is being opened
        self.opened = False  # whether it has a log, usable or not
        self.waiters: dict[Waiter, None] = {}
        self.batch_queue: deque[Any] | None = None  # batches that are not appended at once (batch_queues.py)
        self._failure_handler = failure_handler

    def __str__(self) -> str:
        return f"{self.topic.name}-{self.index}"

    @property
    def id(self) -> LogId:
        return LogId(self.topic.name, self.index)

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def high_watermark(self) -> int:
        """Also the last stable offset, since there are no transactions."""
        return self.log.high_watermark

    @property
    def leader_epoch(self) -> int:
        """The leader epoch; -1 while it is unknown."""
        return self.log.epoch if self.opened else -1

    @property
    def assigns_offsets_at_once(self) -> bool:
        """Whether an append returns its offset at once. If not (NATS JetStream), every batch is queued (batch_queues.py)."""
        return self.owned_log.assigns_offsets_at_once

    @property
    def batch_bytes_max(self) -> int:
        """The size of the largest batch that the log accepts, whatever `max.message.bytes` of the topic is."""
        return self.owned_log.batch_bytes_max

    def append(self, batch: bytearray, header: BatchHeader) -> int:
        """Append to a log that `assigns_offsets_at_once`; returns the base offset. If AppendFailed is raised, nothing was written.

        Base offset and leader epoch are written into `batch`; `header` is its decoded header. Updates producer state and notifies waiters.
        """
        try:
            offset = self.owned_log.append(batch, _ignore)
        except AppendFailed as failure:
            self._failure_handler.append_failed(self, failure)
            raise
        if header.producer_id >= 0:
            self.producers.note(header, offset)
        if self.waiters:
            self.wake()
        return offset

    def append_async(self, batch: bytearray, header: BatchHeader, done: Callable[[int | AppendFailed], None]) -> None:
        """Append, also to a log that assigns offsets later; `done` is called at once or later."""
        if self.owned_log.assigns_offsets_at_once:
            result: int | AppendFailed
            try:
                result = self.append(batch, header)
            except AppendFailed as failure:
                result = failure
            done(result)
            return

        def appended(result: int | AppendFailed) -> None:
            if isinstance(result, AppendFailed):
                self._failure_handler.append_failed(self, result)
            else:
                if header.producer_id >= 0:
                    self.producers.note(header, result)
                self.wake()
            done(result)

        self.owned_log.append(batch, appended)

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Read whole batches of one segment, beginning with the batch of `offset`: as many as fit, at least one; b"" at the end.

        Raises OSError and DamagedLog.
        """
        return self.log.read(offset, bytes_max)

    def use_log(self, owned: TopicLog) -> None:
        self.owned_log = owned
        if not owned.assigns_offsets_at_once and self.batch_queue is None:
            self.batch_queue = deque()
        self._serve(owned)

    def _serve(self, log: ServedLog) -> None:
        self.log = log.records
        self.opened = True
        self.error = 0
        self.refusal_reason = ""

    def failed(self, failure: AppendFailed) -> None:
        """Called when the log failed outside an append."""
        self._failure_handler.append_failed(self, failure)

    def refuse(self, error: int, reason: str) -> None:
        self.error = error
        self.refusal_reason = reason
        self.wake()

    def wake(self) -> None:
        for waiter in list(self.waiters):
            waiter.grown(self)


def _ignore(result: int | AppendFailed) -> None: ...


def read_error_code(problem: Exception) -> int:
    """The error code for a failed read: damaged records, or a disk error."""
    return ErrorCode.CORRUPT_MESSAGE if isinstance(problem, DamagedLog) else ErrorCode.KAFKA_STORAGE_ERROR


class InternalPartition(Partition):
    """A partition of __consumer_offsets or __coordinator_notes: only the broker writes it; clients read what is durable."""

    __slots__ = ("_served",)

    def follow(self, log: ServedLog) -> None:
        """Serve reads of the log, up to its high watermark."""
        self._served = log
        self._serve(log)
        log.watch_growth(self.wake)

    @property
    def high_watermark(self) -> int:
        return self._served.high_watermark

    def append(self, batch: bytearray, header: BatchHeader) -> int:
        raise AssertionError("clients cannot write internal topics")

    def read(self, offset: int, bytes_max: int) -> bytes:
        return self.log.read(offset, bytes_max, self._served.high_watermark)
