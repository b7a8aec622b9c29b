"""The hold rule: a reply leaves when every fact its shard emitted before it is durable.

A shard changes memory at once and goes on; what it learned on the way collects here. Whoever drives the shard (the
broker's turn, the simulator) takes the facts, appends them, and says how far the log has come; replies leave in the
order they were given. So nobody outside ever sees a state that is not in the log, and the core needs no "pending"
variants of its states.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from coordinator.config import BATCH_BYTES_MAX
from protocol.batch import seal
from protocol.batch_writing import write_facts

# A fact in the form in which it is stored: record key and value, a null value being a tombstone.
Fact = tuple[bytes, bytes | None]

# What a record costs in a batch beyond its key and value, at most: length, attributes, timestamp and offset deltas,
# the lengths of key and value, the count of headers.
RECORD_OVERHEAD_BYTES: Final = 28
BATCH_OVERHEAD_BYTES: Final = 61


class Held(Protocol):
    """A reply that is ready but may not leave yet."""

    def release(self) -> None: ...

    def fail(self, error: int) -> None: ...


# What is done about a reply that raised while it was released or failed. All others get their turn.
Spoiled = Callable[[Held, Exception], None]


def raise_on(held: Held, error: Exception) -> None:
    raise error


class Hold:
    """The facts and replies of one shard between memory and log.

    `emitted`, `taken` and `durable` count facts since the shard was opened: handed over by the core, handed to the
    log, and as safe as `offsets.flush` asks. Facts are written as records at once, and read nowhere else. A commit that
    comes again puts its records and its reply here itself (`repeats.py`).
    """

    __slots__ = ("_batch_bytes_max", "_full", "durable", "emitted", "end", "held", "parts", "records", "room", "taken", "wall")

    def __init__(self, batch_bytes_max: int = BATCH_BYTES_MAX) -> None:
        self._batch_bytes_max = batch_bytes_max
        self.emitted = 0
        self.taken = 0
        self.durable = 0
        self.held: deque[tuple[int, Held]] = deque()  # replies, and how many facts must be durable for each
        self._full: deque[tuple[list[bytes], int]] = deque()  # batches to be taken before the one that grows
        self.wall = -1  # the wall time of the newest repeated commit, and how records of that moment end
        self.end = b""
        self._begin()

    def _begin(self) -> None:
        self.parts = [b""]  # of the batch that grows, its header first
        self.records = 0
        self.room = self._batch_bytes_max - BATCH_OVERHEAD_BYTES

    def begin_batch(self) -> None:
        """What comes next does not fit into the one that grows."""
        self._full.append((self.parts, self.records))
        self._begin()

    def emit(self, facts: list[Fact], size: int = 0) -> None:
        """The facts of one operation; they reach the log in one batch or not at all. `size`, where it is known: facts_bytes."""
        if facts:
            size = size or facts_bytes(facts)
            if size > self.room and self.records:
                self.begin_batch()
            self.room -= size
            write_facts(self.parts, facts, self.records)
            self.records += len(facts)
            self.emitted += len(facts)

    def reply(self, held: Held) -> None:
        """Release the reply at once when nothing it could have seen is still on its way to the log."""
        if self.durable == self.emitted and not self.held:
            held.release()
        else:
            self.held.append((self.emitted, held))

    @property
    def waiting(self) -> int:
        """How many replies are held."""
        return len(self.held)

    @property
    def untaken(self) -> bool:
        return self.taken != self.emitted

    def take(self, timestamp: int) -> bytearray:
        """The next batch for the log: whole operations, as many as fit, and at least one. How many facts that is more `taken` says."""
        if self._full:
            parts, records = self._full.popleft()
        else:
            parts, records = self.parts, self.records
            self._begin()
        self.taken += records
        return seal(parts, records, timestamp)

    def confirm(self, durable: int, spoiled: Spoiled = raise_on) -> None:
        """The log is safe up to fact number `durable`: release, in order, whatever waited for no more than that."""
        self.durable = durable
        held = self.held
        while held and held[0][0] <= durable:
            try:
                if held[-1][0] <= durable:  # nearly always it is all of them
                    for _ in range(len(held)):
                        reply = held.popleft()[1]
                        reply.release()
                # Also what was given meanwhile, and waits for no more.
                while held and held[0][0] <= durable:
                    reply = held.popleft()[1]
                    reply.release()
            except Exception as error:
                spoiled(reply, error)

    def late(self, stamp: int, error: int, spoiled: Spoiled = raise_on) -> None:
        """An append takes too long: what waits for it is answered with `error`; the append itself goes on."""
        held = self.held
        while held and held[0][0] <= stamp:
            _fail(held.popleft()[1], error, spoiled)

    def fail(self, error: int, spoiled: Spoiled = raise_on) -> None:
        """The log refused: what is held gets `error`; facts that are not in the log are void.

        The caller opens the shard anew from the log: its memory is ahead of what will ever be true.
        """
        held = list(self.held)
        self.held.clear()
        self._full.clear()
        self._begin()
        self.emitted = self.taken = self.durable
        for _, reply in held:
            _fail(reply, error, spoiled)


def _fail(reply: Held, code: int, spoiled: Spoiled) -> None:
    try:
        reply.fail(code)
    except Exception as error:
        spoiled(reply, error)


def facts_bytes(facts: list[Fact]) -> int:
    """What the facts of one operation take in a batch, at most."""
    return sum(RECORD_OVERHEAD_BYTES + len(key) + (len(value) if value is not None else 0) for key, value in facts)


class Gathering(Protocol):
    """A reply made of several shards' parts."""

    def refuse_part(self, part: int, error: int) -> None: ...

    def complete(self) -> None: ...


class Parts:
    """Lets a reply over several shards leave when each of its parts may; a failed part is replaced, not the whole."""

    __slots__ = ("_left", "whole")

    def __init__(self, whole: Gathering, parts: int) -> None:
        self.whole = whole
        self._left = parts
        if not parts:
            whole.complete()

    def part(self, number: int) -> Held:
        return _Part(self, number)

    def settle(self, number: int, error: int) -> None:
        if error:
            self.whole.refuse_part(number, error)
        self._left -= 1
        if not self._left:
            self.whole.complete()


class _Part:
    __slots__ = ("_number", "parts")

    def __init__(self, parts: Parts, number: int) -> None:
        self.parts = parts
        self._number = number

    def release(self) -> None:
        self.parts.settle(self._number, 0)

    def fail(self, error: int) -> None:
        self.parts.settle(self._number, error)
