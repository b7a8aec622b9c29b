"""The promise about records of topics, as a check of the replies to producers and readers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable
from typing import Final

from simulator.world import Broken, Promise, World, format_time

Partition = tuple[str, int]  # topic, number
EVERYWHERE: Final = 1 << 62  # after every offset
# How many bytes a record has at most besides its value, and a batch besides its records.
RECORD_BYTES: Final = 10
BATCH_BYTES: Final = 61


class Records:
    """An acknowledged record stays at its offset until retention or DeleteRecords may delete it; readers see no other record there."""

    promise = Promise(
        "records",
        "an acknowledged record stays at its offset until retention or DeleteRecords deletes it, deleted records never return, and readers see no other record there",
        has_offsets=True,
    )
    ages_unknown: Final = ("wall", "clocks")  # faults under which nobody knows which records retention may delete

    def __init__(self, world: World, rotten: Container[Partition] = (), retention_ns: int = 0, retention_bytes: int = EVERYWHERE) -> None:
        """`rotten`: partitions with a flipped bit, which are not checked here. A record stays until it is older than `retention_ns`, or more
        than `retention_bytes` follow it.
        """
        self._world = world
        self.rotten = rotten
        self._retention_ns = retention_ns
        self._retention_bytes = retention_bytes
        self._partitions: dict[Partition, _Log] = {}
        self._incarnations: dict[str, int] = {}  # topic -> number of its creations and deletions

    def _of(self, partition: Partition) -> _Log:
        log = self._partitions.get(partition)
        if log is None:
            log = self._partitions[partition] = _Log()
        return log

    def sent(self, partition: Partition, values: Iterable[bytes]) -> None:
        self._of(partition).sent.update(values)

    def acknowledged(self, partition: Partition, base_offset: int, values: Iterable[bytes], made: int) -> None:
        """A batch was acknowledged. `made`: the moment of its timestamps, by which retention deletes."""
        log = self._of(partition)
        if base_offset < log.deleted_before and made > log.deleted_at and partition not in self.rotten:
            raise Broken(self.promise, f"{record_text(partition, base_offset)} is acknowledged, although DeleteRecords had deleted it", partition[0])
        for offset, value in enumerate(values, base_offset):
            before = log.stored.get(offset)
            if before is None:
                log.put(offset, value, self._world.now)
                log.acknowledged[offset] = made
            elif before[0] != value and partition not in self.rotten:
                raise Broken(self.promise, f"{record_text(partition, offset)} was acknowledged for two records, {before[0]!r} and {value!r}", partition[0])

    def read(self, partition: Partition, offset: int, value: bytes) -> None:
        if partition in self.rotten:
            return
        log = self._of(partition)
        known = log.stored.get(offset)
        if known is None:
            if offset < log.forgotten_before:
                return
            if value not in log.sent:
                raise Broken(self.promise, f"{record_text(partition, offset)} has {value!r}, which was not sent or is at another offset", partition[0])
            log.put(offset, value, self._world.now)
        elif known[0] != value:
            raise Broken(self.promise, f"{record_text(partition, offset)} has {value!r} instead of {known[0]!r}", partition[0])

    def end_of_repeated_read(self, partition: Partition, offset: int, data: bytes) -> int:
        """The offset after the records in `data`, if an earlier read of `offset` had equal bytes and its records are still known; otherwise -1."""
        known, end = self._of(partition).replies.get(offset, (b"", -1))
        return end if known == data else -1

    def read_whole(self, partition: Partition, offset: int, data: bytes, end: int) -> None:
        """A reader read `data` from `offset`, and has checked each record in it; there is no gap before `end`."""
        log = self._of(partition)
        if partition not in self.rotten and offset >= log.forgotten_before:
            log.replies[offset] = data, end

    def skipped(self, partition: Partition, first: int, end: int, since: int) -> None:
        """A reply to a reader has no records from `first` to before `end`, and none were deleted. `since`: when the reader sent the request."""
        if partition in self.rotten:
            return
        stored = self._of(partition).stored
        for offset in range(first, end):
            known = stored.get(offset)
            if known is not None and known[1] < since:
                raise Broken(self.promise, f"{record_text(partition, offset)} is lost: {known[0]!r} was acknowledged", partition[0])

    def created(self, topic: str) -> None:
        self._incarnations[topic] = self.incarnation(topic) + 1

    def deleted(self, topic: str) -> None:
        """The topic will be deleted: when it is recreated, it must have none of the old records."""
        self._incarnations[topic] = self.incarnation(topic) + 1
        for partition, log in self._partitions.items():
            if partition[0] == topic:
                self._partitions[partition] = recreated = _Log()
                recreated.sent = log.sent

    def incarnation(self, topic: str) -> int:
        """A number that changes with each creation and deletion of the topic. A reply counts only if the number is still that of its request."""
        return self._incarnations.get(topic, 0)

    def bounds(self, partition: Partition) -> tuple[int, int]:
        """The known log start offset, and the offset after the last known record."""
        log = self._of(partition)
        return log.begin, max(log.begin, log.order[-1] + 1 if log.order else 0)

    def delete_before(self, partition: Partition, offset: int) -> Callable[[int], None]:
        """DeleteRecords is sent (offset -1: for all records). Returns a function: call it with the low watermark of a reply without an error.

        After that reply the records never return, even after a power failure: the broker answers once the deletion is durable.
        """
        log = self._of(partition)
        incarnation = self.incarnation(partition[0])
        before = log.deletable_before
        log.deletable_before = EVERYWHERE if offset < 0 else max(before, offset)

        def answered(low_watermark: int) -> None:
            if incarnation != self.incarnation(partition[0]):
                return
            if low_watermark < offset and partition not in self.rotten:
                raise Broken(self.promise, f"DeleteRecords before {record_text(partition, offset)} is acknowledged with low watermark {low_watermark}", partition[0])
            log.deletable_before = max(before, low_watermark)
            if low_watermark > log.deleted_before:
                log.deleted_before, log.deleted_at = low_watermark, self._world.now

        return answered

    def check_log_start(self, partition: Partition, log_start: int, since: int) -> None:
        """A reply to a reader has this log start offset. `since`: when the reader sent the request."""
        log = self._of(partition)
        if log_start < log.deleted_before and log.deleted_at < since and partition not in self.rotten:
            raise Broken(self.promise, f"{record_text(partition, log_start)} is the log start, although DeleteRecords deleted the records before {log.deleted_before}", partition[0])

    def lost_since(self, moment: int) -> None:
        """The power failed: records appended since `moment` may be lost, since the operating system may not have written them to the disk."""
        for log in self._partitions.values():
            log.lose_since(moment)

    def check_and_forget_before(self, partition: Partition, offset: int) -> None:
        """The partition's log starts at `offset`: raise Broken if a record before it was deleted too early."""
        log = self._of(partition)
        if offset <= log.begin:
            return
        newest = max((old for old in range(max(log.begin, log.deletable_before), offset) if old in log.acknowledged), default=-1)
        if newest >= 0 and partition not in self.rotten:
            value, made = log.stored[newest][0], log.acknowledged[newest]
            if made > self._world.now - self._retention_ns and log.bytes_from(offset) < self._retention_bytes:
                record = record_text(partition, newest)
                raise Broken(self.promise, f"{record} is deleted too early: {value!r} is of {format_time(made)}", partition[0])
        log.forget_before(offset)


class _Log:
    """The known records of one partition."""

    __slots__ = ("acknowledged", "begin", "deletable_before", "deleted_at", "deleted_before", "order", "replies", "restored_before", "sent", "stored")

    def __init__(self) -> None:
        self.begin = 0
        self.restored_before = 0  # a power failure may have restored deleted segments before this offset
        self.deletable_before = 0  # DeleteRecords was sent for the records before this offset
        self.deleted_before = 0  # the newest acknowledged DeleteRecords deleted the records before this offset
        self.deleted_at = -1  # when that was acknowledged
        self.acknowledged: dict[int, int] = {}  # offset of an acknowledged record -> the moment of its timestamp
        self.stored: dict[int, tuple[bytes, int]] = {}  # offset -> value, and the moment of its acknowledgement or first read
        self.order: deque[int] = deque()  # offsets of `stored`, the oldest first
        self.sent: set[bytes] = set()  # values that producers have sent, and whose offset is not known
        self.replies: dict[int, tuple[bytes, int]] = {}  # offset of a read -> bytes of the reply, whose records are all in `stored`, and the offset after them

    def put(self, offset: int, value: bytes, moment: int) -> None:
        self.sent.discard(value)
        self.stored[offset] = value, moment
        self.order.append(offset)

    @property
    def forgotten_before(self) -> int:
        """Readers may again get records before this offset, which are not known here: a power failure may have restored deleted segments, or a
        kill may have undone a DeleteRecords that was not acknowledged.
        """
        return max(self.restored_before, min(self.begin, self.deletable_before))

    def bytes_from(self, offset: int) -> int:
        """The size that the records from `offset` on have at most, those of unknown offset included."""
        values = [self.stored[later][0] for later in self.order if later >= offset and later in self.stored]
        return sum(len(value) + RECORD_BYTES + BATCH_BYTES for value in (*values, *self.sent))

    def lose_since(self, moment: int) -> None:
        self.restored_before = self.begin
        self.replies.clear()
        stored, order = self.stored, self.order
        while order:
            known = stored.get(order[-1])
            if known is not None and known[1] < moment:
                return
            offset = order.pop()
            self.acknowledged.pop(offset, None)
            if known is not None:
                self.sent.add(known[0])
                del stored[offset]

    def forget_before(self, offset: int) -> None:
        stored = self.stored
        for old in range(self.begin, offset):
            stored.pop(old, None)
            self.acknowledged.pop(old, None)
            self.replies.pop(old, None)
        self.begin = offset
        while self.order and self.order[0] < self.begin:
            self.order.popleft()


def record_text(partition: Partition, offset: int) -> str:
    return f"{partition[0]}-{partition[1]} offset {offset}"
