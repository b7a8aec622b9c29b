"""Topic logs in memory: a second store behind the port of `storage.store`, slow or failing as the test directs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from protocol.batch import read_header, stamp
from storage import AppendFailed, Extent, FoundRecord, LogId, RetentionLimits, ServedLog, TopicInfo, TopicLog, Unreadable
from storage.times import SearchStep


class MemoryRecords:
    """The appended batches, behind the port `Readable`."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.start_offset = 0
        self.log_path = "memory"
        self._batches: list[tuple[int, bytes]] = []  # (offset after the batch, batch)
        self._next = 0

    @property
    def next_offset(self) -> int:
        return self._next

    @property
    def high_watermark(self) -> int:
        return self._next

    @property
    def size(self) -> int:
        return sum(len(batch) for _, batch in self._batches)

    def add(self, batch: bytearray) -> int:
        offset = self._next
        stamp(batch, 0, offset, self.epoch)
        self._next = read_header(batch, 0).next_offset
        self._batches.append((self._next, bytes(batch)))
        return offset

    def drop_first(self) -> None:
        next_offset, _ = self._batches.pop(0)
        self.start_offset = max(self.start_offset, next_offset)

    @property
    def batches(self) -> int:
        return len(self._batches)

    def _range_of(self, offset: int, bytes_max: int, end: int, one_at_least: bool) -> tuple[int, int]:
        """The positions of the requested batches, and their size in bytes."""
        at = size = begin = 0
        for batch_end, batch in self._batches:
            if batch_end <= offset:
                begin = at + len(batch)
            elif 0 <= end < batch_end or (size + len(batch) > bytes_max and (size or not one_at_least)):
                break
            else:
                size += len(batch)
            at += len(batch)
        return begin, size

    def bytes_at(self, at: int, size: int) -> bytes:
        return b"".join(batch for _, batch in self._batches)[at : at + size]

    descriptor = -1

    def pin(self) -> None: ...

    def unpin(self) -> None: ...

    def read(self, offset: int, bytes_max: int, end: int = -1) -> bytes:
        return self.bytes_at(*self._range_of(offset, bytes_max, end, True))

    def extent(self, offset: int, bytes_max: int, end: int = -1, one_at_least: bool = True) -> Extent | None:
        begin, size = self._range_of(offset, bytes_max, end, one_at_least)
        return Extent(self, begin, size, size, False) if size else None

    def find_time(self, timestamp: int) -> Iterator[SearchStep]:
        for _, batch in self._batches:
            header = read_header(batch, 0)
            if header.max_timestamp >= timestamp:
                yield FoundRecord(header.max_timestamp, header.base_offset, self.epoch)
                return
            yield None

    def latest_record(self) -> Iterator[SearchStep]:
        headers = [read_header(batch, 0) for _, batch in self._batches]
        if headers:
            newest = max(headers, key=lambda header: header.max_timestamp)
            yield FoundRecord(newest.max_timestamp, newest.base_offset, self.epoch)

    def epoch_at(self, offset: int) -> int:
        return self.epoch

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        return (self.epoch, self._next) if epoch >= self.epoch else (-1, -1)


class MemoryTopicLog:
    """A `TopicLog`. Without `immediate` each append waits in `waiting` until the test calls it."""

    batch_bytes_max = 1 << 20

    def __init__(self, id: LogId, immediate: bool = True, epoch: int = 0) -> None:
        self.id = id
        self.epoch = epoch
        self.assigns_offsets_at_once = immediate
        self.records = MemoryRecords(epoch)
        self.busy = False
        self.unusable_reason = ""  # set: appends fail, and the log is unusable until it is recovered
        self.append_failure = ""  # set: appends fail, and the log stays usable
        self.waiting: list[Callable[[], None]] = []
        self.recovering: list[Callable[[AppendFailed | None], None]] = []
        self.limits = (0, 0)
        self.failed: Callable[[AppendFailed], None] = lambda failure: None

    @property
    def high_watermark(self) -> int:
        return self.records.high_watermark

    @property
    def durable_offset(self) -> int:
        return self.records.next_offset

    def usable(self) -> bool:
        return not self.unusable_reason

    def watch_growth(self, on_growth: Callable[[], None]) -> None: ...

    def watch(self, failed: Callable[[AppendFailed], None]) -> None:
        self.failed = failed

    def append(self, batch: bytearray, done: Callable[[int | AppendFailed], None]) -> int:
        if self.assigns_offsets_at_once:
            return self._write(batch)

        def write() -> None:
            result: int | AppendFailed
            try:
                result = self._write(batch)
            except AppendFailed as failure:
                result = failure
            done(result)

        self.waiting.append(write)
        return -1

    def _write(self, batch: bytearray) -> int:
        if self.unusable_reason or self.append_failure:
            raise AppendFailed(self.unusable_reason or self.append_failure)
        return self.records.add(batch)

    def write_next(self) -> None:
        self.waiting.pop(0)()

    def recover(self, done: Callable[[AppendFailed | None], None]) -> None:
        self.recovering.append(done)

    def interrupt(self) -> None:
        self.busy = False

    def set_segment_limits(self, segment_bytes: int, segment_ms: int) -> None:
        self.limits = segment_bytes, segment_ms

    def apply_retention(self, now: int, monotonic: int, limits: RetentionLimits) -> int:
        dropped = 0
        while 0 <= limits.retention_bytes < self.records.size:
            self.records.drop_first()
            dropped += 1
        return dropped

    def delete_before(self, offset: int) -> None:
        self.records.start_offset = max(self.records.start_offset, min(offset, self.records.next_offset))


class MemoryTopicStore:
    """A `TopicStore`. With `held`, logs open and checkpoints are written only when the test runs the callbacks in `waiting`."""

    def __init__(self, immediate: bool = True, held: bool = False) -> None:
        self.immediate = immediate
        self.held = held
        self.waiting: list[Callable[[], None]] = []
        self.logs: dict[LogId, MemoryTopicLog] = {}
        self.internal: dict[LogId, Any] = {}
        self.set_aside_logs: list[LogId] = []
        self.unreadable: dict[LogId, Unreadable] = {}
        self.durable_starts: dict[tuple[str, int], int] = {}
        self.points: dict[tuple[str, int], int] = {}

    def _do(self, work: Callable[[], None]) -> None:
        if self.held:
            self.waiting.append(work)
        else:
            work()

    def open_topic_log(self, id: LogId, topic: TopicInfo, done: Callable[[TopicLog | Unreadable], None]) -> None:
        def opened() -> None:
            if id in self.unreadable:
                done(self.unreadable[id])
            else:
                done(self.logs.setdefault(id, MemoryTopicLog(id, self.immediate)))

        self._do(opened)

    def served_log(self, id: LogId) -> ServedLog | None:
        return self.logs.get(id) or self.internal.get(id)

    def list_existing_logs(self, delete_delay_ms: int) -> list[LogId]:
        return list(self.logs)

    def exists(self, id: LogId) -> bool:
        return id in self.logs

    def set_aside(self, id: LogId, topic_id: bytes, opened: TopicLog | None, claimed: bool, delete_delay_ms: int) -> None:
        if self.logs.get(id) is opened and opened is not None:
            del self.logs[id]
            self.set_aside_logs.append(id)

    def forget_topics(self, ids: Collection[LogId], done: Callable[[Exception | None], None]) -> None:
        self._do(lambda: done(None))

    def save_start_offsets(self, offsets: dict[tuple[str, int], int], done: Callable[[Exception | None], None]) -> None:
        def saved() -> None:
            self.durable_starts |= offsets
            done(None)

        self._do(saved)

    def save_recovery_points(self, offsets: dict[tuple[str, int], int], done: Callable[[Exception | None], None]) -> None:
        self.points |= offsets
        done(None)
