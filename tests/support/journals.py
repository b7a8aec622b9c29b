"""A journal over a scripted log, with time and turns moved by the test."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable, Iterator
from typing import cast

from broker.groups.journal import Journal
from broker.runtime.clock import Clock
from broker.runtime.turn import Turn, TurnEnd
from coordinator import Fact, Hold
from protocol.batch import facts_of
from storage import AppendFailed

LATE_MS = 5_000


class Values:
    """A shard of values by key."""

    def __init__(self) -> None:
        self.hold = Hold()
        self.values: dict[bytes, bytes | None] = {}

    def clear(self) -> None:
        self.hold = Hold()
        self.values = {}

    def replay(self, facts: Iterable[Fact]) -> None:
        self.values.update(facts)

    def put(self, key: bytes, value: bytes) -> None:
        self.values[key] = value
        self.hold.emit([(key, value)])


class ScriptedLog:
    """An OwnedLog whose appends end when the test says so."""

    epoch = 0

    def __init__(self) -> None:
        self.stored: list[list[Fact]] = [[(b"old", b"stored")]]
        self.released = 0
        self.reads = 0
        self.pending: list[tuple[bytes, Callable[[int | AppendFailed], None]]] = []
        self.recoveries: list[Callable[[AppendFailed | None], None]] = []
        self.unreadable = False
        self.damage: Exception | None = None

    def usable(self) -> bool:
        return True

    def replay(self) -> Iterator[list[Fact]]:
        self.reads += 1
        if self.unreadable:
            raise OSError(5, "Input/output error")
        yield from self.stored
        if self.damage is not None:
            raise self.damage

    def append(self, batch: bytes | bytearray, records: int, done: Callable[[int | AppendFailed], None]) -> None:
        self.pending.append((bytes(batch), done))

    def succeed(self) -> None:
        batch, done = self.pending.pop(0)
        self.stored.append(list(facts_of(batch)))
        done(len(self.stored))

    def refuse(self) -> None:
        self.pending.pop(0)[1](AppendFailed("the disk is full"))

    def watch(self, failed: Callable[[AppendFailed], None]) -> None:
        self.failed = failed

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


class IdleLoop:
    """An event loop that runs nothing."""

    def call_soon(self, *call: object) -> None: ...

    def call_later(self, seconds: float, *call: object) -> None: ...


class Touches(dict[TurnEnd, None]):
    """The journals of a turn; each one that is scheduled is added to a list."""

    def __init__(self, touched: list[TurnEnd]) -> None:
        super().__init__()
        self._touched = touched

    def __setitem__(self, journal: TurnEnd, nothing: None) -> None:
        self._touched.append(journal)


def turn_by_hand(clock: Clock, touched: list[TurnEnd]) -> Turn:
    """A turn that ends, and a timer that fires, when the test says so."""
    turn = Turn(cast(AbstractEventLoop, IdleLoop()), clock)
    turn._journals = Touches(touched)
    turn._scheduled = True
    turn.armed_at = 0  # no deadline is earlier
    return turn


class JournalBench:
    """A journal with time and turn moved by the test."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.clock = Clock(lambda: round(self.seconds * 1e9), lambda: round(self.seconds * 1e9))
        self.touched: list[TurnEnd] = []
        self.log = ScriptedLog()
        self.shard = Values()
        self.turn = turn_by_hand(self.clock, self.touched)
        self.journal = Journal("values-0", self.shard, self.log, self.turn, LATE_MS)
        self.journal.start()

    def put(self, key: bytes, value: bytes) -> Reply:
        self.shard.put(key, value)
        return self.read()

    def append(self, key: bytes, value: bytes) -> Reply:
        """Put, and append at the end of the turn."""
        reply = self.put(key, value)
        self.end_turn()
        return reply

    def read(self) -> Reply:
        reply = Reply()
        self.journal.reply(reply)
        return reply

    def end_turn(self) -> None:
        touched, self.touched[:] = list(dict.fromkeys(self.touched)), []
        for journal in touched:
            journal.end_turn()

    def passes(self, ms: int) -> None:
        self.seconds += ms / 1000
        now = self.clock.tick()
        if self.journal.wake_at <= now:
            self.journal.advance(now)
