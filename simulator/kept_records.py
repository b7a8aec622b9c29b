"""The promise about records of topics, as a check of what producers and readers saw."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable

from simulator.world import Broken, World, format_time

Partition = tuple[str, int]  # topic, number


class Records:
    """An acknowledged record stays where it is, until retention or compaction may take it; readers see nothing else there."""

    promise = "records"

    def __init__(self, world: World, rotten: Container[Partition] = (), retention_ns: int = 0) -> None:
        """`rotten`: of these partitions nothing is promised but that what is wrong can be told from what is right.

        `retention_ns`: a record stays for so long.
        """
        self._world = world
        self.rotten = rotten
        self._retention_ns = retention_ns
        self._partitions: dict[Partition, _Kept] = {}
        self._incarnations: dict[str, int] = {}  # how often a topic was created or deleted

    def _of(self, partition: Partition) -> _Kept:
        kept = self._partitions.get(partition)
        if kept is None:
            kept = self._partitions[partition] = _Kept()
        return kept

    def sent(self, partition: Partition, values: Iterable[bytes]) -> None:
        self._of(partition).sent.update(values)

    def stored(self, partition: Partition, base_offset: int, values: Iterable[bytes], made: int) -> None:
        """A batch was acknowledged. `made`: the moment of its timestamps, from which retention counts."""
        kept = self._of(partition)
        for offset, value in enumerate(values, base_offset):
            before = kept.stored.get(offset)
            if before is None:
                kept.put(offset, value, self._world.now)
                kept.acknowledged[offset] = made
            elif before[0] != value and partition not in self.rotten:
                raise Broken(self.promise, f"{show(partition, offset)} was acknowledged for {before[0]!r} and for {value!r}", partition[0])

    def read(self, partition: Partition, offset: int, value: bytes) -> None:
        if partition in self.rotten:
            return
        kept = self._of(partition)
        known = kept.stored.get(offset)
        if known is None:
            if offset < kept.restored_before:
                return
            if value not in kept.sent:
                raise Broken(self.promise, f"{show(partition, offset)} has {value!r}, which was not sent, or is elsewhere", partition[0])
            kept.put(offset, value, self._world.now)
        elif known[0] != value:
            raise Broken(self.promise, f"{show(partition, offset)} has {value!r}, and had {known[0]!r}", partition[0])

    def read_again(self, partition: Partition, offset: int, data: bytes) -> int:
        """Where the next read begins, if a reader found the same bytes there before and each of their records is still known; or -1."""
        known, end = self._of(partition).replies.get(offset, (b"", -1))
        return end if known == data else -1

    def read_whole(self, partition: Partition, offset: int, data: bytes, end: int) -> None:
        """A reader compared each record of a reply to a read from `offset`; there was no gap before `end`."""
        kept = self._of(partition)
        if partition not in self.rotten and offset >= kept.restored_before:
            kept.replies[offset] = data, end

    def skipped(self, partition: Partition, first: int, end: int, since: int) -> None:
        """A reader got nothing from `first` to `end`, although nothing was deleted; `since`: when it asked."""
        if partition in self.rotten:
            return
        stored = self._of(partition).stored
        for offset in range(first, end):
            known = stored.get(offset)
            if known is not None and known[1] < since:
                raise Broken(self.promise, f"{show(partition, offset)} is gone: {known[0]!r} was acknowledged", partition[0])

    def created(self, topic: str) -> None:
        self._incarnations[topic] = self.incarnation(topic) + 1

    def deleted(self, topic: str) -> None:
        """The topic is going to be deleted: what was acknowledged before must not be there when it is created again."""
        self._incarnations[topic] = self.incarnation(topic) + 1
        for partition, kept in self._partitions.items():
            if partition[0] == topic:
                self._partitions[partition] = again = _Kept()
                again.sent = kept.sent

    def incarnation(self, topic: str) -> int:
        """What it was before a request and is after its reply, the reply is about."""
        return self._incarnations.get(topic, 0)

    def lost_since(self, moment: int) -> None:
        """The power failed: the operating system had not written what was appended since then."""
        for kept in self._partitions.values():
            kept.lose_since(moment)

    def forget_before(self, partition: Partition, offset: int) -> None:
        """The partition's records begin with that offset."""
        kept = self._of(partition)
        if offset <= kept.begin:
            return
        newest = max((old for old in range(kept.begin, offset) if old in kept.acknowledged), default=-1)
        if newest >= 0 and partition not in self.rotten:
            value, made = kept.stored[newest][0], kept.acknowledged[newest]
            if made > self._world.now - self._retention_ns:
                raise Broken(
                    self.promise, f"{show(partition, newest)} is deleted: {value!r}, which was acknowledged, is of {format_time(made)}", partition[0]
                )
        kept.forget_before(offset)


class _Kept:
    """The records of one partition."""

    __slots__ = ("acknowledged", "begin", "order", "replies", "restored_before", "sent", "stored")

    def __init__(self) -> None:
        self.begin = 0
        self.restored_before = 0  # deleted segments before this offset may be back: the power failed before their removal was durable
        self.acknowledged: dict[int, int] = {}  # offsets of `stored` whose producer got a reply -> the moment of their timestamp
        self.stored: dict[int, tuple[bytes, int]] = {}  # offset -> value, and when it was acknowledged or read
        self.order: deque[int] = deque()  # their offsets, the oldest first
        self.sent: set[bytes] = set()  # values whose offset is not known
        self.replies: dict[int, tuple[bytes, int]] = {}  # where a read began -> its bytes, all records of which are in `stored`, and its end

    def put(self, offset: int, value: bytes, moment: int) -> None:
        self.sent.discard(value)
        self.stored[offset] = value, moment
        self.order.append(offset)

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


def show(partition: Partition, offset: int) -> str:
    return f"{partition[0]}-{partition[1]} offset {offset}"
