"""Append the facts of a shard to its log at the end of each turn of the event loop; after a failed append, suspend the shard.

A failed append leaves memory ahead of the log, so held replies get an error, the shard is replayed from the log, and writing is
retried with growing pauses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Protocol

from broker.logging.logs import log
from broker.runtime.clock import Clock
from broker.runtime.contain import report_defect, run_contained
from broker.runtime.start import ExitCode, StartError
from broker.runtime.turn import NEVER, Turn
from coordinator import Fact, Held, Hold
from protocol.batch import facts_of
from protocol.errors import ErrorCode, ProtocolError
from storage import AppendFailed, DamagedLog, Fenced, HeldBy, OwnedLog, Undecided, Unreadable

RETRY_MS_MIN = 250
RETRY_MS_MAX = 15_000

# A read error, corrupt bytes, or a record that this version cannot decode.
UNREADABLE = (OSError, DamagedLog, ProtocolError)


def owned_or_fail(name: str, acquired: OwnedLog | HeldBy | Unreadable) -> OwnedLog:
    """The acquired log; raises StartError when it could not be acquired."""
    if isinstance(acquired, HeldBy):
        raise StartError(f"{name} is held by {acquired.holder}", ExitCode.LOCKED)
    if isinstance(acquired, Unreadable):
        raise StartError(acquired.reason, ExitCode.DATA if acquired.damaged else ExitCode.DISK)
    return acquired


def close_failed_reply(held: Held, error: Exception) -> None:
    """Close the connection of a held reply whose `release` or `fail` has raised an exception."""
    report_defect("a reply failed inside the broker", error, reply=type(held).__name__)
    parts = getattr(held, "parts", None)
    connection = getattr(parts.reply if parts is not None else held, "connection", None)
    if connection is not None:
        run_contained(connection.handle_defect)


def _keep_newest(stored: dict[bytes, bytes], facts: Iterable[Fact]) -> None:
    """Keep the newest value of each key, in the order of the log. A key without a value is removed, so that deleted topics take no memory."""
    for key, value in facts:
        stored.pop(key, None)
        if value is not None:
            stored[key] = value


class StateMachine(Protocol):
    """State machine behind a journal: its facts go to `hold`, and `replay` rebuilds its state from facts."""

    hold: Hold

    def clear(self) -> None: ...

    def replay(self, facts: Iterable[Fact]) -> None: ...


class NoLog:
    """The log of a shard whose partition this node does not own: it has no facts, and refuses every append."""

    epoch = -1

    def usable(self) -> bool:
        return False

    def replay(self) -> Iterator[list[Fact]]:
        return iter(())

    def append(self, batch: bytes | bytearray, records: int, done: Callable[[int | AppendFailed], None]) -> None:
        done(Fenced("this node does not own the partition"))

    def watch(self, failed: Callable[[AppendFailed], None]) -> None: ...

    def recover(self, done: Callable[[AppendFailed | None], None]) -> None:
        done(Fenced("this node does not own the partition"))

    def release(self) -> None: ...


NO_LOG = NoLog()


class Journal:
    """One shard and its log. `writable` is false while suspended; `readable` is false while the log cannot be read either.

    The topic registry uses this class with `replace`, and is still read while suspended, from memory if its log cannot be read:
    clients that were told of no topics would rebalance their groups. The subclass GroupJournal refuses all requests then.
    """

    def __init__(
        self,
        name: str,
        state: StateMachine,
        owned: OwnedLog,
        turn: Turn,
        append_timeout_ms: int,
        refused: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR,
        undecided_error: ErrorCode = ErrorCode.REQUEST_TIMED_OUT,
        replace: Callable[[Iterable[Fact]], None] | None = None,
    ) -> None:
        """`replace`: rebuilds the whole state from these facts, or raises ProtocolError and changes nothing; the journal then keeps the facts."""
        self.name = name
        self.state = state
        self.readable = True
        self.writable = True
        self.fenced = False  # another node writes the log
        self._owned = owned
        self.turn = turn
        self._clock: Clock = turn.clock
        self._append_timeout_ms = append_timeout_ms
        self._refused_error = refused
        self._undecided_error = undecided_error
        self._deadline = NEVER  # when an append is late, or a suspended log is retried
        self._in_flight = 0  # the fact number of the append in flight: `Hold.taken` after its last fact; 0: none is in flight
        self._append_began = 0  # start time of the append in flight
        self._late_fact_number = 0  # at the deadline, replies up to this fact number are late
        self._retry_ms = RETRY_MS_MIN
        self._settled: Callable[[], None] | None = None
        self._replace = replace
        # With `replace`: the newest stored fact of each key. The state is rebuilt from them while the log cannot be read back.
        self._stored_facts: dict[bytes, bytes] = {}
        self._batch_in_flight = bytearray()
        # Number and offset of the last fact of the last completed append.
        self._end_fact_number = 0
        self._end_offset = -1
        owned.watch(self.failed)

    @property
    def now(self) -> int:
        return self._clock.now

    @property
    def wall(self) -> int:
        """The wall time, for stored timestamps."""
        return self._clock.wall

    @property
    def owns_log(self) -> bool:
        return self._owned is not NO_LOG

    def start(self) -> None:
        """Replay the log at the broker's start; raises StartError when it cannot be read."""
        try:
            self.open()
        except UNREADABLE as error:
            raise StartError(f"{self.name} cannot be read: {error}", ExitCode.DATA) from error

    def open(self) -> None:
        """Replay the log into the shard; raises one of UNREADABLE."""
        state = self.state
        if self._replace is None:
            state.clear()
            for facts in self._owned.replay():
                state.replay(facts)
        else:
            stored: dict[bytes, bytes] = {}
            for facts in self._owned.replay():
                _keep_newest(stored, facts)
            self._replace(stored.items())  # what another node has sent stays if this node cannot read the log
            self._stored_facts = stored

    def lead(self, owned: OwnedLog) -> None:
        """Replay this log and write it from now on. If that raises one of UNREADABLE, the journal keeps its previous log."""
        previous, self._owned = self._owned, owned
        try:
            self.open()
        except UNREADABLE:
            self._owned = previous
            raise
        self.readable = self.writable = True
        self.fenced = False
        self._retry_ms = RETRY_MS_MIN
        owned.watch(self.failed)  # may report at once that another node has claimed the log meanwhile

    def follow(self) -> None:
        """Stop writing, since another node writes the log, and fail the held replies."""
        self.writable = False
        self._owned = NO_LOG
        self._in_flight = 0
        self._deadline = NEVER
        hold, self.state.hold = self.state.hold, Hold()
        hold.fail(self._refused_error, close_failed_reply)

    def hold_reply(self, held: Held) -> None:
        """Hold the reply until everything emitted before it is as durable as `offsets.flush` requires."""
        hold = self.state.hold
        hold.hold_reply(held)
        if hold.emitted != hold.taken and not self._in_flight:
            self.turn.call_first_at_turn_end(self)

    def end_turn(self) -> None:
        """Append the facts of this turn, one batch at a time; facts emitted meanwhile join the next batch."""
        hold = self.state.hold
        while hold.emitted != hold.taken and not self._in_flight and self.writable:
            taken_before = hold.taken
            self._append_began = now = self._clock.now
            batch = hold.take_batch(self._clock.wall)
            fact_number = hold.taken
            facts = fact_number - taken_before
            self._in_flight = self._late_fact_number = fact_number
            if self._replace is not None:
                self._batch_in_flight = batch
            self._owned.append(batch, facts, partial(self._appended, hold, fact_number, facts))
            if self._in_flight == fact_number:
                self._set_deadline(now + self._append_timeout_ms)

    def _appended(self, hold: Hold, fact_number: int, facts: int, result: int | AppendFailed) -> None:
        """Release the replies that waited for an append, or suspend if it failed. `hold`: the shard's hold when the append began."""
        self._in_flight = 0
        if self.writable:  # otherwise a defect has suspended the shard, which is replayed later
            self._deadline = NEVER
            if isinstance(result, AppendFailed):
                self._suspend(result)
            else:
                self._end_fact_number = fact_number
                self._end_offset = result + facts - 1
                if self._replace is not None:
                    _keep_newest(self._stored_facts, facts_of(bytes(self._batch_in_flight)))
                hold.confirm(fact_number, close_failed_reply)
                if hold.emitted != hold.taken:
                    self.turn.call_first_at_turn_end(self)
        if self._settled is not None and not self.state.hold.has_untaken:
            settled, self._settled = self._settled, None
            settled()

    def offset_of(self, fact_number: int) -> int:
        """The log offset of the fact with this number. Call it only while replies that waited for the fact are released."""
        return self._end_offset - (self._end_fact_number - fact_number)

    def failed(self, failure: AppendFailed) -> None:
        """Suspend after a failure outside an append, such as a background flush."""
        if self.writable and not self._in_flight:
            self._suspend(failure)

    def handle_defect(self) -> None:
        """Suspend and replay after an exception, as after a failed append."""
        if self.writable:
            self._suspend(Undecided("a defect in this version") if self._in_flight else AppendFailed("a defect in this version"))

    # Suspension.

    def _suspend(self, failure: AppendFailed) -> None:
        self.writable = False
        self.fenced = isinstance(failure, Fenced)
        log.error("log suspended", log=self.name, reason=str(failure), retry_ms=self._retry_ms)
        self._fail_waiting(self._undecided_error if isinstance(failure, Undecided) else self._refused_error)
        self._set_deadline(self._clock.now + self._retry_ms)

    def _fail_waiting(self, error: int) -> None:
        """Fail held replies with `error` and replay: memory is ahead of the log."""
        self.state.hold.fail(error, close_failed_reply)
        self._reopen()

    def _reopen(self) -> None:
        try:
            self.open()
            self.readable = True
        except UNREADABLE as error:
            if self._replace is not None:
                self._replace(self._stored_facts.items())
            else:
                self.state.clear()
            self.readable = False
            log.error("log unreadable", log=self.name, reason=str(error))

    def _recovered(self, owned: OwnedLog, failure: AppendFailed | None) -> None:
        if owned is not self._owned:
            return  # the log was released meanwhile
        if failure is not None:
            self.fenced = isinstance(failure, Fenced)
            self._stay_suspended(str(failure))
        else:
            self._resume()

    def _stay_suspended(self, reason: str) -> None:
        self._retry_ms = min(self._retry_ms * 2, RETRY_MS_MAX)
        log.warning("log stays suspended", log=self.name, reason=reason, retry_ms=self._retry_ms)
        self._set_deadline(self._clock.tick() + self._retry_ms)

    def _resume(self) -> None:
        """Replay and serve: writing works again."""
        self._reopen()
        if self.readable:
            self._serve_again()
        else:
            self._set_deadline(self._clock.tick() + self._retry_ms)

    def _serve_again(self) -> None:
        self.writable = True
        self._retry_ms = RETRY_MS_MIN
        log.info("log serves again", log=self.name)

    # The deadline: an append is late, or a suspended log is retried.

    @property
    def wake_at(self) -> int:
        return self._deadline

    def advance(self, now: int) -> None:
        if self._deadline <= now:
            self._deadline = NEVER
            self._on_deadline(now)

    def _on_deadline(self, now: int) -> None:
        if self.writable:
            log.warning("append is late", log=self.name, limit_ms=self._append_timeout_ms)
            self.state.hold.fail_until(self._late_fact_number, self._undecided_error, close_failed_reply)
            # Replies that were held since the append began wait for it too; they are late after another `append_timeout_ms`.
            self._late_fact_number = self.state.hold.emitted
            self._set_deadline(now + self._append_timeout_ms)
        elif self._in_flight:
            self._set_deadline(now + self._retry_ms)  # after a defect: wait for the append's end before the log is replayed
        else:
            self._owned.recover(partial(self._recovered, self._owned))

    def _set_deadline(self, at: int) -> None:
        self._deadline = at
        self.turn.wake_by(at)

    def when_settled(self, settled: Callable[[], None]) -> None:
        """Call back once no append is in flight or due; an orderly stop waits for that."""
        if self._in_flight or self.state.hold.has_untaken:
            self._settled = settled
        else:
            settled()
