"""A shard's way to its log, on a log that does what the test says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest

from broker.groups.journal import RETRY_MS_MAX, RETRY_MS_MIN, Journal, owned_or_fail
from broker.runtime.clock import Clock
from broker.runtime.start import ExitCode, StartError
from broker.runtime.turn import NEVER, Turn, TurnEnd
from coordinator import Fact, Hold
from protocol.batch import facts_of
from protocol.errors import ErrorCode, ProtocolError
from storage import AppendFailed, DamagedLog, HeldBy, Unreadable

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


def turn_by_hand(clock: Clock, touched: list[TurnEnd]) -> Turn:
    """A turn that ends, and a timer that fires, when the test says so."""
    turn: Turn = Turn.__new__(Turn)
    turn.clock = clock
    turn.armed_at = NEVER
    turn.schedule_append = touched.append  # type: ignore[method-assign, assignment]
    turn.wake_by = lambda at: None  # type: ignore[method-assign]
    return turn


class Machine:
    """A journal with the time and the turn in the test's hand."""

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


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_it_opens_with_what_the_log_holds(machine: Machine) -> None:
    assert machine.shard.values == {b"old": b"stored"}
    assert (machine.journal.readable, machine.journal.writable) == (True, True)
    machine.passes(7)
    assert (machine.journal.now, machine.journal.wall) == (machine.clock.now, machine.clock.wall)


def test_a_turn_is_one_batch_and_its_replies_wait_for_it(machine: Machine) -> None:
    first, second = machine.put(b"a", b"1"), machine.put(b"b", b"2")
    machine.end_turn()
    assert [list(facts_of(batch)) for batch, _ in machine.log.pending] == [[(b"a", b"1"), (b"b", b"2")]]
    assert (first.error, second.error) == (None, None)
    machine.log.succeed()
    assert (first.error, second.error) == (0, 0)


def test_one_append_is_in_flight_and_what_arrives_meanwhile_joins_the_next(machine: Machine) -> None:
    first = machine.put(b"a", b"1")
    machine.end_turn()
    second, third = machine.put(b"b", b"2"), machine.put(b"c", b"3")
    machine.end_turn()
    assert len(machine.log.pending) == 1
    machine.log.succeed()
    assert (first.error, second.error) == (0, None)
    machine.end_turn()
    assert [key for key, _ in facts_of(machine.log.pending[0][0])] == [b"b", b"c"]
    machine.log.succeed()
    assert (second.error, third.error) == (0, 0)


def test_a_refused_append_suspends_the_shard_and_takes_back_what_is_not_in_the_log(machine: Machine) -> None:
    refused = machine.put(b"a", b"1")
    machine.end_turn()
    behind = machine.put(b"b", b"2")
    machine.log.refuse()
    assert (refused.error, behind.error) == (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR)
    assert not machine.journal.writable
    assert machine.journal.readable
    assert machine.shard.values == {b"old": b"stored"}
    assert machine.read().error == 0


def test_an_append_that_ends_at_once_leaves_no_deadline_but_that_of_its_failure(machine: Machine) -> None:
    machine.log.append = lambda batch, records, done: done(0)  # type: ignore[method-assign]
    machine.put(b"a", b"1")
    machine.end_turn()
    assert machine.journal.wake_at == NEVER
    machine.log.append = lambda batch, records, done: done(AppendFailed("the disk is full"))  # type: ignore[method-assign]
    machine.put(b"b", b"2")
    machine.end_turn()
    assert machine.journal.wake_at == machine.clock.now + RETRY_MS_MIN


def test_writing_is_tried_again_with_growing_pauses_until_it_works(machine: Machine) -> None:
    machine.put(b"a", b"1")
    machine.end_turn()
    machine.log.refuse()
    pause = RETRY_MS_MIN
    for _ in range(10):
        machine.passes(pause - 1)
        assert not machine.log.recoveries
        machine.passes(1)
        machine.log.recoveries.pop()(AppendFailed("the disk is full"))
        pause = min(pause * 2, RETRY_MS_MAX)
    machine.passes(pause)
    machine.log.recoveries.pop()(None)
    assert machine.journal.writable
    reply = machine.put(b"a", b"again")
    machine.end_turn()
    machine.log.succeed()
    assert reply.error == 0
    assert machine.journal.wake_at == NEVER


def test_a_log_that_cannot_even_be_read_is_said_to_be_unreadable_until_it_can(machine: Machine) -> None:
    machine.put(b"a", b"1")
    machine.end_turn()
    machine.log.unreadable = True
    machine.log.refuse()
    assert not machine.journal.readable
    machine.passes(RETRY_MS_MIN)
    machine.log.recoveries.pop()(None)
    assert not machine.journal.writable
    machine.log.unreadable = False
    machine.passes(RETRY_MS_MIN)
    machine.log.recoveries.pop()(None)
    assert machine.journal.readable
    assert machine.journal.writable
    assert machine.shard.values == {b"old": b"stored"}


def test_an_append_that_takes_too_long_is_answered_and_goes_on(machine: Machine) -> None:
    late = machine.put(b"a", b"1")
    machine.end_turn()
    machine.passes(LATE_MS - 1)
    assert late.error is None
    machine.passes(1)
    assert late.error == ErrorCode.REQUEST_TIMED_OUT
    machine.log.succeed()
    assert late.error == ErrorCode.REQUEST_TIMED_OUT
    assert machine.read().error == 0
    assert machine.shard.values[b"a"] == b"1"


def test_a_reader_behind_a_late_append_waits_for_it(machine: Machine) -> None:
    machine.put(b"a", b"1")
    machine.end_turn()
    machine.passes(LATE_MS)
    reader = machine.read()
    assert reader.error is None
    machine.log.succeed()
    assert reader.error == 0


def test_who_comes_behind_a_late_append_does_not_wait_for_ever(machine: Machine) -> None:
    machine.put(b"a", b"1")
    machine.end_turn()
    machine.passes(LATE_MS)
    behind = machine.put(b"b", b"2")
    machine.passes(LATE_MS)
    assert behind.error is None
    machine.passes(LATE_MS)
    assert behind.error == ErrorCode.REQUEST_TIMED_OUT
    machine.log.succeed()
    machine.end_turn()
    machine.log.succeed()
    assert machine.journal.wake_at == NEVER
    assert list(machine.log.replay())[1:] == [[(b"a", b"1")], [(b"b", b"2")]]


def test_a_flush_that_fails_behind_the_replies_suspends_too(machine: Machine) -> None:
    machine.journal.failed(AppendFailed("fdatasync failed"))
    assert not machine.journal.writable


def test_settled_means_that_nothing_is_on_its_way_any_more(machine: Machine) -> None:
    told: list[bool] = []
    machine.journal.when_settled(lambda: told.append(True))
    assert told == [True]
    machine.put(b"a", b"1")
    machine.journal.when_settled(lambda: told.append(True))
    machine.end_turn()
    assert told == [True]
    machine.log.succeed()
    assert told == [True, True]


DAMAGE = DamagedLog("values-0/00000000000000000000.log", 7, "wrong checksum")


@pytest.mark.parametrize("damage", [DAMAGE, ProtocolError("a key of version -1")])
def test_a_log_that_cannot_be_understood_is_one_line_at_the_start_and_unreadable_later(machine: Machine, damage: Exception) -> None:
    machine.put(b"a", b"1")
    machine.end_turn()
    machine.log.damage = damage
    machine.log.refuse()
    assert (machine.journal.writable, machine.journal.readable) == (False, False)
    assert machine.shard.values == {}
    with pytest.raises(StartError, match="values-0 cannot be read") as caught:
        Journal("values-0", machine.shard, machine.log, machine.turn, LATE_MS).start()
    assert caught.value.code == ExitCode.DATA


def test_damage_found_while_it_is_suspended_keeps_it_suspended(machine: Machine) -> None:
    machine.put(b"a", b"1")
    machine.end_turn()
    machine.log.refuse()
    machine.log.damage = DAMAGE
    machine.passes(RETRY_MS_MIN)
    machine.log.recoveries.pop()(None)
    assert (machine.journal.writable, machine.journal.readable) == (False, False)
    machine.log.damage = None
    machine.passes(RETRY_MS_MAX)
    machine.log.recoveries.pop()(None)
    assert (machine.journal.writable, machine.journal.readable) == (True, True)


@pytest.mark.parametrize(
    ("acquired", "words", "code"),
    [
        (HeldBy("process 7"), "the registry is held by process 7", ExitCode.LOCKED),
        (Unreadable("a file is damaged", True), "a file is damaged", ExitCode.DATA),
        (Unreadable("Input/output error", False), "Input/output error", ExitCode.DISK),
    ],
)
def test_without_its_log_there_is_no_start(acquired: HeldBy | Unreadable, words: str, code: ExitCode) -> None:
    with pytest.raises(StartError, match=f"^{words}$") as caught:
        owned_or_fail("the registry", acquired)
    assert caught.value.code == code
    log = ScriptedLog()
    assert owned_or_fail("the registry", log) is log
