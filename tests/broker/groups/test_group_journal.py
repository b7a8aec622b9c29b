"""One offsets partition: suspended, broken, slow, unloaded."""

from __future__ import annotations

import pytest

from broker.groups.group_journal import LOADING, NOT_OURS, SERVING, STALLED_MS, STOPPED_MS, SUSPENDED, HandOver
from broker.groups.journal import RETRY_MS_MIN
from broker.runtime.turn import NEVER
from protocol.errors import ErrorCode
from storage import AppendFailed, Fenced, LogId, Undecided
from tests.support.group_logs import SESSION_MS, GroupWorld, make_stable_group
from tests.support.journals import LATE_MS


def test_a_failed_append_suspends_the_partition_and_refuses_held_and_parked_requests(world: GroupWorld) -> None:
    member_id = make_stable_group(world)
    parked = world.join("g", instance="j")  # the group waits for its second member
    held = world.commit("h")
    assert (parked.error, held.error) == (None, None)
    world.log().refuse()
    assert held.outcomes == [ErrorCode.NOT_COORDINATOR]
    assert parked.error == ErrorCode.NOT_COORDINATOR
    assert parked.member_id == "j-id-2"
    assert world.journal.refusal == SUSPENDED
    assert world.shards.progress == "partition 0 (the disk is full)"
    assert not world.journal.shard.groups
    assert member_id


def test_a_suspended_partition_serves_again_once_writing_works_with_full_sessions(world: GroupWorld) -> None:
    member_id = make_stable_group(world)
    world.loop.pass_ms(SESSION_MS - 1_000)
    lost = world.commit("h", 1)
    world.log().refuse()
    world.loop.pass_ms(60_000)  # no member expires in the meantime
    assert world.journal.refusal == SUSPENDED
    world.complete_recovery()
    assert (world.journal.refusal, lost.error) == (SERVING, ErrorCode.NOT_COORDINATOR)
    assert world.offset("h") is None
    assert world.commit("h", 2).error is None
    world.log().succeed()
    assert world.offset("h") == 2
    world.loop.pass_ms(SESSION_MS - 200)
    assert world.heartbeat(member_id) == ErrorCode.NONE
    world.loop.pass_ms(SESSION_MS + 200)
    assert world.heartbeat(member_id) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.recorded_notes.changes == [(0, "LOADED"), (0, "SUSPENDED"), (0, "RESUMED")]


@pytest.mark.parametrize(
    ("failure", "code"), [(AppendFailed("full"), 16), (Undecided("nobody knows"), 15), (Fenced("somebody claimed it"), 16)]
)
def test_a_failed_append_is_answered_by_its_kind(world: GroupWorld, failure: AppendFailed, code: int) -> None:
    held = world.commit()
    world.log().pending.pop(0)[1](failure)
    assert held.outcomes == [code]


def test_a_fenced_partition_is_released(world: GroupWorld) -> None:
    world.commit()
    world.log().pending.pop(0)[1](Fenced("somebody claimed it"))
    assert world.journal.refusal == NOT_OURS
    world.loop.pass_ms(60_000)
    assert not world.log().recoveries
    assert world.shards.progress


def test_a_flush_failing_after_the_replies_suspends_the_partition(world: GroupWorld) -> None:
    world.log().failed(AppendFailed("the flush failed"))
    assert world.journal.refusal == SUSPENDED


def test_an_exception_in_a_step_replays_the_shard_at_once(world: GroupWorld) -> None:
    member_id = make_stable_group(world)
    parked = world.join("g", instance="j")
    world.journal.handle_defect()
    assert (world.journal.refusal, world.journal.refusal_reason) == (SUSPENDED, "reloads after a defect")
    assert parked.error == ErrorCode.NOT_COORDINATOR
    world.loop.run()
    assert (world.journal.refusal, world.journal.refusal_reason) == (SERVING, "")
    assert world.heartbeat(member_id) == ErrorCode.NONE


@pytest.mark.usefixtures("planted_defect")
def test_a_failing_reply_replays_the_shard_and_answers_all_waiting_requests(world: GroupWorld) -> None:
    first, second = world.commit("g", 1), world.commit("g", 2)

    def fails() -> None:
        raise ZeroDivisionError

    first.release = fails  # type: ignore[method-assign]
    world.complete_append()
    if second.error is None:
        world.log().succeed()
    assert second.error is not None
    assert world.journal.refusal == SERVING


def test_a_slow_log_expires_no_member_and_then_each_has_one_full_session(world: GroupWorld) -> None:
    member_id = make_stable_group(world)
    world.loop.pass_ms(SESSION_MS - STALLED_MS - 100)
    world.commit("h")
    world.loop.pass_ms(STALLED_MS + 300)  # the session ends while the append is in flight
    assert world.heartbeat(member_id) == ErrorCode.NONE
    world.log().succeed()
    world.loop.pass_ms(SESSION_MS + 200)
    assert world.heartbeat(member_id) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_session_that_ended_while_the_process_was_stopped_is_extended_once(world: GroupWorld) -> None:
    """During the stop the client may have closed its connection; it needs time to connect again."""
    member_id = make_stable_group(world)
    world.loop.advance((SESSION_MS + STOPPED_MS + 100) / 1000)
    world.loop.pass_ms(0)
    world.loop.pass_ms(SESSION_MS - 100)
    assert world.heartbeat(member_id) == ErrorCode.NONE
    world.loop.pass_ms(SESSION_MS + 100)
    assert world.heartbeat(member_id) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_process_that_is_stopped_twice_extends_a_silent_session_once(world: GroupWorld) -> None:
    member_id = make_stable_group(world)
    for _ in range(2):
        world.loop.advance((SESSION_MS + STOPPED_MS + 100) / 1000)
        world.loop.pass_ms(0)
    assert world.heartbeat(member_id) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_timer_that_is_a_little_late_extends_no_session(world: GroupWorld) -> None:
    member_id = make_stable_group(world)
    world.loop.advance((SESSION_MS + STOPPED_MS // 2) / 1000)
    world.loop.pass_ms(0)
    assert world.heartbeat(member_id) == ErrorCode.UNKNOWN_MEMBER_ID


def test_unloading_completes_appends_in_flight_and_refuses_parked_requests(world: GroupWorld) -> None:
    member_id = make_stable_group(world)
    parked = world.join("g", instance="j")
    held = world.commit("h")
    unloaded = world.unload_first()
    assert (world.journal.refusal, unloaded, held.error, parked.error) == (NOT_OURS, [], None, None)
    world.log().succeed()
    assert unloaded == [True]
    assert world.log().released == 1
    assert held.error == ErrorCode.NONE
    assert (parked.error, parked.member_id) == (ErrorCode.NOT_COORDINATOR, "j-id-2")
    world.loop.pass_ms(10 * SESSION_MS)
    assert not world.log().pending  # no timer is left
    assert world.recorded_notes.changes[-1] == (0, "UNLOADED")
    assert member_id


def test_a_stop_of_the_process_supersedes_a_hand_over(world: GroupWorld) -> None:
    make_stable_group(world)
    world.commit("h")
    world.journal.unload(lambda: None, HandOver(2, True))
    world.unload_first()  # the process stops while the append is in flight
    world.log().succeed()
    assert world.recorded_notes.changes[-1] == (0, "UNLOADED")
    assert world.recorded_notes.hand_overs[-1] is None
    world.load_first()
    world.journal.unload(lambda: None, HandOver(2, True))
    assert world.recorded_notes.hand_overs[-1] == HandOver(2, True)


def test_unloading_changes_no_group(world: GroupWorld) -> None:
    member_id = make_stable_group(world)
    before = list(world.log().stored)
    world.unload_first()
    world.loop.run()
    assert world.log().stored == before
    world.shards.load(0)
    assert world.journal.refusal == LOADING
    world.loop.run()
    assert world.journal.refusal == SERVING
    assert world.heartbeat(member_id) == ErrorCode.NONE


def test_a_partition_that_was_unloaded_has_replayed_nothing(world: GroupWorld) -> None:
    """A partition with replayed records gets a note at its unloading: a stop of the broker must not add a second one."""
    make_stable_group(world)
    world.unload_first()
    world.loop.run()
    world.shards.load(0)
    world.loop.run()
    assert world.journal.replayed
    world.unload_first()
    world.loop.run()
    assert not world.journal.replayed


def test_an_append_that_fails_while_unloading_ends_it(world: GroupWorld) -> None:
    held = world.commit()
    unloaded = world.unload_first()
    world.log().refuse()
    assert (unloaded, held.outcomes, world.journal.refusal) == ([True], [ErrorCode.NOT_COORDINATOR], NOT_OURS)
    world.loop.pass_ms(60_000)
    assert not world.log().recoveries


def test_an_unload_that_does_not_wait_for_the_log_answers_held_requests(world: GroupWorld) -> None:
    held = world.commit()
    unloaded = world.unload_first()
    world.journal.finish_unload()
    assert (unloaded, held.outcomes) == ([True], [ErrorCode.NOT_COORDINATOR])
    world.load_first()
    world.log().succeed()  # the append from before the unload must have no effect
    hold = world.journal.shard.hold
    assert (hold.durable, hold.emitted) == (0, 0)


def test_a_suspended_partition_can_be_unloaded_and_loaded(world: GroupWorld) -> None:
    world.commit()
    world.log().refuse()
    unloaded = world.unload_first()
    assert (unloaded, world.journal.refusal) == ([True], NOT_OURS)
    world.load_first()
    assert world.journal.refusal == SERVING
    assert world.commit().error is None
    world.log().succeed()
    assert world.offset() == 7


def test_unloading_after_a_defect_leaves_no_pending_work(world: GroupWorld) -> None:
    world.commit("g", 8)
    world.journal.handle_defect()
    unloaded = world.unload_first()
    assert unloaded == []
    world.log().succeed()
    assert unloaded == [True]
    world.loop.pass_ms(60_000)
    assert (world.journal.refusal, len(world.store.acquired)) == (NOT_OURS, 1)  # the defect from before the unload causes no reload
    world.load_first()
    assert (world.journal.refusal, world.offset()) == (SERVING, 8)


def test_a_partition_that_does_not_serve_has_no_deadlines_of_groups(world: GroupWorld) -> None:
    make_stable_group(world)
    assert world.journal.wake_at < NEVER
    world.journal.refusal = LOADING
    assert world.journal.wake_at == NEVER


def test_notes_leave_when_their_facts_are_durable_with_the_offset_of_the_last(world: GroupWorld) -> None:
    for offset in range(3):
        world.commit("h", offset)  # facts in the log before those of group "g", for other offsets
    waiter = world.join()
    assert world.recorded_notes.notes == []
    world.complete_append()  # the first commit's batch; the next batch has the rest
    assert world.recorded_notes.notes == []
    world.log().succeed()
    assert waiter.error is None
    kinds_and_offsets = [(note.kind.name, offset) for _, note, offset in world.recorded_notes.notes]
    assert kinds_and_offsets[:2] == [("MEMBER_JOIN", 4), ("STATE_CHANGE", 4)]
    world.loop.pass_ms(1)  # the join phase ends, of which nothing is stored, so the note has offset -1
    assert ("STATE_CHANGE", -1) in [(note.kind.name, offset) for _, note, offset in world.recorded_notes.notes[2:]]


def test_a_suspension_drops_notes_of_void_facts(world: GroupWorld) -> None:
    world.join()
    world.log().refuse()
    assert world.recorded_notes.notes == []
    assert world.recorded_notes.changes == [(0, "LOADED"), (0, "SUSPENDED")]


@pytest.mark.parametrize("ends", ["well", "badly"])
def test_an_append_from_before_a_reload_releases_no_later_reply(world: GroupWorld, ends: str) -> None:
    """A node releases a partition without waiting for its slow log, and loads it again before the old append ends."""
    before = world.commit("g")
    unloaded = world.unload_first()
    world.journal.finish_unload()
    assert (unloaded, before.outcomes) == ([True], [ErrorCode.NOT_COORDINATOR])
    world.load_first()
    held = world.commit("h")  # it waits for the same count of facts in the new hold as the old append had in the old one
    assert (len(world.log().pending), held.error) == (2, None)
    if ends == "well":
        world.log().succeed()
    else:
        world.log().refuse()
    world.loop.run()
    assert (held.error, world.journal.refusal) == (None, SERVING)
    world.complete_append()
    assert held.outcomes == [ErrorCode.NONE] or held.error == ErrorCode.NONE


@pytest.mark.parametrize("failure", [None, AppendFailed("still full")])
@pytest.mark.parametrize("loaded", [False, True])
def test_an_append_after_a_log_was_released_has_no_effect(world: GroupWorld, failure: AppendFailed | None, loaded: bool) -> None:
    """The end of an old repair, successful or not, must not touch the partition, which has a new log by then, or none."""
    world.commit()
    world.log().refuse()
    world.loop.pass_ms(RETRY_MS_MIN)
    late = world.log().recoveries.pop()
    world.unload_first()
    del world.store.logs[LogId("__consumer_offsets", 0)]
    if loaded:
        world.load_first()
    refusal, changes = world.journal.refusal, list(world.recorded_notes.changes)
    held = world.commit("h", 3) if loaded else None
    late(failure)
    world.loop.pass_ms(LATE_MS - 1)
    assert (world.journal.refusal, world.recorded_notes.changes) == (refusal, changes)
    assert len(world.store.acquired) == 1 + loaded
    assert held is None or held.error is None
    if held is not None:
        world.log().succeed()
        assert (held.error, world.offset("h")) == (ErrorCode.NONE, 3)


def test_the_unloaded_callback_runs_after_everything_was_released(world: GroupWorld) -> None:
    parked = world.join("g")
    releases: list[object] = []
    world.shards.journals[0].unload(lambda: releases.append((world.journal.owns_log, world.log().released, world.recorded_notes.changes[-1], parked.error)))
    assert releases == []
    world.log().succeed()
    assert releases == [(False, 1, (0, "UNLOADED"), ErrorCode.NOT_COORDINATOR)]
