"""The table of owners: the node and epoch of each log, and its last writer, whose folder has the log's checkpoints and turn logs.

All nodes map the table's file into memory, so reading it needs no I/O. Only the holder of a log's lock writes the log's slot.
A node syncs the slot before its first append at a new epoch: so after a power failure the slot names the last node that may have
written to the log.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from storage.directory import OWNERS_FILE
from storage.disk import SharedDisk
from storage.store import LogId

LOCKS_FILE: Final = "locks"
SLOTS: Final = 1 << 16
_SLOT: Final = Struct("<QiIqIi16s")  # hash of the log's name, node, epoch, since (ms), state, writer, topic id
_COUNTERS: Final = 512  # before the slots: one for each node, incremented with every change of that node's slots
_HEADER_BYTES: Final = 8 * _COUNTERS
_SLOTS_BYTES: Final = _SLOT.size * SLOTS
_LAST_DELETION_AT: Final = _HEADER_BYTES + _SLOTS_BYTES
TABLE_BYTES: Final = _LAST_DELETION_AT + 8
_SCAN_BYTES: Final = 256 * _SLOT.size  # read at once by a scan of all slots
_UNUSED: Final = bytes(_SCAN_BYTES)

UNUSED, OWNED, FREE, GONE = range(4)  # states; GONE: the log's topic was deleted

# `Slot.writer` is n + 1 if node n has the log open, or crashed with it open; -(n + 1) if node n has flushed and closed it; or:
SINGLE_BROKER: Final = 0
NO_WRITER: Final = -(1 << 31)  # the log is new, or its topic was deleted: it begins empty

# `Slot.topic_id` of internal logs, and of logs whose state a single broker has written: their checkpoints are those of the folder's topic.
NO_TOPIC: Final = bytes(16)


class Slot(NamedTuple):
    """The last owner of a log, and its last writer. They differ while a new owner opens the log.

    The slot is that of a name; `topic_id` says to which of the topics of this name, deleted ones included, its contents belong.
    """

    node: int
    epoch: int
    since_ms: int
    state: int
    writer: int
    topic_id: bytes = NO_TOPIC


NO_SLOT: Final = Slot(-1, -1, 0, UNUSED, SINGLE_BROKER, NO_TOPIC)

_Stored = tuple[int, int, int, int, int, int, bytes]  # the key, and the fields of the slot


def writer_open(node: int) -> int:
    """`Slot.writer` of a log that this node has open, or had open when it crashed."""
    return node + 1


def writer_closed(node: int) -> int:
    """`Slot.writer` of a log that this node has flushed and closed."""
    return -(node + 1)


def lock_byte_of(id: LogId) -> int:
    """The log's byte in the file of locks, and its key in the table: 62 bits, never 0."""
    return int.from_bytes(blake2b(f"{id.name}-{id.partition}".encode(), digest_size=8).digest(), "big") >> 2 | 1


class OwnerTable:
    """A hash table with open addressing. A new log may get the slot of a log whose topic was deleted.

    A node that reads a slot without the log's lock may see it partly written, so it uses such a slot only to route clients.
    """

    def __init__(self, disk: SharedDisk, root: str) -> None:
        self._bytes = disk.shared_bytes(f"{root}/{OWNERS_FILE}", TABLE_BYTES)
        self._slot_positions: dict[LogId, tuple[int, int]] = {}  # the positions of slots, and their keys

    @property
    def version(self) -> bytes:
        return self._bytes.read(0, _HEADER_BYTES)

    def read(self, id: LogId) -> Slot:
        stored = self._stored(id)
        return NO_SLOT if stored is None else Slot(*stored[1:])

    def owner(self, id: LogId) -> int:
        """The log's owner; -1: none. Fast, since metadata replies need it for all logs."""
        stored = self._stored(id)
        return stored[1] if stored is not None and stored[4] == OWNED else -1

    def write(self, id: LogId, slot: Slot) -> None:
        """Called by the node that holds the log's lock. Raises OSError when the table is full."""
        stored = self._stored(id)
        if stored is not None and GONE not in (stored[4], slot.state):
            self._bytes.write(self._slot_positions[id][0], _SLOT.pack(stored[0], *slot))
            return
        with self._bytes.exclusive():  # another node may take the slot for a new log
            key = lock_byte_of(id)
            at = self._position_for(key)
            if at is None:
                raise OSError(errno.ENOSPC, "there are more logs than the table of owners has slots")
            self._bytes.write(at, _SLOT.pack(key, *slot))
            self._slot_positions[id] = at, key

    def logs_of(self, node: int) -> list[int]:
        """The lock bytes (`lock_byte_of`) of the logs that this node owns according to the table."""
        return [slot[0] for _, slot in self._used_slots() if slot[1] == node and slot[4] == OWNED]

    def free(self, key: int, node: int) -> None:
        """Mark the log with this lock byte as free if `node` owns it. Called by the node that holds the log's lock."""
        at = self._probe(key)
        if at is None:
            return
        stored = self._slot(at)
        slot = Slot(*stored[1:])
        if (stored[0], slot.node, slot.state) == (key, node, OWNED):
            self._bytes.write(at, _SLOT.pack(key, *slot._replace(state=FREE)))

    def count_change(self, node: int) -> None:
        """Increment this node's counter, so that all nodes see the change of its slots."""
        at = 8 * (node % _COUNTERS)
        number = int.from_bytes(self._bytes.read(at, 8), "little") + 1
        self._bytes.write(at, number.to_bytes(8, "little"))

    @property
    def last_deletion(self) -> int:
        """The number of the last deletion of a topic that a client may know of."""
        return int.from_bytes(self._bytes.read(_LAST_DELETION_AT, 8), "little")

    def set_last_deletion(self, number: int) -> None:
        """Called by the controller."""
        self._bytes.write(_LAST_DELETION_AT, number.to_bytes(8, "little"))

    def forget_writers(self) -> None:
        """Set the writer of all logs to the single broker: it has replaced the nodes, so their checkpoints and turn logs are out of date."""
        for at, stored in self._used_slots():
            slot = Slot(*stored[1:])
            if slot.writer != SINGLE_BROKER:
                state = GONE if slot.state == GONE else FREE
                self._bytes.write(at, _SLOT.pack(stored[0], *slot._replace(state=state, writer=SINGLE_BROKER, topic_id=NO_TOPIC)))
        self._bytes.sync()

    def _stored(self, id: LogId) -> _Stored | None:
        """The fields of the log's slot, the key first. The slot's position is cached."""
        cached = self._slot_positions.get(id)
        if cached is not None:
            stored = self._slot(cached[0])
            if stored[0] == cached[1]:
                return stored
            del self._slot_positions[id]  # the log's topic was deleted, and another log has the slot now
        key = lock_byte_of(id)
        at = self._probe(key)
        if at is None or self._key(at) != key:
            return None
        self._slot_positions[id] = at, key
        return self._slot(at)

    def _used_slots(self) -> Iterator[tuple[int, _Stored]]:
        """The positions and contents of the used slots. Unused stretches, usually most of the table, are skipped quickly."""
        for start in range(_HEADER_BYTES, _LAST_DELETION_AT, _SCAN_BYTES):
            slots = self._bytes.read(start, _SCAN_BYTES)
            if slots != _UNUSED:
                for at in range(0, _SCAN_BYTES, _SLOT.size):
                    slot = _SLOT.unpack_from(slots, at)
                    if slot[0]:
                        yield start + at, slot

    def _slot(self, at: int) -> _Stored:
        return _SLOT.unpack(self._bytes.read(at, _SLOT.size))

    def _position_for(self, key: int) -> int | None:
        """The position at which to write the slot with this key; None if the table is full."""
        reusable: int | None = None  # the first slot in probe order of a log whose topic was deleted
        for at in self._probe_order(key):
            stored_key = self._key(at)
            if stored_key == key:
                return at
            if not stored_key:
                return at if reusable is None else reusable
            if reusable is None and self._slot(at)[4] == GONE:
                reusable = at
        return reusable

    def _probe(self, key: int) -> int | None:
        """The position of the slot with this key, or else of the unused slot for it; None if the table is full."""
        return next((at for at in self._probe_order(key) if self._key(at) in (key, 0)), None)

    def _probe_order(self, key: int) -> Iterator[int]:
        """The positions of all slots, in the order of the search for this key."""
        first = key % SLOTS
        for number in range(first, first + SLOTS):
            yield _HEADER_BYTES + _SLOT.size * (number % SLOTS)

    def _key(self, at: int) -> int:
        return int.from_bytes(self._bytes.read(at, 8), "little")

    def sync(self) -> None:
        """Make the table safe against power loss. May run in another thread; raises OSError."""
        self._bytes.sync()

    def close(self) -> None:
        self._bytes.close()
