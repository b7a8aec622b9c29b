"""A defect in an offsets partition: the partition is reloaded from its log once per defect, after an append in flight has ended."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.groups.group_journal import NOT_OURS, SERVING, STALLED_MS, SUSPENDED
from broker.groups.journal import RETRY_MS_MIN
from broker.runtime.clock import Clock
from broker.runtime.contain import DEFECTS
from broker.runtime.turn import NEVER
from protocol.errors import ErrorCode
from simulator.world import MS
from storage import AppendFailed, Fenced
from tests.support.group_logs import SESSION_MS, GroupWorld, make_stable_group
from tests.support.journals import LATE_MS


def raising(*arguments: object) -> None:
    raise ZeroDivisionError("planted")


def check_serves(world: GroupWorld, group: str, offset: int) -> None:
    """A commit is stored once, and answered."""
    held = world.commit(group, offset)
    world.complete_append()
    assert (world.journal.refusal, held.error, world.offset(group)) == (SERVING, ErrorCode.NONE, offset)
    assert (world.log().pending, world.journal.shard.hold.waiting) == ([], 0)


def test_an_append_that_ends_after_a_defect_reloads_the_partition_once(world: GroupWorld) -> None:
    world.commit("g", 8)
    world.journal.handle_defect()
    world.log().succeed()
    assert world.journal.wake_at == NEVER  # no timer for a late append, as none is in flight
    world.loop.run()
    assert (world.journal.refusal, world.offset()) == (SERVING, 8)
    check_serves(world, "g", 9)
    check_serves(world, "h", 10)
    assert world.recorded_notes.changes == [(0, "LOADED"), (0, "RESUMED")]


def test_an_append_failing_after_a_defect_suspends_the_partition(world: GroupWorld) -> None:
    world.commit("g", 8)
    world.journal.handle_defect()
    world.log().refuse()
    world.loop.run()
    assert (world.journal.refusal, world.journal.refusal_reason) == (SUSPENDED, "the disk is full")
    assert world.recorded_notes.changes == [(0, "LOADED"), (0, "SUSPENDED")]
    assert world.journal.wake_at == world.clock.now + RETRY_MS_MIN
    world.loop.pass_ms(RETRY_MS_MIN)
    world.complete_recovery()
    assert (world.journal.refusal, world.offset()) == (SERVING, None)
    check_serves(world, "g", 9)


def test_a_flush_failing_after_a_defect_is_left_to_the_next_append(world: GroupWorld) -> None:
    world.journal.handle_defect()
    world.log().failed(AppendFailed("the flush failed"))
    assert world.journal.refusal_reason == "reloads after a defect"
    world.loop.run()
    assert world.journal.refusal == SERVING
    assert world.recorded_notes.changes == [(0, "LOADED"), (0, "RESUMED")]


def clock_raises(world: GroupWorld, patched: pytest.MonkeyPatch) -> None:
    world.loop.advance((STALLED_MS + 1) / 1000)
    patched.setattr(Clock, "tick", raising)


def write_change_raises(world: GroupWorld, patched: pytest.MonkeyPatch) -> None:
    patched.setattr(world.recorded_notes, "write_change", raising)


@pytest.mark.plain
@pytest.mark.parametrize("broken_before", [False, True])
@pytest.mark.parametrize(
    ("plant", "ends"), [(clock_raises, "well"), (write_change_raises, "badly")], ids=["clock raises", "write_change raises"]
)
def test_a_defect_at_the_end_of_an_append_reloads_the_partition(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch, plant: Callable[[GroupWorld, pytest.MonkeyPatch], None], ends: str, broken_before: bool
) -> None:
    """The partition was serving, or a defect had already made it wait for that append before its reload (`broken_before`)."""
    defects = DEFECTS.count
    held = world.commit("g", 8)
    if broken_before:
        world.journal.handle_defect()
    with monkeypatch.context() as patched:
        plant(world, patched)
        if ends == "well":
            world.log().succeed()
        else:
            world.log().refuse()
    expected_defects = plant is write_change_raises or not broken_before  # after an earlier defect the clock is not read
    assert DEFECTS.count - defects == expected_defects
    assert not expected_defects or ", an append failed inside the broker: ZeroDivisionError: planted" in DEFECTS.last
    assert held.outcomes == [ErrorCode.NOT_COORDINATOR]
    assert world.journal.wake_at == NEVER
    world.loop.run()
    assert (world.journal.refusal, world.offset()) == (SERVING, 8 if ends == "well" else None)
    check_serves(world, "g", 9)


def test_a_defect_in_an_append_reloads_the_partition_and_is_logged(world: GroupWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    defects = DEFECTS.count
    with monkeypatch.context() as patched:
        patched.setattr(type(world.log()), "append", raising)
        held = world.commit("h", 1)
    assert held.error == ErrorCode.NOT_COORDINATOR
    assert DEFECTS.count == defects + 1
    assert ", an append failed inside the broker: ZeroDivisionError: planted" in DEFECTS.last
    assert world.journal.wake_at > world.clock.now + LATE_MS
    world.loop.run()
    assert world.offset("h") is None
    check_serves(world, "g", 9)


@pytest.mark.plain
def test_a_defect_at_a_deadline_is_counted_once_and_later_deadlines_are_met(world: GroupWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    make_stable_group(world)
    defects = DEFECTS.count
    with monkeypatch.context() as patched:
        patched.setattr(world.journal.shard, "advance", raising)
        world.loop.advance(SESSION_MS / 1000)
        world.turn.wake_by(world.loop.world.now // MS)
        world.commit("h", 1)  # in flight
        world.loop.advance((STALLED_MS + 1) / 1000)
        world.loop.pass_ms(0)
    assert DEFECTS.count == defects + 1
    assert ", a deadline failed inside the broker: ZeroDivisionError: planted" in DEFECTS.last
    assert not world.journal.shard.deadlines.extends


def test_repeated_defects_reload_a_partition_after_growing_pauses(world: GroupWorld) -> None:
    """The first reload is immediate. After recent reloads the pause is 250 ms, and doubles each time, up to 15 s."""
    world.fail_step()
    assert world.journal.refusal == SERVING
    for pause in (250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000):
        world.journal.handle_defect()
        world.loop.pass_ms(pause - 1)
        assert world.journal.refusal == SUSPENDED
        world.loop.pass_ms(1)
        assert world.journal.refusal == SERVING
    world.loop.pass_ms(9_999)
    world.journal.handle_defect()
    world.loop.pass_ms(14_999)
    assert world.journal.refusal == SUSPENDED
    world.loop.pass_ms(1)
    assert world.journal.refusal == SERVING
    world.loop.pass_ms(10_000)  # ten seconds without a defect: the next reload is immediate again
    world.fail_step()
    assert world.journal.refusal == SERVING
    world.journal.handle_defect()
    world.loop.pass_ms(250)
    assert world.journal.refusal == SERVING


def test_a_partition_that_waits_for_its_reload_may_be_unloaded(world: GroupWorld) -> None:
    world.fail_step()
    world.fail_step()
    assert world.journal.refusal == SUSPENDED
    unloaded = world.unload_first()
    assert unloaded == [True]
    world.loop.pass_ms(60_000)
    assert (world.journal.refusal, world.store.acquired, world.log().released) == (NOT_OURS, world.store.acquired[:1], 1)


def test_an_unloaded_partition_is_not_reloaded(world: GroupWorld) -> None:
    world.commit("g", 8)
    world.journal.handle_defect()
    world.unload_first()
    world.journal.finish_unload()  # without waiting for the append
    assert world.journal.wake_at == NEVER
    world.load_first()
    late = world.log().pending.pop(0)
    held = world.commit("h", 9)
    world.complete_append()
    assert (world.journal.refusal, held.error) == (SERVING, ErrorCode.NONE)
    late[1](Fenced("another node owns the log"))  # the failure of the append from before the reload
    assert world.journal.refusal == SERVING


def test_an_append_that_fails_after_the_unloading_has_no_effect(world: GroupWorld) -> None:
    world.commit("g", 8)
    world.unload_first()
    world.journal.finish_unload()
    changes = list(world.recorded_notes.changes)
    world.log().refuse()
    assert (world.journal.refusal, world.journal.refusal_reason, world.journal.wake_at) == (NOT_OURS, "", NEVER)
    assert world.recorded_notes.changes == changes
    world.loop.pass_ms(2 * LATE_MS)
    assert world.turn.armed_at == NEVER
