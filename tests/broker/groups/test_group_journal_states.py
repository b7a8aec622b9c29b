"""States of an offsets partition before, between and after serving, and the turn it schedules."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from broker.groups.group_journal import NOT_OURS, SERVING, STALLED_MS, SUSPENDED
from broker.groups.journal import NO_LOG, RETRY_MS_MIN
from broker.runtime.turn import NEVER
from coordinator import JoinRequest, Leaver
from storage import AppendFailed, Fenced, LogId, Unreadable
from tests.coordinator.requests import DroppedReply
from tests.support.group_logs import SESSION_MS, GroupWorld, Waiter, make_stable_group


class ScheduledCalls:
    """Records the calls of the journal to its turn."""

    def __init__(self, world: GroupWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        self.turn_ends = 0
        self.wakes: list[int] = []
        monkeypatch.setattr(world.turn, "call_first_at_turn_end", self._count_turn_end)
        monkeypatch.setattr(world.turn, "wake_by", self.wakes.append)

    def _count_turn_end(self, journal: object) -> None:
        self.turn_ends += 1


def test_a_partition_without_a_log_refuses_every_operation_of_a_log() -> None:
    failures: list[Any] = []
    assert (NO_LOG.usable(), list(NO_LOG.replay())) == (False, [])
    assert NO_LOG.epoch < 0
    NO_LOG.append(b"", 1, failures.append)
    NO_LOG.recover(failures.append)
    assert [type(failure) for failure in failures] == [Fenced, Fenced]
    assert [str(failure) for failure in failures] == ["this node does not own the partition"] * 2


def test_an_unloaded_partition_is_not_served_and_reports_no_problem() -> None:
    journal = GroupWorld(load=False).journal
    assert (journal.refusal, journal.refusal_reason, journal.epoch) == (NOT_OURS, "", NO_LOG.epoch)
    assert (journal.replayed, journal.offsets, journal.load_ms, journal.defective) == (0, 0, 0, False)
    assert journal.wake_at == NEVER


def test_a_reply_may_be_returned_if_no_append_and_no_reply_is_pending(world: GroupWorld) -> None:
    journal = world.journal
    assert journal.answers_at_once
    first, second = world.commit("g", 1), world.commit("g", 2)
    assert not journal.answers_at_once
    world.complete_append()
    assert (first.error, second.error) == (0, None)
    assert not journal.answers_at_once
    world.complete_append()
    assert second.error == 0
    assert journal.answers_at_once
    journal.shard.hold.held.append((journal.shard.hold.emitted, first))  # a held reply though everything is durable
    assert not journal.answers_at_once
    journal.shard.hold.held.clear()
    journal.shard.hold.emit([(b"key", b"value")])  # a fact without a held reply, as from a deadline
    assert not journal.answers_at_once


@pytest.mark.plain
def test_the_end_of_the_turn_is_scheduled_only_for_facts_without_an_append_in_flight(world: GroupWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = world.journal
    world.commit("g", 1)  # is in flight
    scheduled = ScheduledCalls(world, monkeypatch)
    journal.schedule_after_step()
    journal.hold_reply(DroppedReply())
    assert scheduled.turn_ends == 0
    journal.shard.hold.emit([(b"key", b"value")])
    journal.schedule_after_step()
    journal.hold_reply(DroppedReply())
    assert scheduled.turn_ends == 0  # the end of the append in flight schedules the next append
    monkeypatch.undo()
    world.complete_append()
    world.complete_append()
    scheduled = ScheduledCalls(world, monkeypatch)
    journal.schedule_after_step()
    journal.hold_reply(DroppedReply())
    assert scheduled.turn_ends == 0
    journal.shard.hold.emit([(b"key", b"value")])
    journal.schedule_after_step()
    assert scheduled.turn_ends == 1
    journal.hold_reply(DroppedReply())
    assert scheduled.turn_ends == 2


@pytest.mark.plain
def test_the_turn_is_woken_only_for_an_earlier_deadline(world: GroupWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    make_stable_group(world)
    journal = world.journal
    scheduled = ScheduledCalls(world, monkeypatch)
    for armed_at, wakes in ((journal.shard.wake_at, []), (journal.shard.wake_at - 1, []), (journal.shard.wake_at + 1, [journal.shard.wake_at])):
        world.turn.armed_at = armed_at
        scheduled.wakes.clear()
        journal.schedule_after_step()
        assert scheduled.wakes == wakes


def test_a_defect_of_a_partition_that_does_not_serve_changes_nothing(world: GroupWorld) -> None:
    world.commit()
    world.log().refuse()
    assert world.journal.refusal == SUSPENDED
    reason = world.journal.refusal_reason
    world.journal.handle_defect()
    assert (world.journal.refusal, world.journal.refusal_reason) == (SUSPENDED, reason)
    world.log().recoveries.clear()
    world.journal.refusal = NOT_OURS
    world.journal.handle_defect()
    assert world.journal.refusal == NOT_OURS


def _broken(*arguments: object) -> None:
    raise RuntimeError("a defect")


def test_a_failure_of_a_suspended_partition_is_logged_once(world: GroupWorld) -> None:
    world.commit()
    world.log().refuse()
    before = list(world.recorded_notes.changes)
    world.journal.failed(AppendFailed("once more"))
    assert world.recorded_notes.changes == before
    assert "once more" not in world.journal.refusal_reason


@pytest.mark.parametrize(("waited", "spared"), [(100, False), (101, True)])
@pytest.mark.parametrize("ends", [False, True])
def test_an_append_above_a_limit_counts_as_slow_and_extends_a_session(world: GroupWorld, waited: int, spared: bool, ends: bool) -> None:
    """The session ends while the append is in flight. `ends`: the append ends before the deadline is checked."""
    member = make_stable_group(world)
    group = world.journal.shard.groups["g"]
    world.loop.pass_ms(group.members[member].deadline - waited - world.clock.tick())
    world.commit("h")
    if not ends:
        world.journal.advance(world.clock.tick())
    world.loop.advance(waited / 1000)
    if ends:
        world.log().succeed()
    world.journal.advance(world.clock.tick())
    assert (member in group.members) == spared
    assert ends or not world.journal.shard.deadlines.extends


def test_an_append_that_ends_at_once_extends_no_session(world: GroupWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The append itself blocks the event loop, and is done when it returns. So no append is in flight when the deadline is handled; for a
    blocked loop `turn.py` reads requests before members expire.
    """
    member = make_stable_group(world)
    group = world.journal.shard.groups["g"]
    world.loop.pass_ms(group.members[member].deadline - world.clock.tick() - 10)

    def slow(batch: bytes, records: int, done: Any) -> None:
        world.loop.advance((STALLED_MS + 100) / 1000)
        done(7)

    monkeypatch.setattr(world.log(), "append", slow)
    world.commit("h")
    world.loop.pass_ms(0)
    assert member not in group.members


def test_each_load_of_a_partition_counts_its_records(world: GroupWorld) -> None:
    world.slice_seconds = 0.003
    for offset in (1, 2):
        world.commit("g", offset)
        world.log().succeed()
    for _ in range(2):
        world.unload_first()
        assert (world.journal.owns_log, world.journal.epoch) == (False, NO_LOG.epoch)
        world.load_first()
        assert (world.journal.owns_log, world.journal.epoch) == (True, world.log().epoch)
        assert (world.journal.replayed, world.journal.offsets) == (2, 1)
    assert world.journal.load_ms >= 6
    assert len(world.store.acquired) == 3  # each load acquires the log anew


def test_the_reason_of_an_unloaded_partition_is_not_reported(world: GroupWorld) -> None:
    world.commit()
    world.log().refuse()
    assert world.shards.progress == "partition 0 (the disk is full)"
    world.unload_first()
    assert world.shards.progress == "1 of 1 partitions are not served here"
    world.store.results[LogId("__consumer_offsets", 0)] = Unreadable("Input/output error", False)
    world.load_first()
    assert world.shards.progress == "partition 0 (cannot be read: Input/output error)"
    world.store.waiting = True
    world.shards.load(0)
    assert world.shards.progress == "0 of 1 partitions loaded"


def test_only_a_suspended_log_is_reported_to_serve_again(world: GroupWorld, capsys: pytest.CaptureFixture[str]) -> None:
    line = "log serves again"
    assert line not in capsys.readouterr().out
    world.fail_step()
    assert line not in capsys.readouterr().out
    world.commit()
    world.log().refuse()
    world.loop.pass_ms(RETRY_MS_MIN)
    world.complete_recovery()
    assert world.journal.refusal == SERVING  # without a further pause, though there was a defect during the suspension
    assert capsys.readouterr().out.count(line) == 1


@pytest.mark.plain
def test_a_partition_that_does_not_serve_advances_nothing(world: GroupWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    make_stable_group(world)
    advanced: list[int] = []
    monkeypatch.setattr(world.journal.shard, "advance", lambda now, *wall: advanced.append(now))
    now = world.clock.tick() + 2 * SESSION_MS
    world.journal.refusal = SUSPENDED
    world.journal.advance(now)
    assert advanced == []
    world.journal.refusal = SERVING
    world.journal.advance(world.journal.shard.wake_at - 1)
    assert advanced == []
    world.journal.advance(world.journal.shard.wake_at)
    assert len(advanced) == 1


def test_the_serving_callback_runs_before_any_reply_of_the_partition(world: GroupWorld) -> None:
    calls: list[tuple[int, int, list[tuple[int, str]]]] = []
    world.journal.on_serving = lambda journal: calls.append((journal.partition, journal.refusal, list(world.recorded_notes.changes)))
    world.journal.handle_defect()
    assert calls == []
    world.loop.run()
    assert calls == [(0, SERVING, [(0, "LOADED"), (0, "RESUMED")])]


def test_a_shard_steps_facts_are_appended_and_its_deadline_is_scheduled(world: GroupWorld) -> None:
    """Both `call`, for requests that are answered at once, and `park`, for those whose reply may be parked, schedule the append."""
    member = make_stable_group(world)
    journal, clock = world.journal, world.clock
    before = len(world.log().stored)
    world.turn.armed_at = NEVER
    assert journal.call(journal.shard.leave, "g", [Leaver(member, "i", None)], clock.tick(), clock.wall) == [0]
    assert world.turn.armed_at <= journal.shard.wake_at
    world.loop.run()
    world.log().succeed()
    assert len(world.log().stored) == before + 1
    world.turn.armed_at = NEVER
    join = JoinRequest("h", "", None, "consumer", (("range", b""),), SESSION_MS, SESSION_MS, "client", "/here")
    parked = Parked()
    journal.park(journal.shard.join, join, parked, clock.tick(), clock.wall)
    assert world.turn.armed_at <= journal.shard.wake_at < NEVER
    world.loop.run()
    world.log().succeed()
    assert (len(world.log().stored), parked.voided) == (before + 2, 0)


class Parked(Waiter):
    """A request whose reply may be parked."""

    def __init__(self) -> None:
        super().__init__()
        self.voided = 0

    def discard(self) -> None:
        self.voided += 1


@pytest.mark.parametrize("parks", [False, True])
def test_a_step_that_fails_is_answered_by_its_caller_and_the_partition_is_reloaded(world: GroupWorld, parks: bool) -> None:
    parked = Parked()
    step = partial(world.journal.park, _broken, None, parked, 0, 0) if parks else partial(world.journal.call, _broken)
    with pytest.raises(RuntimeError, match="a defect"):
        step()
    assert (world.journal.refusal, parked.voided, parked.outcomes) == (SUSPENDED, parks, [])
    world.loop.run()
    assert world.journal.refusal == SERVING
