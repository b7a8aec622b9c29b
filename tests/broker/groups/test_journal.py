"""The journal of a shard, over a scripted log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from broker.groups.journal import NO_LOG, RETRY_MS_MAX, RETRY_MS_MIN, Journal, owned_or_fail
from broker.runtime.contain import DEFECTS
from broker.runtime.start import ExitCode, StartError
from broker.runtime.turn import NEVER
from protocol.batch import facts_of
from protocol.errors import ErrorCode, ProtocolError
from storage import AppendFailed, DamagedLog, Fenced, HeldBy, Unreadable
from tests.support.journals import LATE_MS, JournalHarness, Reply, ScriptedLog


@pytest.fixture
def harness() -> JournalHarness:
    return JournalHarness()


def test_a_journal_opens_with_the_facts_of_the_log(harness: JournalHarness) -> None:
    assert harness.shard.values == {b"old": b"stored"}
    assert (harness.journal.readable, harness.journal.writable) == (True, True)
    harness.pass_ms(7)
    assert (harness.journal.now, harness.journal.wall) == (harness.clock.now, harness.clock.wall)


def test_a_turn_is_one_batch_and_its_replies_wait_for_it(harness: JournalHarness) -> None:
    first, second = harness.put(b"a", b"1"), harness.put(b"b", b"2")
    harness.loop.run()
    assert [list(facts_of(batch)) for batch, _ in harness.log.pending] == [[(b"a", b"1"), (b"b", b"2")]]
    assert (first.error, second.error) == (None, None)
    harness.log.succeed()
    assert (first.error, second.error) == (0, 0)


def test_facts_emitted_during_an_append_join_the_next_append(harness: JournalHarness) -> None:
    first = harness.append(b"a", b"1")
    second, third = harness.put(b"b", b"2"), harness.put(b"c", b"3")
    harness.journal.end_turn()
    assert len(harness.log.pending) == 1
    harness.log.succeed()
    assert (first.error, second.error) == (0, None)
    harness.loop.run()
    assert [key for key, _ in facts_of(harness.log.pending[0][0])] == [b"b", b"c"]
    harness.log.succeed()
    assert (second.error, third.error) == (0, 0)


def test_a_refused_append_suspends_the_shard_and_reverts_void_facts(harness: JournalHarness) -> None:
    refused = harness.append(b"a", b"1")
    later_write = harness.put(b"b", b"2")
    harness.log.refuse()
    assert (refused.error, later_write.error) == (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR)
    assert not harness.journal.writable
    assert harness.journal.readable
    assert harness.shard.values == {b"old": b"stored"}
    assert harness.read().error == 0


def test_an_append_that_ends_at_once_leaves_no_deadline_but_that_of_its_failure(harness: JournalHarness) -> None:
    harness.log.append = lambda batch, records, done: done(0)  # type: ignore[method-assign]
    harness.append(b"a", b"1")
    assert harness.journal.wake_at == NEVER
    harness.log.append = lambda batch, records, done: done(AppendFailed("the disk is full"))  # type: ignore[method-assign]
    harness.append(b"b", b"2")
    assert harness.journal.wake_at == harness.clock.now + RETRY_MS_MIN


def test_a_late_append_is_answered_and_continues(harness: JournalHarness) -> None:
    late = harness.append(b"a", b"1")
    harness.pass_ms(LATE_MS - 1)
    assert late.error is None
    harness.pass_ms(1)
    assert late.error == ErrorCode.REQUEST_TIMED_OUT
    harness.log.succeed()
    assert late.error == ErrorCode.REQUEST_TIMED_OUT
    assert harness.read().error == 0
    assert harness.shard.values[b"a"] == b"1"


def test_a_read_after_a_late_append_waits_for_it(harness: JournalHarness) -> None:
    harness.append(b"a", b"1")
    harness.pass_ms(LATE_MS)
    reader = harness.read()
    assert reader.error is None
    harness.log.succeed()
    assert reader.error == 0


def test_a_request_after_a_late_append_times_out(harness: JournalHarness) -> None:
    harness.append(b"a", b"1")
    harness.pass_ms(LATE_MS)
    later_write = harness.put(b"b", b"2")
    harness.pass_ms(LATE_MS)
    assert later_write.error is None
    harness.pass_ms(LATE_MS)
    assert later_write.error == ErrorCode.REQUEST_TIMED_OUT
    harness.log.succeed()
    harness.loop.run()
    harness.log.succeed()
    assert harness.journal.wake_at == NEVER
    assert list(harness.log.replay())[1:] == [[(b"a", b"1")], [(b"b", b"2")]]


DAMAGE = DamagedLog("values-0/00000000000000000000.log", 7, "wrong checksum")


@pytest.mark.parametrize("damage", [DAMAGE, ProtocolError("a key of version -1")])
def test_an_undecodable_log_fails_the_start_with_one_line_and_is_unreadable_later(harness: JournalHarness, damage: Exception) -> None:
    harness.append(b"a", b"1")
    harness.log.damage = damage
    harness.log.refuse()
    assert (harness.journal.writable, harness.journal.readable) == (False, False)
    assert harness.shard.values == {}
    with pytest.raises(StartError, match="values-0 cannot be read") as caught:
        Journal("values-0", harness.shard, harness.log, harness.turn, LATE_MS).start()
    assert caught.value.code == ExitCode.DATA


def anew(shard: Any) -> Callable[[Iterable[Any]], None]:
    """Replace the values of the shard; a value "newer" cannot be read."""

    def replace(facts: Iterable[Any]) -> None:
        facts = list(facts)
        if any(value == b"newer" for _, value in facts):
            raise ProtocolError("a newer version")
        shard.clear()
        shard.replay(facts)

    return replace


def test_a_journal_that_keeps_facts_shows_the_stored_ones_while_its_log_is_unreadable(harness: JournalHarness) -> None:
    harness.journal = Journal("values-0", harness.shard, harness.log, harness.turn, LATE_MS, replace=anew(harness.shard))
    harness.journal.start()
    harness.turn.add_deadline_handler(harness.journal)
    harness.append(b"a", b"1")
    harness.log.succeed()
    void = harness.append(b"b", b"2")
    harness.log.unreadable = True
    harness.log.refuse()
    assert void.error == ErrorCode.KAFKA_STORAGE_ERROR
    assert (harness.journal.writable, harness.journal.readable) == (False, False)
    assert harness.shard.values == {b"old": b"stored", b"a": b"1"}
    harness.log.unreadable = False
    harness.pass_ms(RETRY_MS_MIN)
    harness.log.recoveries.pop()(None)
    assert (harness.journal.writable, harness.journal.readable) == (True, True)
    assert harness.shard.values == {b"old": b"stored", b"a": b"1"}
    harness.append(b"c", b"3")
    harness.log.succeed()
    assert harness.shard.values == {b"old": b"stored", b"a": b"1", b"c": b"3"}


def test_of_a_removed_key_a_journal_keeps_nothing(harness: JournalHarness) -> None:
    harness.journal = Journal("values-0", harness.shard, harness.log, harness.turn, LATE_MS, replace=anew(harness.shard))
    harness.journal.start()
    harness.append(b"old", None)
    harness.log.succeed()
    assert harness.shard.values == {b"old": None}
    harness.append(b"a", b"1")
    harness.log.unreadable = True
    harness.log.refuse()
    assert harness.shard.values == {}


def test_a_journal_that_cannot_lead_keeps_its_facts(harness: JournalHarness) -> None:
    shard = harness.shard
    journal = Journal("values-0", shard, NO_LOG, harness.turn, LATE_MS, replace=anew(shard))
    shard.replay([(b"sent", b"by another node")])
    kept = dict(shard.values)
    harness.log.unreadable = True
    with pytest.raises(OSError, match="Input/output error"):
        journal.lead(harness.log)
    assert shard.values == kept
    harness.log.unreadable = False
    harness.log.stored.append([(b"k", b"newer")])
    with pytest.raises(ProtocolError):
        journal.lead(harness.log)
    assert shard.values == kept


def test_a_journal_that_leads_a_log_that_another_node_has_claimed_is_suspended(harness: JournalHarness) -> None:
    journal = Journal("values-0", harness.shard, NO_LOG, harness.turn, LATE_MS, replace=anew(harness.shard))
    harness.log.failure = Fenced("another node has claimed the log")
    journal.lead(harness.log)
    assert (journal.writable, journal.fenced) == (False, True)


def test_damage_found_while_it_is_suspended_keeps_it_suspended(harness: JournalHarness) -> None:
    harness.append(b"a", b"1")
    harness.log.refuse()
    harness.log.damage = DAMAGE
    harness.pass_ms(RETRY_MS_MIN)
    harness.log.recoveries.pop()(None)
    assert (harness.journal.writable, harness.journal.readable) == (False, False)
    harness.log.damage = None
    harness.pass_ms(RETRY_MS_MAX)
    harness.log.recoveries.pop()(None)
    assert (harness.journal.writable, harness.journal.readable) == (True, True)


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


def test_the_end_of_the_turn_is_scheduled_only_for_facts_without_an_append(harness: JournalHarness) -> None:
    harness.read()
    assert not harness.loop.busy
    harness.put(b"a", b"1")
    assert harness.loop.busy
    harness.loop.run()
    harness.read()  # its reply waits for the append in flight
    harness.put(b"b", b"2")  # the end of that append schedules the append of this fact
    assert not harness.loop.busy
    harness.log.succeed()
    assert harness.loop.busy
    harness.loop.run()
    harness.log.succeed()
    assert not harness.loop.busy


def test_a_suspended_journal_appends_nothing(harness: JournalHarness) -> None:
    harness.append(b"a", b"1")
    harness.log.refuse()
    harness.shard.put(b"b", b"2")
    harness.journal.end_turn()
    assert harness.log.pending == []


def test_a_failure_during_an_append_is_handled_at_its_end(harness: JournalHarness) -> None:
    held = harness.append(b"a", b"1")
    harness.log.failed(AppendFailed("a flush failed"))
    assert harness.journal.writable
    assert held.error is None
    harness.log.succeed()
    assert held.error == 0
    harness.log.failed(AppendFailed("a flush failed"))
    assert not harness.journal.writable
    deadline = harness.journal.wake_at
    harness.loop.advance(0.1)
    harness.clock.tick()
    harness.log.failed(AppendFailed("and another one"))  # without effect, as the journal is suspended already
    assert harness.journal.wake_at == deadline


def test_a_defect_suspends_and_answers_an_append_in_flight_as_unknown(harness: JournalHarness) -> None:
    unwritten = harness.put(b"a", b"1")
    harness.journal.handle_defect()
    assert (harness.journal.writable, unwritten.error) == (False, ErrorCode.KAFKA_STORAGE_ERROR)
    assert harness.journal.wake_at == harness.clock.now + RETRY_MS_MIN
    deadline = harness.journal.wake_at
    harness.pass_ms(10)
    harness.journal.handle_defect()  # a second defect does not extend the pause
    assert harness.journal.wake_at == deadline
    second_harness = JournalHarness()
    in_flight = second_harness.put(b"a", b"1")
    second_harness.loop.run()
    second_harness.journal.handle_defect()
    assert (second_harness.journal.writable, in_flight.error) == (False, ErrorCode.REQUEST_TIMED_OUT)


def test_a_defect_during_an_append_waits_for_its_end_before_replaying(harness: JournalHarness) -> None:
    """The append in flight may succeed: the replay must then read its facts."""
    harness.append(b"a", b"1")
    harness.journal.handle_defect()
    for _ in range(3):
        assert harness.journal.wake_at == harness.clock.now + RETRY_MS_MIN
        harness.pass_ms(RETRY_MS_MIN)
        assert not harness.log.recoveries
    harness.log.succeed()
    harness.pass_ms(RETRY_MS_MIN)
    harness.log.recoveries.pop()(None)
    assert (harness.journal.writable, harness.shard.values[b"a"]) == (True, b"1")
    held = harness.append(b"b", b"2")
    harness.log.succeed()
    assert held.error == 0


def test_an_append_failing_after_a_defect_changes_nothing(harness: JournalHarness) -> None:
    harness.append(b"a", b"1")
    harness.journal.handle_defect()
    deadline = harness.journal.wake_at
    harness.log.refuse()
    assert (harness.journal.writable, harness.journal.wake_at) == (False, deadline)
    harness.pass_ms(RETRY_MS_MIN)
    harness.log.recoveries.pop()(None)
    assert harness.journal.writable
    assert b"a" not in harness.shard.values


def test_a_defect_is_the_reason_of_the_suspension_in_the_log(harness: JournalHarness, capsys: pytest.CaptureFixture[str]) -> None:
    harness.put(b"a", b"1")
    harness.journal.handle_defect()
    second_harness = JournalHarness()
    second_harness.put(b"a", b"1")
    second_harness.loop.run()
    second_harness.journal.handle_defect()
    assert len(re.findall("log suspended +log=values-0 reason='a defect in this version'", capsys.readouterr().out)) == 2


def test_pauses_grow_from_a_quarter_of_a_second_to_fifteen_and_restart_after_each_success(harness: JournalHarness) -> None:
    for _ in range(2):
        harness.append(b"a", b"1")
        harness.log.refuse()
        for pause in (250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000):
            harness.journal.advance(harness.clock.tick())  # waking early is harmless
            assert not harness.log.recoveries
            harness.pass_ms(pause - 1)
            harness.journal.advance(harness.clock.tick())
            assert not harness.log.recoveries
            harness.pass_ms(1)
            harness.log.recoveries.pop()(AppendFailed("the disk is full"))
        harness.pass_ms(15_000)
        harness.log.recoveries.pop()(None)
        assert harness.journal.writable
        reply = harness.append(b"a", b"2")
        harness.log.succeed()
        assert (reply.error, harness.journal.wake_at) == (0, NEVER)


@pytest.mark.parametrize("unreadable", [False, True])
def test_an_unreadable_log_is_retried_after_the_pause(harness: JournalHarness, unreadable: bool) -> None:
    """`unreadable`: the log could not be read at the suspension either."""
    harness.append(b"a", b"1")
    harness.log.unreadable = unreadable
    harness.log.refuse()
    assert harness.journal.readable != unreadable
    harness.pass_ms(RETRY_MS_MIN)
    harness.log.unreadable = True
    harness.log.recoveries.pop()(None)
    assert (harness.journal.writable, harness.journal.readable) == (False, False)
    assert harness.journal.wake_at == harness.clock.now + RETRY_MS_MIN
    harness.pass_ms(RETRY_MS_MIN - 1)
    assert not harness.log.recoveries
    harness.pass_ms(1)
    harness.log.unreadable = False
    harness.log.recoveries.pop()(None)
    assert (harness.journal.writable, harness.journal.readable) == (True, True)
    assert harness.shard.values == {b"old": b"stored"}


def test_an_append_is_late_to_the_millisecond_and_later_requests_count_from_their_arrival(harness: JournalHarness) -> None:
    first = harness.append(b"a", b"1")
    harness.pass_ms(LATE_MS - 1)
    second = harness.put(b"b", b"2")
    assert first.error is None
    harness.pass_ms(1)
    assert [reply.error for reply in (first, second)] == [ErrorCode.REQUEST_TIMED_OUT, None]
    harness.pass_ms(LATE_MS - 1)
    assert second.error is None
    harness.pass_ms(1)
    assert second.error == ErrorCode.REQUEST_TIMED_OUT


def test_each_fact_of_the_last_append_gets_its_offset(harness: JournalHarness) -> None:
    for key in (b"a", b"b", b"c"):
        harness.append(key, b"1")
    _, done = harness.log.pending.pop()
    done(100)
    assert [harness.journal.offset_of(fact_number) for fact_number in (1, 2, 3)] == [100, 101, 102]


def test_the_settled_callback_runs_once_when_no_append_is_pending(harness: JournalHarness) -> None:
    calls: list[str] = []
    harness.append(b"a", b"1")
    harness.put(b"b", b"2")
    harness.journal.when_settled(lambda: calls.append("settled"))
    harness.log.succeed()
    assert calls == []  # the second fact is not appended yet
    harness.loop.run()
    harness.log.succeed()
    assert calls == ["settled"]
    harness.append(b"c", b"3")
    harness.log.succeed()
    assert calls == ["settled"]
    harness.journal.when_settled(lambda: calls.append("at once"))
    assert calls == ["settled", "at once"]


def test_a_failing_reply_without_a_waiting_request_affects_no_other(harness: JournalHarness) -> None:
    class Broken(Reply):
        def release(self) -> None:
            raise RuntimeError("a defect")

    harness.shard.put(b"a", b"1")
    harness.journal.hold_reply(Broken())
    read = harness.read()
    harness.loop.run()
    harness.log.succeed()
    assert read.error == 0
    assert harness.journal.wake_at == NEVER
    assert ", a reply failed inside the broker: RuntimeError: a defect" in DEFECTS.last
