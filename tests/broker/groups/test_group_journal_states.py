"""What a partition of groups is before, between and after it serves; and whom it wakes for what."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from broker.groups.group_journal import NO_LOG, NOT_OURS, SERVING, STALLED_MS, SUSPENDED
from broker.groups.journal import RETRY_MS_MIN
from broker.runtime.turn import NEVER
from coordinator import JoinRequest, Leaver
from protocol.errors import ErrorCode
from storage import AppendFailed, Fenced, LogId, Unreadable
from tests.support.group_logs import SESSION_MS, Waiter, World, settled


@pytest.fixture
def world() -> World:
    return World()


class Touched:
    """What a turn is asked for."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.touches = 0
        self.wakes: list[int] = []
        monkeypatch.setattr(world.turn, "schedule_append", self._touch)
        monkeypatch.setattr(world.turn, "wake_by", self.wakes.append)

    def _touch(self, journal: object) -> None:
        self.touches += 1


def test_a_partition_without_a_log_refuses_whatever_a_log_is_asked() -> None:
    heard: list[Any] = []
    assert (NO_LOG.usable(), list(NO_LOG.replay())) == (False, [])
    assert NO_LOG.epoch < 0
    NO_LOG.append(b"", 1, heard.append)
    NO_LOG.recover(heard.append)
    assert [type(one) for one in heard] == [Fenced, Fenced]
    assert [str(one) for one in heard] == ["this partition is not ours"] * 2


def test_before_it_is_loaded_a_partition_is_not_ours_and_knows_of_no_trouble() -> None:
    journal = World(load=False).journal
    assert (journal.refusal, journal.trouble, journal.epoch) == (NOT_OURS, "", NO_LOG.epoch)
    assert (journal.replayed, journal.offsets, journal.load_ms, journal.defective) == (0, 0, 0, False)
    assert journal.wake_at == NEVER


def test_a_reply_may_be_returned_where_nothing_is_on_its_way_and_nobody_waits(world: World) -> None:
    journal = world.journal
    assert journal.direct
    first, second = world.commit("g", 1), world.commit("g", 2)
    assert not journal.direct
    world.log().succeed()
    world.loop.run()
    assert (first.error, second.error) == (0, None)
    assert not journal.direct
    world.log().succeed()
    world.loop.run()
    assert second.error == 0
    assert journal.direct
    journal.shard.hold.held.append((journal.shard.hold.emitted, first))  # a reply that waits though everything is durable
    assert not journal.direct
    journal.shard.hold.held.clear()
    journal.shard.hold.emit([(b"key", b"value")])  # a fact that no reply waits for, as of a deadline
    assert not journal.direct


def test_a_turn_is_touched_for_facts_that_no_append_has_taken_and_only_where_none_is_on_its_way(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = world.journal
    world.commit("g", 1)  # is on its way
    touched = Touched(world, monkeypatch)
    journal.stepped()
    journal.reply(world_waiter())
    assert touched.touches == 0
    journal.shard.hold.emit([(b"key", b"value")])
    journal.stepped()
    journal.reply(world_waiter())
    assert touched.touches == 0  # the append that is on its way sees to them when it ends
    monkeypatch.undo()
    world.log().succeed()
    world.loop.run()
    world.log().succeed()
    world.loop.run()
    touched = Touched(world, monkeypatch)
    journal.stepped()
    journal.reply(world_waiter())
    assert touched.touches == 0
    journal.shard.hold.emit([(b"key", b"value")])
    journal.stepped()
    assert touched.touches == 1
    journal.reply(world_waiter())
    assert touched.touches == 2


def world_waiter() -> Any:
    class Waiter:
        def release(self) -> None: ...

        def fail(self, error: int) -> None: ...

    return Waiter()


def test_a_turn_is_woken_for_a_deadline_that_is_earlier_than_it_would_wake_and_for_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(world)
    journal = world.journal
    touched = Touched(world, monkeypatch)
    for armed_at, wakes in ((journal.shard.wake_at, []), (journal.shard.wake_at - 1, []), (journal.shard.wake_at + 1, [journal.shard.wake_at])):
        world.turn.armed_at = armed_at
        touched.wakes.clear()
        journal.stepped()
        assert touched.wakes == wakes


def test_a_defect_has_words_for_people_until_the_partition_serves_again(world: World) -> None:
    settled(world)
    world.journal.broken()
    assert world.journal.trouble == "begins anew after a defect"
    assert world.journal.refusal
    world.loop.run()
    assert (world.journal.refusal, world.journal.trouble) == (SERVING, "")


def test_a_defect_of_a_partition_that_does_not_serve_changes_nothing(world: World) -> None:
    world.commit()
    world.log().refuse()
    assert world.journal.refusal == SUSPENDED
    trouble = world.journal.trouble
    world.journal.broken()
    assert (world.journal.refusal, world.journal.trouble) == (SUSPENDED, trouble)
    world.log().recoveries.clear()
    world.journal.refusal = NOT_OURS
    world.journal.broken()
    assert world.journal.refusal == NOT_OURS


def test_an_exception_in_an_append_replays_the_partition_and_it_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    member = settled(world)
    log = world.log()
    with monkeypatch.context() as patched:
        patched.setattr(type(log), "append", _broken)
        held = world.commit("h", 1)
    assert held.error == ErrorCode.NOT_COORDINATOR
    world.loop.run()
    assert world.journal.refusal == SERVING
    assert world.offset("h") is None
    assert world.journal.shard.heartbeat("g", 1, member, "i", world.clock.tick()) in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)
    again = world.commit("h", 2)
    world.log().succeed()
    world.loop.run()
    assert again.error == ErrorCode.NONE


def _broken(*arguments: object) -> None:
    raise RuntimeError("a defect")


def test_a_failure_of_a_partition_that_is_suspended_already_is_not_told_twice(world: World) -> None:
    world.commit()
    world.log().refuse()
    before = list(world.told.changes)
    world.journal.failed(AppendFailed("once more"))
    assert world.told.changes == before
    assert "once more" not in world.journal.trouble


@pytest.mark.parametrize(("waited", "spared"), [(100, False), (101, True)])
def test_an_append_is_slow_from_more_than_so_many_milliseconds_on(world: World, waited: int, spared: bool) -> None:
    """Of a member that falls due while it is under way."""
    member = settled(world)
    group = world.journal.shard.groups["g"]
    world.loop.pass_ms(group.members[member].deadline - waited - world.clock.tick())
    world.commit("h")  # stays under way
    world.journal.advance(world.clock.tick())
    world.loop.advance(waited / 1000)
    world.journal.advance(world.clock.tick())
    assert (member in group.members) == spared
    assert not world.journal.shard.stalled


@pytest.mark.parametrize(("waited", "spared"), [(100, False), (101, True)])
def test_an_append_that_ends_slowly_spares_who_fell_due_from_as_many_milliseconds_on(world: World, waited: int, spared: bool) -> None:
    member = settled(world)
    group = world.journal.shard.groups["g"]
    world.loop.pass_ms(group.members[member].deadline - waited - world.clock.tick())
    world.commit("h")
    world.loop.advance(waited / 1000)
    world.log().succeed()
    world.journal.advance(world.clock.tick())
    assert (member in group.members) == spared


def test_an_append_that_ended_at_once_spares_nobody_however_long_it_took(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop stood still: what clients sent meanwhile is read before members are expired (`turn.py`)."""
    member = settled(world)
    group = world.journal.shard.groups["g"]
    world.loop.pass_ms(group.members[member].deadline - world.clock.tick() - 10)

    def slow(batch: bytes, records: int, done: Any) -> None:
        world.loop.advance((STALLED_MS + 100) / 1000)
        done(7)

    monkeypatch.setattr(world.log(), "append", slow)
    world.commit("h")
    world.loop.pass_ms(0)
    assert member not in group.members


def test_what_a_partition_was_loaded_from_is_counted_anew_each_time(world: World) -> None:
    world.slice_seconds = 0.003
    for offset in (1, 2):
        world.commit("g", offset)
        world.log().succeed()
    for _ in range(2):
        world.shards.journals[0].unload(lambda: None)
        assert (world.journal.owned, world.journal.epoch) == (False, NO_LOG.epoch)
        world.shards.load(0)
        world.loop.run()
        assert (world.journal.owned, world.journal.epoch) == (True, world.log().epoch)
        assert (world.journal.replayed, world.journal.offsets) == (2, 1)
    assert world.journal.load_ms >= 6
    assert len(world.store.acquired) == 3  # the log is acquired anew by each life


def test_what_troubled_a_partition_is_not_told_of_it_any_more_once_it_is_given_up(world: World) -> None:
    world.commit()
    world.log().refuse()
    assert world.shards.progress == "partition 0 (the disk is full)"
    world.shards.journals[0].unload(lambda: None)
    assert world.shards.progress == "1 of 1 partitions are not served here"
    world.store.results[LogId("__consumer_offsets", 0)] = Unreadable("Input/output error", False)
    world.shards.load(0)
    world.loop.run()
    assert world.shards.progress == "partition 0 (cannot be read: Input/output error)"
    world.store.waiting = True
    world.shards.load(0)
    assert world.shards.progress == "0 of 1 partitions loaded"


def test_after_a_suspension_the_pauses_are_short_again(world: World) -> None:
    for _ in range(2):
        world.commit()
        world.log().refuse()
        for pause in (250, 500):
            world.loop.pass_ms(pause - 1)
            assert not world.log().recoveries
            world.loop.pass_ms(1)
            if pause == 250:
                world.log().recoveries.pop()(AppendFailed("still full"))
        world.log().recoveries.pop()(None)
        world.loop.run()
        assert world.journal.refusal == SERVING


def test_only_a_log_that_was_suspended_is_said_to_serve_again(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    said = "log serves again"
    assert said not in capsys.readouterr().out
    world.journal.broken()
    world.loop.run()
    assert said not in capsys.readouterr().out
    world.commit()
    world.log().refuse()
    world.loop.pass_ms(RETRY_MS_MIN)
    world.log().recoveries.pop()(None)
    world.loop.run()
    assert capsys.readouterr().out.count(said) == 1


@pytest.mark.plain
def test_a_partition_that_does_not_serve_advances_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    settled(world)
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


def test_who_asks_for_it_hears_that_a_partition_serves_before_anybody_is_answered(world: World) -> None:
    heard: list[tuple[int, int, list[tuple[int, str]]]] = []
    world.journal.served = lambda journal: heard.append((journal.partition, journal.refusal, list(world.told.changes)))
    world.journal.broken()
    assert heard == []
    world.loop.run()
    assert heard == [(0, SERVING, [(0, "LOADED"), (0, "RESUMED")])]


def test_what_a_step_of_the_shard_emits_is_appended_and_its_deadline_is_kept(world: World) -> None:
    """Of a call that answers at once, and of one that may park its request."""
    member = settled(world)
    journal, clock = world.journal, world.clock
    before = len(world.log().stored)
    world.turn.armed_at = NEVER
    assert journal.call(journal.shard.leave, "g", [Leaver(member, "i", None)], clock.tick(), clock.wall) == [0]
    assert world.turn.armed_at <= journal.shard.wake_at
    world.loop.run()
    world.log().succeed()
    assert len(world.log().stored) == before + 1
    world.turn.armed_at = NEVER
    asked = JoinRequest("h", "", None, "consumer", (("range", b""),), SESSION_MS, SESSION_MS, "client", "/here")
    parked = Parked()
    journal.park(journal.shard.join, asked, parked, clock.tick(), clock.wall)
    assert world.turn.armed_at <= journal.shard.wake_at < NEVER
    world.loop.run()
    world.log().succeed()
    assert (len(world.log().stored), parked.voided) == (before + 2, 0)


class Parked(Waiter):
    """A request that may have to wait for its reply."""

    def __init__(self) -> None:
        super().__init__()
        self.voided = 0

    def void(self) -> None:
        self.voided += 1


@pytest.mark.parametrize("parks", [False, True])
def test_a_step_that_ends_in_a_defect_is_its_callers_to_answer_and_the_partition_begins_anew(world: World, parks: bool) -> None:
    parked = Parked()
    step = partial(world.journal.park, _broken, None, parked, 0, 0) if parks else partial(world.journal.call, _broken)
    with pytest.raises(RuntimeError, match="a defect"):
        step()
    assert (world.journal.refusal, parked.voided, parked.heard) == (SUSPENDED, parks, [])
    world.loop.run()
    assert world.journal.refusal == SERVING
