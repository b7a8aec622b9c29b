"""A shard's way to its log, on a log that does what the test says."""

from __future__ import annotations

import pytest

from broker.groups.journal import RETRY_MS_MAX, RETRY_MS_MIN, Journal, owned_or_fail
from broker.runtime.start import ExitCode, StartError
from broker.runtime.turn import NEVER
from protocol.batch import facts_of
from protocol.errors import ErrorCode, ProtocolError
from storage import AppendFailed, DamagedLog, HeldBy, Unreadable
from tests.support.journals import LATE_MS, JournalBench, ScriptedLog


@pytest.fixture
def machine() -> JournalBench:
    return JournalBench()


def test_it_opens_with_what_the_log_holds(machine: JournalBench) -> None:
    assert machine.shard.values == {b"old": b"stored"}
    assert (machine.journal.readable, machine.journal.writable) == (True, True)
    machine.passes(7)
    assert (machine.journal.now, machine.journal.wall) == (machine.clock.now, machine.clock.wall)


def test_a_turn_is_one_batch_and_its_replies_wait_for_it(machine: JournalBench) -> None:
    first, second = machine.put(b"a", b"1"), machine.put(b"b", b"2")
    machine.end_turn()
    assert [list(facts_of(batch)) for batch, _ in machine.log.pending] == [[(b"a", b"1"), (b"b", b"2")]]
    assert (first.error, second.error) == (None, None)
    machine.log.succeed()
    assert (first.error, second.error) == (0, 0)


def test_one_append_is_in_flight_and_what_arrives_meanwhile_joins_the_next(machine: JournalBench) -> None:
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


def test_a_refused_append_suspends_the_shard_and_takes_back_what_is_not_in_the_log(machine: JournalBench) -> None:
    refused = machine.put(b"a", b"1")
    machine.end_turn()
    behind = machine.put(b"b", b"2")
    machine.log.refuse()
    assert (refused.error, behind.error) == (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR)
    assert not machine.journal.writable
    assert machine.journal.readable
    assert machine.shard.values == {b"old": b"stored"}
    assert machine.read().error == 0


def test_an_append_that_ends_at_once_leaves_no_deadline_but_that_of_its_failure(machine: JournalBench) -> None:
    machine.log.append = lambda batch, records, done: done(0)  # type: ignore[method-assign]
    machine.put(b"a", b"1")
    machine.end_turn()
    assert machine.journal.wake_at == NEVER
    machine.log.append = lambda batch, records, done: done(AppendFailed("the disk is full"))  # type: ignore[method-assign]
    machine.put(b"b", b"2")
    machine.end_turn()
    assert machine.journal.wake_at == machine.clock.now + RETRY_MS_MIN


def test_writing_is_tried_again_with_growing_pauses_until_it_works(machine: JournalBench) -> None:
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


def test_a_log_that_cannot_even_be_read_is_said_to_be_unreadable_until_it_can(machine: JournalBench) -> None:
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


def test_an_append_that_takes_too_long_is_answered_and_goes_on(machine: JournalBench) -> None:
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


def test_a_reader_behind_a_late_append_waits_for_it(machine: JournalBench) -> None:
    machine.put(b"a", b"1")
    machine.end_turn()
    machine.passes(LATE_MS)
    reader = machine.read()
    assert reader.error is None
    machine.log.succeed()
    assert reader.error == 0


def test_who_comes_behind_a_late_append_does_not_wait_for_ever(machine: JournalBench) -> None:
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


def test_a_flush_that_fails_behind_the_replies_suspends_too(machine: JournalBench) -> None:
    machine.journal.failed(AppendFailed("fdatasync failed"))
    assert not machine.journal.writable


def test_settled_means_that_nothing_is_on_its_way_any_more(machine: JournalBench) -> None:
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
def test_a_log_that_cannot_be_understood_is_one_line_at_the_start_and_unreadable_later(machine: JournalBench, damage: Exception) -> None:
    machine.put(b"a", b"1")
    machine.end_turn()
    machine.log.damage = damage
    machine.log.refuse()
    assert (machine.journal.writable, machine.journal.readable) == (False, False)
    assert machine.shard.values == {}
    with pytest.raises(StartError, match="values-0 cannot be read") as caught:
        Journal("values-0", machine.shard, machine.log, machine.turn, LATE_MS).start()
    assert caught.value.code == ExitCode.DATA


def test_damage_found_while_it_is_suspended_keeps_it_suspended(machine: JournalBench) -> None:
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
