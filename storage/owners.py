"""The table of owners: which node has each log, at which epoch, and in whose folder to look for what its last writer left.

It lies in the memory of all nodes, so reading it costs no I/O. Only the holder of a log's lock writes its slot.
A slot is synced before the first append at its epoch: after a power failure it names the last node that may have written.
"""

from __future__ import annotations

import errno
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from storage.directory import OWNERS_FILE
from storage.disk import SharedDisk
from storage.store import LogId

LOCKS_FILE: Final = "locks"
SLOTS: Final = 1 << 16
_SLOT: Final = Struct("<QiIqIi")  # hash of the log's name, node, epoch, since (ms), state, writer
_COUNTERS: Final = 512  # in front of the slots: one for each node, incremented with every change
_HEADER_BYTES: Final = 8 * _COUNTERS
_SLOTS_BYTES: Final = _SLOT.size * SLOTS
TABLE_BYTES: Final = _HEADER_BYTES + _SLOTS_BYTES

UNUSED, OWNED, FREE = range(3)  # states

# Writers: n + 1 is node n, which has not closed the log in order; -(n + 1) is node n, which has.
ALONE: Final = 0  # a broker that was alone, or the log is new
DELETED: Final = -(1 << 31)  # the log's topic was deleted: a new log of this name begins empty


class Slot(NamedTuple):
    """The last owner of a log, and its last writer. They differ while the owner is opening the log."""

    node: int
    epoch: int
    since_ms: int
    state: int
    writer: int


NO_SLOT: Final = Slot(-1, -1, 0, UNUSED, ALONE)


def open_for(node: int) -> int:
    """The writer while this node has the log open."""
    return node + 1


def closed_by(node: int) -> int:
    """The writer once this node has flushed and closed the log."""
    return -(node + 1)


def byte_of(id: LogId) -> int:
    """The log's byte in the file of locks, and its key in the table: 62 bits, never 0."""
    return int.from_bytes(blake2b(f"{id.name}-{id.partition}".encode(), digest_size=8).digest(), "big") >> 2 | 1


class OwnerTable:
    """Open addressing; a slot is never given to another log. A reader may see a slot that is being written: it only routes by it."""

    def __init__(self, disk: SharedDisk, root: str) -> None:
        self._bytes = disk.shared_bytes(f"{root}/{OWNERS_FILE}", TABLE_BYTES)
        self._places: dict[LogId, int] = {}

    @property
    def version(self) -> bytes:
        return self._bytes.read(0, _HEADER_BYTES)

    def read(self, id: LogId) -> Slot:
        at = self._find(id)
        if at is None:
            return NO_SLOT
        _, *slot = _SLOT.unpack(self._bytes.read(at, _SLOT.size))
        return Slot(*slot)

    def owner(self, id: LogId) -> int:
        """The log's owner; -1 while it has none. Asked for all logs at once."""
        at = self._find(id)
        if at is None:
            return -1
        _, node, _, _, state, _ = _SLOT.unpack(self._bytes.read(at, _SLOT.size))
        return int(node) if state == OWNED else -1

    def write(self, id: LogId, slot: Slot) -> None:
        """Called by the node that holds the log's lock. Raises OSError when the table is full."""
        at = self._find(id)
        if at is None:
            with self._bytes.exclusive():
                at = self._probe(byte_of(id))
                if at is None:
                    raise OSError(errno.ENOSPC, "more logs were ever owned than the table of owners has slots")
                self._bytes.write(at, _SLOT.pack(byte_of(id), *slot))
        else:
            self._bytes.write(at, _SLOT.pack(byte_of(id), *slot))

    def logs_of(self, node: int) -> list[int]:
        """The bytes of the logs that the table says this node has."""
        slots = _SLOT.iter_unpack(self._bytes.read(_HEADER_BYTES, _SLOTS_BYTES))
        return [key for key, owner, _, _, state, _ in slots if owner == node and state == OWNED]

    def free(self, key: int, node: int) -> None:
        """The log with this byte has no owner, if this node was it. Called by the node that holds the log's lock."""
        at = self._probe(key)
        if at is None:
            return
        stored, owner, epoch, since_ms, state, writer = _SLOT.unpack(self._bytes.read(at, _SLOT.size))
        if (stored, owner, state) == (key, node, OWNED):
            self._bytes.write(at, _SLOT.pack(key, node, epoch, since_ms, FREE, writer))

    def count(self, node: int) -> None:
        """Let all nodes know that something of this node's has changed."""
        at = 8 * (node % _COUNTERS)
        number = int.from_bytes(self._bytes.read(at, 8), "little") + 1
        self._bytes.write(at, number.to_bytes(8, "little"))

    def forget_writers(self) -> None:
        """All logs were closed by a broker that is alone, or will be: whatever nodes left of them is void."""
        slots = _SLOT.iter_unpack(self._bytes.read(_HEADER_BYTES, _SLOTS_BYTES))
        for number, (key, node, epoch, since_ms, _, writer) in enumerate(slots):
            if key and writer != ALONE:
                self._bytes.write(_HEADER_BYTES + _SLOT.size * number, _SLOT.pack(key, node, epoch, since_ms, FREE, ALONE))
        self._bytes.sync()

    def _find(self, id: LogId) -> int | None:
        """The position of the log's slot."""
        known = self._places.get(id)
        if known is not None:
            return known
        key = byte_of(id)
        at = self._probe(key)
        if at is None or self._key(at) != key:
            return None
        self._places[id] = at
        return at

    def _probe(self, key: int) -> int | None:
        """The position of the slot with this key, or else of the unused slot for it; None when the table is full."""
        index = key % SLOTS
        for _ in range(SLOTS):
            at = _HEADER_BYTES + _SLOT.size * index
            if self._key(at) in (key, 0):
                return at
            index = (index + 1) % SLOTS
        return None

    def _key(self, at: int) -> int:
        return int.from_bytes(self._bytes.read(at, 8), "little")

    def sync(self) -> None:
        """Make what was written safe against power loss. May run in another thread; raises OSError."""
        self._bytes.sync()

    def close(self) -> None:
        self._bytes.close()
