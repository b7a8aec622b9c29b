"""The hold rule: a reply leaves when every fact its shard emitted before it is durable.

A shard changes memory at once and goes on; what it learned on the way collects here. Whoever drives the shard (the
broker's turn, the simulator) takes the facts, appends them, and says how far the log has come; replies leave in the
order they were given. So nobody outside ever sees a state that is not in the log, and the core needs no "pending"
variants of its states.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from protocol.batch import seal
from protocol.batch_writing import RecordForm, write_facts

# A fact in the form in which it is stored: record key and value, a null value being a tombstone.
Fact = tuple[bytes, bytes | None]

# What a record costs in a batch beyond its key and value, at most: length, attributes, timestamp and offset deltas,
# the lengths of key and value, the count of headers.
RECORD_OVERHEAD_BYTES = 28
BATCH_OVERHEAD_BYTES = 61


class Held(Protocol):
    """A reply that is ready but may not leave yet."""

    def release(self) -> None: ...

    def fail(self, error: int) -> None: ...


class Plain:
    """The form of facts of which nothing was prepared."""

    __slots__ = ()

    def write(self, parts: list[bytes], facts: Sequence[Any], delta: int) -> None:
        write_facts(parts, facts, delta)

    def facts(self, facts: Sequence[Any]) -> list[Fact]:
        return list(facts)


PLAIN = Plain()

# What one operation emitted, and what that takes in a batch at most: facts, or values for the keys of a form.
Operation = tuple[Plain | RecordForm, Sequence[Any], int]


class Hold:
    """The facts and replies of one shard between memory and log.

    `emitted`, `taken` and `durable` count facts since the shard was opened: handed over by the core, handed to the
    log, and as safe as `offsets.flush` asks.
    """

    __slots__ = ("_held", "_open", "_open_bytes", "durable", "emitted", "taken")

    def __init__(self) -> None:
        self.emitted = 0
        self.taken = 0
        self.durable = 0
        self._open: list[Operation] = []
        self._open_bytes = 0  # what these take in batches, at most
        self._held: deque[tuple[int, Held]] = deque()

    def emit(self, facts: list[Fact], size: int = 0) -> None:
        """The facts of one operation; they reach the log in one batch or not at all. `size`, where it is known: facts_bytes."""
        if facts:
            size = size or facts_bytes(facts)
            self._open.append((PLAIN, facts, size))
            self._open_bytes += size
            self.emitted += len(facts)

    def emit_values(self, form: RecordForm, values: Sequence[bytes], size: int, reply: Held) -> None:
        """As `emit` and then `reply`, for facts of which all but the values was prepared."""
        self._open.append((form, values, size))
        self._open_bytes += size
        self.emitted = emitted = self.emitted + len(values)
        self._held.append((emitted, reply))

    def reply(self, held: Held) -> None:
        """Release the reply at once when nothing it could have seen is still on its way to the log."""
        if self.durable == self.emitted and not self._held:
            held.release()
        else:
            self._held.append((self.emitted, held))

    @property
    def waiting(self) -> int:
        """How many replies are held."""
        return len(self._held)

    @property
    def untaken(self) -> bool:
        return self.taken != self.emitted

    def take(self, batch_bytes_max: int) -> list[Fact]:
        """The facts for the next batch: whole operations, as many as fit; at least one."""
        batch: list[Fact] = []
        for form, items, _ in self._next(batch_bytes_max):
            batch += form.facts(items)
        self.taken += len(batch)
        return batch

    def take_batch(self, batch_bytes_max: int, timestamp: int) -> bytearray:
        """The same as a batch for the log; by how many facts that is more `taken` says."""
        parts = [b""]
        records = 0
        for form, items, _ in self._next(batch_bytes_max):
            form.write(parts, items, records)
            records += len(items)
        self.taken += records
        return seal(parts, records, timestamp)

    def _next(self, batch_bytes_max: int) -> list[Operation]:
        """The operations of the next batch, which are open no longer."""
        waiting = self._open
        if BATCH_OVERHEAD_BYTES + self._open_bytes <= batch_bytes_max:  # nearly always
            self._open = []
            self._open_bytes = 0
            return waiting
        room = batch_bytes_max - BATCH_OVERHEAD_BYTES
        fitting = 0
        for _, _, size in waiting:
            if size > room and fitting:
                break
            room -= size
            self._open_bytes -= size
            fitting += 1
        self._open = waiting[fitting:]
        return waiting[:fitting]

    def confirm(self, durable: int) -> None:
        """The log is safe up to fact number `durable`: release, in order, whatever waited for no more than that."""
        self.durable = durable
        held = self._held
        if held and held[-1][0] <= durable:  # nearly always it is all of them
            for _ in range(len(held)):
                held.popleft()[1].release()
        # Also what was given meanwhile, and waits for no more.
        while held and held[0][0] <= durable:
            held.popleft()[1].release()

    def late(self, stamp: int, error: int) -> None:
        """An append takes too long: what waits for it is answered with `error`; the append itself goes on."""
        held = self._held
        while held and held[0][0] <= stamp:
            held.popleft()[1].fail(error)

    def fail(self, error: int) -> None:
        """The log refused: what is held gets `error`; facts that are not in the log are void.

        The caller opens the shard anew from the log: its memory is ahead of what will ever be true.
        """
        held = list(self._held)
        self._held.clear()
        self._open.clear()
        self._open_bytes = 0
        self.emitted = self.taken = self.durable
        for _, reply in held:
            reply.fail(error)


def facts_bytes(facts: list[Fact]) -> int:
    """What the facts of one operation take in a batch, at most."""
    return sum(RECORD_OVERHEAD_BYTES + len(key) + (len(value) if value is not None else 0) for key, value in facts)


class Gathering(Protocol):
    """A reply made of several shards' parts."""

    def refuse_part(self, part: int, error: int) -> None: ...

    def complete(self) -> None: ...


class Parts:
    """Lets a reply over several shards leave when each of its parts may; a failed part is replaced, not the whole."""

    __slots__ = ("_left", "_whole")

    def __init__(self, whole: Gathering, parts: int) -> None:
        self._whole = whole
        self._left = parts
        if not parts:
            whole.complete()

    def part(self, number: int) -> Held:
        return _Part(self, number)

    def settle(self, number: int, error: int) -> None:
        if error:
            self._whole.refuse_part(number, error)
        self._left -= 1
        if not self._left:
            self._whole.complete()


class _Part:
    __slots__ = ("_number", "_parts")

    def __init__(self, parts: Parts, number: int) -> None:
        self._parts = parts
        self._number = number

    def release(self) -> None:
        self._parts.settle(self._number, 0)

    def fail(self, error: int) -> None:
        self._parts.settle(self._number, error)
