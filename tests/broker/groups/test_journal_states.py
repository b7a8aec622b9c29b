"""State changes of a journal: when it schedules the turn, the effect of defects, and late appends."""

from __future__ import annotations

import re

import pytest

from broker.groups.journal import RETRY_MS_MIN, owned_or_fail
from broker.runtime.contain import DEFECTS
from broker.runtime.start import ExitCode, StartError
from broker.runtime.turn import NEVER
from protocol.errors import ErrorCode
from storage import AppendFailed, HeldBy
from tests.support.journals import LATE_MS, JournalBench, Reply, ScriptedLog


@pytest.fixture
def machine() -> JournalBench:
    return JournalBench()


def test_a_registry_log_held_elsewhere_prevents_the_start() -> None:
    assert owned_or_fail("the registry", log := ScriptedLog()) is log
    with pytest.raises(StartError, match="the registry is held by process 7") as raised:
        owned_or_fail("the registry", HeldBy("process 7"))
    assert raised.value.code == ExitCode.LOCKED


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


def test_no_append_begins_while_another_is_in_flight(machine: JournalBench) -> None:
    machine.append(b"a", b"1")
    machine.put(b"b", b"2")
    machine.journal.end_turn()
    assert len(machine.log.pending) == 1


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
    known = machine.put(b"a", b"1")
    machine.journal.broken()
    assert (machine.journal.writable, known.error) == (False, ErrorCode.KAFKA_STORAGE_ERROR)
    assert machine.journal.wake_at == machine.clock.now + RETRY_MS_MIN
    alarm = machine.journal.wake_at
    machine.pass_ms(10)
    machine.journal.broken()  # once is enough
    assert machine.journal.wake_at == alarm
    other = JournalBench()
    unknown = other.put(b"a", b"1")
    other.loop.run()
    other.journal.broken()
    assert (other.journal.writable, unknown.error) == (False, ErrorCode.REQUEST_TIMED_OUT)


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


def test_a_defect_and_a_failing_reply_are_described_differently(machine: JournalBench, capsys: pytest.CaptureFixture[str]) -> None:
    machine.put(b"a", b"1")
    machine.journal.broken()
    other = JournalBench()
    other.put(b"a", b"1")
    other.loop.run()
    other.journal.broken()
    assert len(re.findall("log suspended +log=values-0 reason='a defect in this version'", capsys.readouterr().out)) == 2

    class Broken(Reply):
        def release(self) -> None:
            raise RuntimeError("planted")

    third = JournalBench()
    third.shard.put(b"a", b"1")
    third.journal.reply(Broken())
    third.loop.run()
    third.log.succeed()
    assert ", a reply failed inside the broker: RuntimeError: planted" in DEFECTS.last


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


def test_a_writable_but_unreadable_log_is_retried_after_the_pause(machine: JournalBench) -> None:
    machine.append(b"a", b"1")
    machine.log.refuse()
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
    heard: list[str] = []
    machine.append(b"a", b"1")
    machine.put(b"b", b"2")
    machine.journal.when_settled(lambda: heard.append("settled"))
    machine.log.succeed()
    assert heard == []  # the second is not written
    machine.loop.run()
    machine.log.succeed()
    assert heard == ["settled"]
    machine.append(b"c", b"3")
    machine.log.succeed()
    assert heard == ["settled"]
    machine.journal.when_settled(lambda: heard.append("at once"))
    assert heard == ["settled", "at once"]


def test_a_failing_reply_without_a_waiting_request_affects_no_other(machine: JournalBench) -> None:
    class Broken(Reply):
        def release(self) -> None:
            raise RuntimeError("a defect")

    machine.shard.put(b"a", b"1")
    machine.journal.reply(Broken())
    later = machine.read()
    machine.loop.run()
    machine.log.succeed()
    assert later.error == 0
    assert machine.journal.wake_at == NEVER
