"""A shard's way to its log: what it emitted is appended once a turn; when the log refuses, the shard is suspended.

Nothing is patched after a failed append. Memory is ahead of what will ever be true, so what was held is refused, the
shard is opened anew from the log, and writing is tried again with growing pauses until it works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from broker.logging.logs import log
from broker.runtime.clock import Clock
from broker.runtime.contain import defect, run
from broker.runtime.start import ExitCode, StartError
from broker.runtime.turn import NEVER, Turn
from coordinator import Fact, Held, Hold
from protocol.errors import ErrorCode, ProtocolError
from storage import AppendFailed, DamagedLog, HeldBy, OwnedLog, Undecided, Unreadable

RETRY_MS_MIN = 250
RETRY_MS_MAX = 15_000

# A disk that does not read, bytes that are not what was written, a record that this version cannot understand.
UNREADABLE = (OSError, DamagedLog, ProtocolError)


def owned_or_fail(name: str, acquired: OwnedLog | HeldBy | Unreadable) -> OwnedLog:
    """A log without which there is no start; StartError says why it is not ours."""
    if isinstance(acquired, HeldBy):
        raise StartError(f"{name} is held by {acquired.who}", ExitCode.LOCKED)
    if isinstance(acquired, Unreadable):
        raise StartError(acquired.reason, ExitCode.DATA if acquired.damaged else ExitCode.DISK)
    return acquired


def spoiled(held: Held, error: Exception) -> None:
    """A reply raised instead of leaving: the connection that waits for it ends, and no other."""
    defect("a reply failed inside the broker", error, reply=type(held).__name__)
    parts = getattr(held, "parts", None)
    connection = getattr(parts.whole if parts is not None else held, "connection", None)
    if connection is not None:
        run(connection.broken)


class State(Protocol):
    """What a journal asks of the state it keeps."""

    hold: Hold

    def clear(self) -> None: ...

    def replay(self, facts: Iterable[Fact]) -> None: ...


class Journal:
    """One shard and its log. `writable` is false while suspended, `readable` when not even the log can be read.

    Suspended it can still be read, as far as the log is: this is the journal of the registry of topics. Groups have one
    that refuses everything (`group_journal.py`).
    """

    def __init__(
        self,
        name: str,
        state: State,
        owned: OwnedLog,
        turn: Turn,
        late_ms: int,
        refused: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR,
        late: ErrorCode = ErrorCode.REQUEST_TIMED_OUT,
    ) -> None:
        self.name = name
        self.state = state
        self.readable = True
        self.writable = True
        self._owned = owned
        self.turn = turn
        self._clock: Clock = turn.clock
        self._late_ms = late_ms
        self._refused = refused
        self._late = late
        self._alarm = NEVER  # when an append is late, or when a suspended log is tried again
        self._in_flight = 0  # the stamp that the append under way will confirm, 0 when there is none
        self._began = 0  # when it began
        self._due = 0  # replies up to this stamp are late when the next deadline comes
        self._retry_ms = RETRY_MS_MIN
        self._settled: Callable[[], None] | None = None
        # The last append that came to an end: the stamp and the offset of its last fact.
        self._end_stamp = 0
        self._end_offset = -1
        owned.watch(self.failed)

    @property
    def now(self) -> int:
        return self._clock.now

    @property
    def wall(self) -> int:
        """The time that is stored."""
        return self._clock.wall

    def start(self) -> None:
        """Open; StartError says why that cannot be."""
        try:
            self.open()
        except UNREADABLE as error:
            raise StartError(f"{self.name} cannot be read: {error}", ExitCode.DATA) from error

    def open(self) -> None:
        """Fold the log into the shard; raises one of UNREADABLE."""
        state = self.state
        state.clear()
        for facts in self._owned.replay():
            state.replay(facts)

    def reply(self, held: Held) -> None:
        """Let the reply leave as soon as everything emitted before it is durable."""
        hold = self.state.hold
        hold.reply(held)
        if hold.emitted != hold.taken and not self._in_flight:
            self.turn.schedule_append(self)

    def end_turn(self) -> None:
        """Append what the turn brought, one batch at a time; what arrives meanwhile joins the next."""
        hold = self.state.hold
        while hold.emitted != hold.taken and not self._in_flight and self.writable:
            before = hold.taken
            self._began = now = self._clock.now
            batch = hold.take(self._clock.wall)
            stamp = hold.taken
            facts = stamp - before
            self._in_flight = self._due = stamp
            self._owned.append(batch, facts, partial(self._appended, hold, stamp, facts))
            if self._in_flight == stamp:
                self._wake(now + self._late_ms)

    def _appended(self, hold: Hold, stamp: int, facts: int, result: int | AppendFailed) -> None:
        """`hold`: that of the life in which the append began; each opening begins another."""
        self._in_flight = 0
        if self.writable:  # otherwise a defect has suspended it meanwhile, and it is read anew when that is over
            self._alarm = NEVER
            if isinstance(result, AppendFailed):
                self._suspend(result)
            else:
                self._end_stamp = stamp
                self._end_offset = result + facts - 1
                hold.confirm(stamp, spoiled)
                if hold.emitted != hold.taken:
                    self.turn.schedule_append(self)
        if self._settled is not None and not self.state.hold.untaken:
            settled, self._settled = self._settled, None
            settled()

    def offset_of(self, stamp: int) -> int:
        """Where in the log a fact is whose replies are being released."""
        return self._end_offset - (self._end_stamp - stamp)

    def failed(self, failure: AppendFailed) -> None:
        """The log broke outside an append: a flush that nobody waited for."""
        if self.writable and not self._in_flight:
            self._suspend(failure)

    def broken(self) -> None:
        """An exception of ours ended what was done for it: it is read anew from its log, as when that refuses."""
        if self.writable:
            self._suspend(Undecided("a defect in this version") if self._in_flight else AppendFailed("a defect in this version"))

    # Suspension.

    def _suspend(self, failure: AppendFailed) -> None:
        self.writable = False
        log.error("log suspended", log=self.name, reason=str(failure), retry_ms=self._retry_ms)
        self._give_up(self._late if isinstance(failure, Undecided) else self._refused)
        self._wake(self._clock.now + self._retry_ms)

    def _give_up(self, error: int) -> None:
        """Memory is ahead of what is true: what was held gets `error`."""
        self.state.hold.fail(error, spoiled)
        self._reopen()

    def _reopen(self) -> None:
        try:
            self.open()
            self.readable = True
        except UNREADABLE as error:
            self.state.clear()
            self.readable = False
            log.error("log unreadable", log=self.name, reason=str(error))

    def _recovered(self, owned: OwnedLog, failure: AppendFailed | None) -> None:
        if owned is not self._owned:
            return  # given up since, and perhaps loaded again
        if failure is not None:
            self._stay_suspended(str(failure))
        else:
            self._renew()

    def _stay_suspended(self, reason: str) -> None:
        self._retry_ms = min(self._retry_ms * 2, RETRY_MS_MAX)
        log.warning("log stays suspended", log=self.name, reason=reason, retry_ms=self._retry_ms)
        self._wake(self._clock.tick() + self._retry_ms)

    def _renew(self) -> None:
        """Writing works again."""
        self._reopen()
        if self.readable:
            self._serve_again()
        else:
            self._wake(self._clock.tick() + self._retry_ms)

    def _serve_again(self) -> None:
        self.writable = True
        self._retry_ms = RETRY_MS_MIN
        log.info("log serves again", log=self.name)

    # Deadlines: an append that takes too long; the next try of a suspended log.

    @property
    def wake_at(self) -> int:
        return self._alarm

    def advance(self, now: int) -> None:
        if self._alarm <= now:
            self._alarm = NEVER
            self._ring(now)

    def _ring(self, now: int) -> None:
        if self.writable:
            log.warning("append is late", log=self.name, limit_ms=self._late_ms)
            self.state.hold.late(self._due, self._late, spoiled)
            # Whoever came since waits behind the same append, and not for longer than that either.
            self._due = self.state.hold.emitted
            self._wake(now + self._late_ms)
        elif self._in_flight:
            self._wake(now + self._retry_ms)  # after a defect: what it brings has to be in the log before that is read
        else:
            self._owned.recover(partial(self._recovered, self._owned))

    def _wake(self, at: int) -> None:
        self._alarm = at
        self.turn.wake_by(at)

    def when_settled(self, settled: Callable[[], None]) -> None:
        """Call back once nothing is on its way to the log any more (an orderly stop waits for that)."""
        if self._in_flight or self.state.hold.untaken:
            self._settled = settled
        else:
            settled()
