"""The journal of a shard, over a scripted log."""

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


def test_a_journal_opens_with_the_facts_of_the_log(machine: JournalBench) -> None:
    assert machine.shard.values == {b"old": b"stored"}
    assert (machine.journal.readable, machine.journal.writable) == (True, True)
    machine.pass_ms(7)
    assert (machine.journal.now, machine.journal.wall) == (machine.clock.now, machine.clock.wall)


def test_a_turn_is_one_batch_and_its_replies_wait_for_it(machine: JournalBench) -> None:
    first, second = machine.put(b"a", b"1"), machine.put(b"b", b"2")
    machine.loop.run()
    assert [list(facts_of(batch)) for batch, _ in machine.log.pending] == [[(b"a", b"1"), (b"b", b"2")]]
    assert (first.error, second.error) == (None, None)
    machine.log.succeed()
    assert (first.error, second.error) == (0, 0)


def test_facts_emitted_during_an_append_join_the_next_append(machine: JournalBench) -> None:
    first = machine.append(b"a", b"1")
    second, third = machine.put(b"b", b"2"), machine.put(b"c", b"3")
    machine.loop.run()
    assert len(machine.log.pending) == 1
    machine.log.succeed()
    assert (first.error, second.error) == (0, None)
    machine.loop.run()
    assert [key for key, _ in facts_of(machine.log.pending[0][0])] == [b"b", b"c"]
    machine.log.succeed()
    assert (second.error, third.error) == (0, 0)


def test_a_refused_append_suspends_the_shard_and_reverts_void_facts(machine: JournalBench) -> None:
    refused = machine.append(b"a", b"1")
    behind = machine.put(b"b", b"2")
    machine.log.refuse()
    assert (refused.error, behind.error) == (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR)
    assert not machine.journal.writable
    assert machine.journal.readable
    assert machine.shard.values == {b"old": b"stored"}
    assert machine.read().error == 0


def test_an_append_that_ends_at_once_leaves_no_deadline_but_that_of_its_failure(machine: JournalBench) -> None:
    machine.log.append = lambda batch, records, done: done(0)  # type: ignore[method-assign]
    machine.append(b"a", b"1")
    assert machine.journal.wake_at == NEVER
    machine.log.append = lambda batch, records, done: done(AppendFailed("the disk is full"))  # type: ignore[method-assign]
    machine.append(b"b", b"2")
    assert machine.journal.wake_at == machine.clock.now + RETRY_MS_MIN


def test_a_suspended_journal_retries_with_growing_pauses(machine: JournalBench) -> None:
    machine.append(b"a", b"1")
    machine.log.refuse()
    pause = RETRY_MS_MIN
    for _ in range(10):
        machine.pass_ms(pause - 1)
        assert not machine.log.recoveries
        machine.pass_ms(1)
        machine.log.recoveries.pop()(AppendFailed("the disk is full"))
        pause = min(pause * 2, RETRY_MS_MAX)
    machine.pass_ms(pause)
    machine.log.recoveries.pop()(None)
    assert machine.journal.writable
    reply = machine.append(b"a", b"again")
    machine.log.succeed()
    assert reply.error == 0
    assert machine.journal.wake_at == NEVER


def test_an_unreadable_log_is_reported_as_unreadable_until_it_recovers(machine: JournalBench) -> None:
    machine.append(b"a", b"1")
    machine.log.unreadable = True
    machine.log.refuse()
    assert not machine.journal.readable
    machine.pass_ms(RETRY_MS_MIN)
    machine.log.recoveries.pop()(None)
    assert not machine.journal.writable
    machine.log.unreadable = False
    machine.pass_ms(RETRY_MS_MIN)
    machine.log.recoveries.pop()(None)
    assert machine.journal.readable
    assert machine.journal.writable
    assert machine.shard.values == {b"old": b"stored"}


def test_a_late_append_is_answered_and_continues(machine: JournalBench) -> None:
    late = machine.append(b"a", b"1")
    machine.pass_ms(LATE_MS - 1)
    assert late.error is None
    machine.pass_ms(1)
    assert late.error == ErrorCode.REQUEST_TIMED_OUT
    machine.log.succeed()
    assert late.error == ErrorCode.REQUEST_TIMED_OUT
    assert machine.read().error == 0
    assert machine.shard.values[b"a"] == b"1"


def test_a_read_after_a_late_append_waits_for_it(machine: JournalBench) -> None:
    machine.append(b"a", b"1")
    machine.pass_ms(LATE_MS)
    reader = machine.read()
    assert reader.error is None
    machine.log.succeed()
    assert reader.error == 0


def test_a_request_after_a_late_append_times_out(machine: JournalBench) -> None:
    machine.append(b"a", b"1")
    machine.pass_ms(LATE_MS)
    behind = machine.put(b"b", b"2")
    machine.pass_ms(LATE_MS)
    assert behind.error is None
    machine.pass_ms(LATE_MS)
    assert behind.error == ErrorCode.REQUEST_TIMED_OUT
    machine.log.succeed()
    machine.loop.run()
    machine.log.succeed()
    assert machine.journal.wake_at == NEVER
    assert list(machine.log.replay())[1:] == [[(b"a", b"1")], [(b"b", b"2")]]


def test_a_flush_failing_after_the_replies_suspends_the_journal(machine: JournalBench) -> None:
    machine.journal.failed(AppendFailed("fdatasync failed"))
    assert not machine.journal.writable


def test_a_journal_is_settled_when_no_append_is_pending(machine: JournalBench) -> None:
    settled: list[bool] = []
    machine.journal.when_settled(lambda: settled.append(True))
    assert settled == [True]
    machine.put(b"a", b"1")
    machine.journal.when_settled(lambda: settled.append(True))
    machine.loop.run()
    assert settled == [True]
    machine.log.succeed()
    assert settled == [True, True]


DAMAGE = DamagedLog("values-0/00000000000000000000.log", 7, "wrong checksum")


@pytest.mark.parametrize("damage", [DAMAGE, ProtocolError("a key of version -1")])
def test_an_undecodable_log_fails_the_start_with_one_line_and_is_unreadable_later(machine: JournalBench, damage: Exception) -> None:
    machine.append(b"a", b"1")
    machine.log.damage = damage
    machine.log.refuse()
    assert (machine.journal.writable, machine.journal.readable) == (False, False)
    assert machine.shard.values == {}
    with pytest.raises(StartError, match="values-0 cannot be read") as caught:
        Journal("values-0", machine.shard, machine.log, machine.turn, LATE_MS).start()
    assert caught.value.code == ExitCode.DATA


def test_damage_found_while_it_is_suspended_keeps_it_suspended(machine: JournalBench) -> None:
    machine.append(b"a", b"1")
    machine.log.refuse()
    machine.log.damage = DAMAGE
    machine.pass_ms(RETRY_MS_MIN)
    machine.log.recoveries.pop()(None)
    assert (machine.journal.writable, machine.journal.readable) == (False, False)
    machine.log.damage = None
    machine.pass_ms(RETRY_MS_MAX)
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
