"""A journal over a scripted log, with time and turns moved by the test."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable, Iterator
from typing import cast

from broker.groups.journal import Journal
from broker.runtime.turn import Turn
from coordinator import Fact, Hold
from protocol.batch import facts_of
from storage import AppendFailed
from tests.support.stepped_loop import SteppedLoop

LATE_MS = 5_000


class Values:
    """A minimal shard for a journal: its state is one value by key."""

    def __init__(self) -> None:
        self.hold = Hold()
        self.values: dict[bytes, bytes | None] = {}

    def clear(self) -> None:
        self.hold = Hold()
        self.values = {}

    def replay(self, facts: Iterable[Fact]) -> None:
        self.values.update(facts)

    def put(self, key: bytes, value: bytes | None) -> None:
        self.values[key] = value
        self.hold.emit([(key, value)])


class ScriptedLog:
    """An OwnedLog in memory. The test ends each append; while `immediate` is set, appends end at once."""

    def __init__(self, immediate: bool = False, stored: Iterable[list[Fact]] = (), epoch: int = 0) -> None:
        self.immediate = immediate
        self.stored = list(stored)
        self.epoch = epoch
        self.batches: list[bytes] = []  # all appended batches, failed ones included
        self.pending: list[tuple[bytes, Callable[[int | AppendFailed], None]]] = []
        self.failed: Callable[[AppendFailed], None] = lambda failure: None
        self.recoveries: list[Callable[[AppendFailed | None], None]] = []
        self.released = 0
        self.reads = 0
        self.unreadable = False
        self.damage: Exception | None = None
        self.failure: AppendFailed | None = None

    def usable(self) -> bool:
        return self.failure is None

    def replay(self) -> Iterator[list[Fact]]:
        self.reads += 1
        if self.unreadable:
            raise OSError(5, "Input/output error")
        yield from self.stored
        if self.damage is not None:
            raise self.damage

    def append(self, batch: bytes | bytearray, records: int, done: Callable[[int | AppendFailed], None]) -> None:
        self.batches.append(bytes(batch))
        self.pending.append((self.batches[-1], done))
        if self.immediate:
            self.succeed()

    def succeed(self) -> None:
        """Complete the oldest append in flight."""
        batch, done = self.pending.pop(0)
        self.stored.append(list(facts_of(batch)))
        done(len(self.stored))

    def refuse(self) -> None:
        self.pending.pop(0)[1](AppendFailed("the disk is full"))

    def watch(self, failed: Callable[[AppendFailed], None]) -> None:
        self.failed = failed
        if self.failure is not None:
            failed(self.failure)

    def fail(self, failure: AppendFailed) -> None:
        """Fail outside of an append: another node has claimed the log, for example."""
        self.failure = failure
        self.failed(failure)

    def recover(self, done: Callable[[AppendFailed | None], None]) -> None:
        self.recoveries.append(done)

    def release(self) -> None:
        self.released += 1


class Reply:
    def __init__(self) -> None:
        self.error: int | None = None

    def release(self) -> None:
        self.error = 0

    def fail(self, error: int) -> None:
        self.error = error


class JournalHarness:
    """A journal, a turn and time that the test moves."""

    def __init__(self) -> None:
        self.loop = SteppedLoop()
        self.clock = self.loop.clock()
        self.turn = Turn(cast(AbstractEventLoop, self.loop), self.clock)
        self.log = ScriptedLog(stored=[[(b"old", b"stored")]])
        self.shard = Values()
        self.journal = Journal("values-0", self.shard, self.log, self.turn, LATE_MS)
        self.journal.start()
        self.turn.add_deadline_handler(self.journal)

    def put(self, key: bytes, value: bytes | None) -> Reply:
        self.shard.put(key, value)
        return self.read()

    def append(self, key: bytes, value: bytes | None) -> Reply:
        """Put a value, and end the turn, which appends it to the log."""
        reply = self.put(key, value)
        self.loop.run()
        return reply

    def read(self) -> Reply:
        reply = Reply()
        self.journal.hold_reply(reply)
        return reply

    def pass_ms(self, ms: int) -> None:
        self.loop.pass_ms(ms)
        self.clock.tick()
