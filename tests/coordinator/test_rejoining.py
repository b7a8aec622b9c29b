"""Rejoining members: changed subscriptions, notes, and state kept over a rebalance."""

from __future__ import annotations

import pytest

from coordinator.notes import Cause, Removal, Replacement, spend_note_budget
from coordinator.states import State
from protocol.errors import ErrorCode
from protocol.messages.kinds import NoteKind
from tests.coordinator.playbook import T0_T1, Play

pytestmark = pytest.mark.once  # no dependence on the Python version


@pytest.mark.parametrize(("session", "rebalance"), [(30_000, 20_000), (10_000, 40_000), (30_000, 40_000), (10_000, 20_000)])
def test_each_timeout_of_a_member_that_joins_again_counts_from_then_on(play: Play, session: int, rebalance: int) -> None:
    play.two_dynamic()
    play.join("b", session=session, rebalance=rebalance, metadata=T0_T1).expect_parked()
    assert play.phase_left() == rebalance
    play.join("a").expect(generation=2)
    assert (play.session_left("a"), play.session_left("b")) == (10_000, session)


@pytest.mark.plain
def test_a_replaced_parked_join_does_not_complete_the_join_phase(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    play.one_dynamic()
    play.join("a").expect(generation=2)  # the shard now remembers this JoinGroup, so a repeat is passed as the same object
    monkeypatch.setattr(type(play.shard), "remember_repeatable_join", lambda shard, request: False)
    play.join("a", metadata=T0_T1).expect(generation=3)
    monkeypatch.undo()
    play.join("a", protocols=["range"]).expect(generation=4)
    play.sync("a", {"a": 1}).expect(ErrorCode.NONE, 1)
    assert play.group().subscribed == frozenset({"t0"})


def test_a_join_note_says_whether_the_member_leads(play: Play) -> None:
    play.two_dynamic()
    play.join("b", metadata=T0_T1, reason="more topics").expect_parked()
    play.expect_note(NoteKind.MEMBER_JOIN, member_id="b", leader=False, known_id=True, client_reason="more topics")
    play.join("a").expect(generation=2)
    play.expect_note(NoteKind.MEMBER_JOIN, member_id="a", leader=True, known_id=True)
    play.join("c", version=3).expect_parked()
    play.expect_note(NoteKind.MEMBER_JOIN, member_id="c", leader=False, known_id=False)


def test_a_replacement_note_has_the_time_since_the_last_heartbeat(play: Play) -> None:
    play.two_static()
    play.at(1_000).heartbeat("b").expect(ErrorCode.NONE)
    play.at(4_000).join("b'").expect(generation=1)
    play.expect_note(
        NoteKind.STATIC_REPLACED, instance_id="ib", old_id="b", new_id="b'", since_heartbeat_ms=3_000, outcome=Replacement.NO_REBALANCE
    )


def test_notes_beyond_the_limit_are_counted(play: Play) -> None:
    play.two_static()
    while spend_note_budget(play.group(), play.now):
        pass
    before = play.group().notes_dropped
    play.join("b'")
    assert play.group().notes_dropped == before + 1
    play.heartbeat("a")
    assert play.group().notes_dropped == before + 1
    play.join("b'", metadata=T0_T1).expect_parked()
    assert play.group().notes_dropped == before + 3  # the join, and the change of state
    play.join("a").expect(generation=2)
    assert play.group().notes_dropped == before + 5  # the join, and the change of state
    play.sync("a", {"a": 1, "b'": 2}).expect(ErrorCode.NONE)
    assert play.group().notes_dropped == before + 7  # the end of the round, and the change of state
    assert play.notes == []


def test_a_parked_member_may_join_again_where_the_group_is_full(play: Play) -> None:
    play.configure(group_max_size=2)
    first = play.join("a", version=3)
    play.join("b", version=3).expect_parked()
    play.join("a").expect_parked()
    first.expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.group_is(State.PREPARING, members=["a", "b"])


def test_newcomers_of_an_earlier_rebalance_do_not_prolong_the_initial_delay_of_an_emptied_group(play: Play) -> None:
    play.one_dynamic()
    play.join("b", version=3).expect_parked()
    play.join("c", version=3).expect_parked()
    play.leave("a", "b", "c")
    play.group_is(State.EMPTY)
    joined = play.join("d", version=3)
    play.after(3_000)
    joined.expect(generation=3)


def test_after_a_restart_the_other_members_that_have_not_synced_are_still_expected(play: Play) -> None:
    play.three_static(synced=["a"])
    play.join("b'").expect(generation=1)
    play.sync("b'").expect(ErrorCode.NONE, 2)
    play.keep_alive("a", "b'", "c").at(20_000)
    play.group_is(State.PREPARING, members=["a", "b'"])
    play.expect_note(NoteKind.MEMBER_GONE, member_id="c", how=Removal.SYNC_TIMEOUT)
    play.expect_note(NoteKind.STATE_CHANGE, reason=Cause.SYNC_TIMEOUT, member="c")


def test_a_static_member_may_restart_before_the_group_has_a_record(play: Play) -> None:
    play.join("a", instance="ia").expect_parked()
    joined = play.join("a'")
    joined.expect_parked()
    play.after(6_000)
    joined.expect(generation=1, leader="a'", members=["a'"])


def test_the_leader_of_a_group_of_another_type_gets_all_members_in_each_generation(play: Play) -> None:
    play.two_dynamic(type="connect")
    for generation in (2, 3):
        play.join("a").expect_parked()
        play.join("b").expect(generation=generation, members=[])
        play.expect("a", generation=generation, members=["a", "b"])
        play.sync("a", {"a": 1, "b": 2}).expect(ErrorCode.NONE, 1)
        play.sync("b").expect(ErrorCode.NONE, 2)


def test_an_unused_pending_id_does_not_end_the_join_phase(play: Play) -> None:
    play.two_dynamic()
    play.join("p").expect(ErrorCode.MEMBER_ID_REQUIRED)
    play.keep_alive("b")
    parked = play.join("a")
    play.at(10_001)
    parked.expect_parked()
    play.group_is(State.PREPARING, members=["a", "b"], pending=[])
    play.at(20_000)
    parked.expect(generation=2, members=["a"])


def test_a_refused_assignment_leaves_no_old_assignments_in_the_next_group_record(play: Play) -> None:
    play.configure(batch_bytes_max=2_000)
    play.two_dynamic()
    play.join("a").expect_parked()
    play.join("b").expect(generation=2)
    play.sync("a", {"a": b"x" * 2_000}).expect(ErrorCode.UNKNOWN_SERVER_ERROR)
    play.group_is(State.PREPARING)
    play.join("a").expect_parked()
    play.join("b").expect(generation=3)
    play.group_is(State.COMPLETING)
    play.sync("a", {}).expect(ErrorCode.NONE, b"")
    play.group_is(State.STABLE, generation=3)
    play.failover()
    play.sync("b").expect(ErrorCode.NONE, b"")
