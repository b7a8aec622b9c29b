"""The journal of a shard, over a scripted log."""

from __future__ import annotations

import re

import pytest

from broker.groups.journal import RETRY_MS_MAX, RETRY_MS_MIN, Journal, owned_or_fail
from broker.runtime.contain import DEFECTS
from broker.runtime.start import ExitCode, StartError
from broker.runtime.turn import NEVER
from protocol.batch import facts_of
from protocol.errors import ErrorCode, ProtocolError
from storage import AppendFailed, DamagedLog, HeldBy, Unreadable
from tests.support.journals import LATE_MS, JournalBench, Reply, ScriptedLog


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
    machine.journal.end_turn()
    assert len(machine.log.pending) == 1
    machine.log.succeed()
    assert (first.error, second.error) == (0, None)
    machine.loop.run()
    assert [key for key, _ in facts_of(machine.log.pending[0][0])] == [b"b", b"c"]
    machine.log.succeed()
    assert (second.error, third.error) == (0, 0)


def test_a_refused_append_suspends_the_shard_and_reverts_void_facts(machine: JournalBench) -> None:
    refused = machine.append(b"a", b"1")
    later_write = machine.put(b"b", b"2")
    machine.log.refuse()
    assert (refused.error, later_write.error) == (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR)
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
    later_write = machine.put(b"b", b"2")
    machine.pass_ms(LATE_MS)
    assert later_write.error is None
    machine.pass_ms(LATE_MS)
    assert later_write.error == ErrorCode.REQUEST_TIMED_OUT
    machine.log.succeed()
    machine.loop.run()
    machine.log.succeed()
    assert machine.journal.wake_at == NEVER
    assert list(machine.log.replay())[1:] == [[(b"a", b"1")], [(b"b", b"2")]]


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


def test_the_end_of_the_turn_is_scheduled_only_for_facts_without_an_append(machine: JournalBench) -> None:
    machine.read()
    assert not machine.loop.busy
    machine.put(b"a", b"1")
    assert machine.loop.busy
    machine.loop.run()
    machine.read()  # held by the append in flight
    machine.put(b"b", b"2")  # the end of that append handles it
    assert not machine.loop.busy
    machine.log.succeed()
    assert machine.loop.busy
    machine.loop.run()
    machine.log.succeed()
    assert not machine.loop.busy


def test_a_suspended_journal_appends_nothing(machine: JournalBench) -> None:
    machine.append(b"a", b"1")
    machine.log.refuse()
    machine.shard.put(b"b", b"2")
    machine.journal.end_turn()
    assert machine.log.pending == []


def test_a_failure_during_an_append_is_handled_at_its_end(machine: JournalBench) -> None:
    held = machine.append(b"a", b"1")
    machine.log.failed(AppendFailed("a flush failed"))
    assert machine.journal.writable
    assert held.error is None
    machine.log.succeed()
    assert held.error == 0
    machine.log.failed(AppendFailed("a flush failed"))
    assert not machine.journal.writable
    alarm = machine.journal.wake_at
    machine.loop.advance(0.1)
    machine.clock.tick()
    machine.log.failed(AppendFailed("and another one"))  # it is suspended already
    assert machine.journal.wake_at == alarm


def test_a_defect_suspends_and_answers_an_append_in_flight_as_unknown(machine: JournalBench) -> None:
    unwritten = machine.put(b"a", b"1")
    machine.journal.broken()
    assert (machine.journal.writable, unwritten.error) == (False, ErrorCode.KAFKA_STORAGE_ERROR)
    assert machine.journal.wake_at == machine.clock.now + RETRY_MS_MIN
    alarm = machine.journal.wake_at
    machine.pass_ms(10)
    machine.journal.broken()  # once is enough
    assert machine.journal.wake_at == alarm
    second_bench = JournalBench()
    in_flight = second_bench.put(b"a", b"1")
    second_bench.loop.run()
    second_bench.journal.broken()
    assert (second_bench.journal.writable, in_flight.error) == (False, ErrorCode.REQUEST_TIMED_OUT)


def test_a_defect_during_an_append_waits_for_its_end_before_replaying(machine: JournalBench) -> None:
    """The append in flight may succeed, and then its facts are there when the journal serves again."""
    machine.append(b"a", b"1")
    machine.journal.broken()
    for _ in range(3):
        assert machine.journal.wake_at == machine.clock.now + RETRY_MS_MIN
        machine.pass_ms(RETRY_MS_MIN)
        assert not machine.log.recoveries
    machine.log.succeed()
    machine.pass_ms(RETRY_MS_MIN)
    machine.log.recoveries.pop()(None)
    assert (machine.journal.writable, machine.shard.values[b"a"]) == (True, b"1")
    held = machine.append(b"b", b"2")
    machine.log.succeed()
    assert held.error == 0


def test_an_append_failing_after_a_defect_changes_nothing(machine: JournalBench) -> None:
    machine.append(b"a", b"1")
    machine.journal.broken()
    alarm = machine.journal.wake_at
    machine.log.refuse()
    assert (machine.journal.writable, machine.journal.wake_at) == (False, alarm)
    machine.pass_ms(RETRY_MS_MIN)
    machine.log.recoveries.pop()(None)
    assert machine.journal.writable
    assert b"a" not in machine.shard.values


def test_a_defect_is_the_reason_of_the_suspension_in_the_log(machine: JournalBench, capsys: pytest.CaptureFixture[str]) -> None:
    machine.put(b"a", b"1")
    machine.journal.broken()
    second_bench = JournalBench()
    second_bench.put(b"a", b"1")
    second_bench.loop.run()
    second_bench.journal.broken()
    assert len(re.findall("log suspended +log=values-0 reason='a defect in this version'", capsys.readouterr().out)) == 2


def test_pauses_grow_from_a_quarter_of_a_second_to_fifteen_and_restart_after_each_success(machine: JournalBench) -> None:
    for _ in range(2):
        machine.append(b"a", b"1")
        machine.log.refuse()
        for pause in (250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000):
            machine.journal.advance(machine.clock.tick())  # waking early is harmless
            assert not machine.log.recoveries
            machine.pass_ms(pause - 1)
            machine.journal.advance(machine.clock.tick())
            assert not machine.log.recoveries
            machine.pass_ms(1)
            machine.log.recoveries.pop()(AppendFailed("the disk is full"))
        machine.pass_ms(15_000)
        machine.log.recoveries.pop()(None)
        assert machine.journal.writable
        reply = machine.append(b"a", b"2")
        machine.log.succeed()
        assert (reply.error, machine.journal.wake_at) == (0, NEVER)


@pytest.mark.parametrize("unreadable", [False, True])
def test_an_unreadable_log_is_retried_after_the_pause(machine: JournalBench, unreadable: bool) -> None:
    """Whether it was readable when the journal was suspended, or not."""
    machine.append(b"a", b"1")
    machine.log.unreadable = unreadable
    machine.log.refuse()
    assert machine.journal.readable != unreadable
    machine.pass_ms(RETRY_MS_MIN)
    machine.log.unreadable = True
    machine.log.recoveries.pop()(None)
    assert (machine.journal.writable, machine.journal.readable) == (False, False)
    assert machine.journal.wake_at == machine.clock.now + RETRY_MS_MIN
    machine.pass_ms(RETRY_MS_MIN - 1)
    assert not machine.log.recoveries
    machine.pass_ms(1)
    machine.log.unreadable = False
    machine.log.recoveries.pop()(None)
    assert (machine.journal.writable, machine.journal.readable) == (True, True)
    assert machine.shard.values == {b"old": b"stored"}


def test_an_append_is_late_to_the_millisecond_and_later_requests_count_from_their_arrival(machine: JournalBench) -> None:
    first = machine.append(b"a", b"1")
    machine.pass_ms(LATE_MS - 1)
    second = machine.put(b"b", b"2")
    assert first.error is None
    machine.pass_ms(1)
    assert [reply.error for reply in (first, second)] == [ErrorCode.REQUEST_TIMED_OUT, None]
    machine.pass_ms(LATE_MS - 1)
    assert second.error is None
    machine.pass_ms(1)
    assert second.error == ErrorCode.REQUEST_TIMED_OUT


def test_each_fact_of_the_last_append_gets_its_offset(machine: JournalBench) -> None:
    for key in (b"a", b"b", b"c"):
        machine.append(key, b"1")
    _, done = machine.log.pending.pop()
    done(100)
    assert [machine.journal.offset_of(stamp) for stamp in (1, 2, 3)] == [100, 101, 102]


def test_the_settled_callback_runs_once_when_no_append_is_pending(machine: JournalBench) -> None:
    calls: list[str] = []
    machine.append(b"a", b"1")
    machine.put(b"b", b"2")
    machine.journal.when_settled(lambda: calls.append("settled"))
    machine.log.succeed()
    assert calls == []  # the second is not written
    machine.loop.run()
    machine.log.succeed()
    assert calls == ["settled"]
    machine.append(b"c", b"3")
    machine.log.succeed()
    assert calls == ["settled"]
    machine.journal.when_settled(lambda: calls.append("at once"))
    assert calls == ["settled", "at once"]


def test_a_failing_reply_without_a_waiting_request_affects_no_other(machine: JournalBench) -> None:
    class Broken(Reply):
        def release(self) -> None:
            raise RuntimeError("a defect")

    machine.shard.put(b"a", b"1")
    machine.journal.reply(Broken())
    read = machine.read()
    machine.loop.run()
    machine.log.succeed()
    assert read.error == 0
    assert machine.journal.wake_at == NEVER
    assert ", a reply failed inside the broker: RuntimeError: a defect" in DEFECTS.last
