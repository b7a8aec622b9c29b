"""Catalogue, section 6: the join phase of a rebalance."""

from __future__ import annotations

import pytest

from coordinator.notes import Cause, Removal, RoundResult
from coordinator.states import State
from protocol.errors import ErrorCode
from protocol.messages.coordinator_notes import MemberJoin, RoundEnd
from protocol.messages.kinds import NoteKind
from tests.coordinator.playbook import T0_T1, Play, scenario

pytestmark = pytest.mark.once  # no dependence on the Python version


@scenario("RB-01")
def test_a_dynamic_member_that_does_not_rejoin_is_removed_at_the_end_of_the_join_phase(play: Play) -> None:
    play.two_dynamic()
    b = play.join("b", metadata=T0_T1).expect_parked()
    assert play.phase_left() == 20_000
    play.keep_alive("a").at(19_999)
    b.expect_parked()
    play.heartbeat("a", 1).expect(ErrorCode.REBALANCE_IN_PROGRESS)
    play.at(20_000)
    b.expect(generation=2, leader="b", members=["b"], at=20_000)
    play.heartbeat("a", 1).expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.expect_note(NoteKind.MEMBER_GONE, member_id="a", how=Removal.REBALANCE_TIMEOUT)
    play.expect_records()


def absent_leader(play: Play) -> Play:
    """RB-02: static a has not rejoined in time; b leads generation 2."""
    play.two_static()
    b = play.join("b", metadata=T0_T1)
    play.keep_alive("a").at(20_000)
    b.expect(generation=2, leader="b", members=["a", "b"], at=20_000)
    return play


@scenario("RB-02")
def test_a_static_member_that_does_not_rejoin_stays(play: Play) -> None:
    absent_leader(play)
    play.group_is(State.COMPLETING, generation=2, leader="b", members=["a", "b"])
    play.sync("b", {"a": 7, "b": 8}).expect(assignment=8)
    assert [member.assignment for member in play.expect_group_record("assignments").members] == [b"\7", b"\10"]


def test_the_leader_stays_when_a_follower_leaves(play: Play) -> None:
    play.three_static()
    b = play.join("b", metadata=T0_T1)
    play.join("c").expect_parked()
    play.keep_alive("a").at(20_000)
    b.expect(generation=2, leader="b", members=["a", "b", "c"])
    play.sync("b", {"a": 1, "b": 2, "c": 3})
    play.leave("c")
    play.group_is(State.PREPARING, leader="b", members=["a", "b"])
    play.join("a")
    play.join("b").expect(generation=3, leader="b", members=["a", "b"])


def test_only_the_first_join_phase_of_a_group_is_extended(play: Play) -> None:
    """The first phase ends early, as the last pending member id expires. The rest of its time is not added to the next phase."""
    play.join("p", session=6_000, rebalance=60_000).expect(ErrorCode.MEMBER_ID_REQUIRED)
    play.at(100).join("a", version=3, rebalance=60_000)
    b = play.at(2_900).join("b", version=3, rebalance=60_000)
    play.at(5_000).join("c", version=3, rebalance=60_000)
    play.at(6_000)
    b.expect(generation=1, at=6_000)
    play.sync("a", {"a": 1, "b": 2, "c": 3})
    play.sync("b")
    play.sync("c")
    rejoined = play.join("b", metadata=T0_T1).expect_parked()
    play.join("a").expect_parked()
    play.keep_alive("a", "b", "c").at(66_000)
    rejoined.expect(generation=2, at=66_000)
    play.group_is(State.COMPLETING, members=["a", "b"])


@scenario("RB-03")
def test_a_static_member_that_missed_the_join_phase_can_rejoin_its_generation(play: Play) -> None:
    absent_leader(play)
    play.sync("b", {"a": 7, "b": 8})
    play.heartbeat("a", 1).expect(ErrorCode.ILLEGAL_GENERATION)
    play.join("a").expect(generation=2, leader="b", members=[], at=20_000)
    play.sync("a", generation=2).expect(assignment=7)
    play.keep_alive("b").at(60_000).group_is(State.STABLE, generation=2, members=["a", "b"])


@scenario("RB-04")
def test_static_members_that_are_silent_expire_while_others_wait_for_them(play: Play) -> None:
    play.two_static()
    c = play.join("c", instance="ic")
    play.at(30_000)
    c.expect(generation=2, leader="c", members=["c"], at=10_000)


@scenario("RB-05")
def test_at_the_end_of_the_join_phase_static_members_stay_and_dynamic_ones_go(play: Play) -> None:
    play.settled("a", "d", static={"a"}, rebalance=5_000)
    c = play.join("c", instance="ic", rebalance=5_000)
    play.keep_alive("a", "d").at(5_000)
    c.expect(generation=2, leader="c", members=["a", "c"], at=5_000)


@scenario("RB-06")
def test_the_join_phase_lasts_as_long_as_the_longest_rebalance_timeout_when_it_begins(play: Play) -> None:
    play.two_dynamic(rebalance={"a": 5_000, "b": 9_000})
    play.join("c", rebalance=7_000, version=3)
    assert play.phase_left() == 9_000
    play.after(1_000).join("d", rebalance=60_000, version=3)
    assert play.phase_left() == 8_000


@scenario("RB-07")
def test_a_newcomers_rebalance_timeout_counts_for_the_rebalance_it_begins(play: Play) -> None:
    play.one_dynamic(rebalance=5_000)
    play.join("b", rebalance=7_000, version=3)
    assert play.phase_left() == 7_000


@scenario("RB-08")
def test_if_no_static_member_rejoins_they_have_until_their_sessions_end(play: Play) -> None:
    play.three_static(rebalance=5_000, session=12_000)
    play.leave("c")
    play.at(5_000).group_is(State.PREPARING, generation=1, members=["a", "b"])
    assert play.phase_left() == 5_000
    play.at(10_000).group_is(State.PREPARING, generation=1, members=["a", "b"])
    play.at(11_999).expect_records()
    play.at(12_000).group_is(State.EMPTY, generation=2)
    play.expect_records("empty group")
    play.expect_note(NoteKind.ROUND_END, result=RoundResult.EMPTY)


@scenario("RB-09")
def test_the_join_phase_waits_for_a_pending_id_until_it_expires(play: Play) -> None:
    play.one_dynamic(rebalance=30_000)
    play.join("p", session=6_000).expect(ErrorCode.MEMBER_ID_REQUIRED)
    a = play.join("a").expect_parked()
    play.at(30_000)
    a.expect(generation=2, members=["a"], at=6_000)


@scenario("RB-10")
def test_a_pending_id_does_not_extend_the_join_phase_past_its_timeout(play: Play) -> None:
    play.one_dynamic(rebalance=3_000)
    play.join("p", session=6_000)
    a = play.join("a").expect_parked()
    play.at(3_000)
    a.expect(generation=2, members=["a"], at=3_000)
    play.group_is(State.COMPLETING, pending=["p"])
    play.join("p").expect_parked()
    play.group_is(State.PREPARING, generation=2, pending=[])


@scenario("RB-11")
def test_a_silent_member_that_expires_ends_the_join_phase_early(play: Play) -> None:
    play.two_dynamic(session=6_000)
    a = play.join("a")
    play.at(30_000)
    a.expect(generation=2, members=["a"], at=6_000)


@scenario("RB-12")
@pytest.mark.parametrize("by", ["heartbeats", "commits"])
def test_the_join_phase_waits_to_its_end_for_a_member_that_sends_heartbeats_or_commits(play: Play, by: str) -> None:
    play.two_dynamic(session=6_000)
    a = play.join("a")
    for ms in range(3_000, 20_000, 3_000):
        play.at(ms)
        if by == "heartbeats":
            play.heartbeat("b", 1).expect(ErrorCode.REBALANCE_IN_PROGRESS)
        else:
            play.commit("b", generation=1).expect()
        a.expect_parked()
    play.at(20_000)
    a.expect(generation=2, members=["a"], at=20_000)


@scenario("RB-13")
def test_the_join_phase_ends_when_the_last_missing_member_leaves(play: Play) -> None:
    play.two_dynamic()
    b = play.join("b", metadata=T0_T1)
    play.leave("a").expect()
    b.expect(generation=2, leader="b", members=["b"], at=0)


@scenario("RB-14")
def test_a_member_that_leaves_while_it_is_parked_is_answered(play: Play) -> None:
    play.two_dynamic()
    b = play.join("b", metadata=T0_T1)
    play.leave("b").expect()
    b.expect(ErrorCode.UNKNOWN_MEMBER_ID, id="")
    play.join("a").expect(generation=2, members=["a"])


@scenario("RB-15")
def test_the_join_phase_ends_when_the_last_awaited_pending_id_leaves(play: Play) -> None:
    play.one_dynamic()
    play.join("p")
    play.join("q")
    q = play.join("q").expect_parked()
    a = play.join("a").expect_parked()
    play.leave("p").expect()
    a.expect(generation=2, members=["a", "q"])
    q.expect(generation=2)


@scenario("RB-16")
def test_a_group_with_only_a_pending_id_left_becomes_empty_at_once(play: Play) -> None:
    play.one_dynamic()
    play.join("p", session=30_000)
    play.leave("a").expect()
    play.group_is(State.PREPARING, generation=1, members=[], pending=["p"])
    play.after(0).group_is(State.EMPTY, generation=2, pending=["p"])
    play.expect_records("empty group")
    p = play.join("p").expect_parked()
    play.at(3_000)
    p.expect(generation=3, members=["p"], at=3_000)


@scenario("RB-17")
def test_a_parked_newcomer_is_removed_after_five_minutes(play: Play) -> None:
    play.one_dynamic(rebalance=600_000, session=600_000)
    b = play.join("b", version=3)
    play.keep_alive("a").at(299_999)
    b.expect_parked()
    play.at(300_000)
    b.expect(ErrorCode.UNKNOWN_MEMBER_ID, id="", at=300_000)
    play.join("a").expect(generation=2, members=["a"])
    play.expect_note(NoteKind.MEMBER_GONE, member_id="b", how=Removal.EXPIRED)


@scenario("RB-18")
def test_a_parked_member_may_heartbeat(play: Play) -> None:
    play.leader_rejoins()
    play.after(4_000).heartbeat("a", 1).expect(ErrorCode.REBALANCE_IN_PROGRESS)
    assert play.session_left("a") == 10_000


@scenario("RB-19")
def test_a_parked_member_does_not_expire(play: Play) -> None:
    a = play.leader_rejoins()
    play.keep_alive("b").at(15_000)
    a.expect_parked()
    assert play.session_left("a") is None
    play.join("b").expect(generation=2)
    a.expect(generation=2, members=["a", "b"])
    assert (play.session_left("a"), play.session_left("b")) == (10_000, 10_000)


@scenario("RB-20")
def test_a_dynamic_member_that_restarts_leaves_a_ghost_until_its_session_ends(play: Play) -> None:
    play.two_dynamic()
    play.join("b2").expect(ErrorCode.MEMBER_ID_REQUIRED)
    b2 = play.join("b2").expect_parked()
    a = play.join("a").expect_parked()
    play.at(30_000)
    a.expect(generation=2, members=["a", "b2"], at=10_000)
    b2.expect(generation=2, at=10_000)
    play.expect_note(NoteKind.MEMBER_GONE, member_id="b", how=Removal.EXPIRED)


@scenario("RB-21")
@pytest.mark.parametrize("rebalance", [0, -1])
def test_without_a_rebalance_timeout_no_member_has_time_to_sync(play: Play, rebalance: int) -> None:
    a = play.join("a", instance="ia", rebalance=rebalance)
    b = play.join("b", instance="ib", rebalance=rebalance)
    play.expect_records("new group")
    play.at(3_000)
    a.expect(generation=1, members=["a", "b"], at=3_000)
    b.expect(generation=1)
    play.after(0).group_is(State.EMPTY, generation=2)
    play.expect_records("empty group")
    play.sync("a", generation=1).expect(ErrorCode.UNKNOWN_MEMBER_ID)


@scenario("RB-22")
def test_a_join_is_repeated_after_its_reply_was_lost(play: Play) -> None:
    play.leader_rejoins()  # then its connection closes; a coordinator ignores that, and keeps the JoinGroup parked
    play.join("b").expect(generation=2)
    play.join("a").expect(generation=2, leader="a", members=["a", "b"])
    play.group_is(State.COMPLETING, generation=2)


@scenario("RB-23")
def test_two_pending_newcomers_expiring_together_leave_one_to_join(play: Play) -> None:
    play.configure(group_initial_rebalance_delay_ms=600_000)
    both = [play.join("a", instance="ia", session=600_000), play.join("b", session=600_000, version=3)]
    play.at(299_999)
    for joiner in both:
        joiner.expect_parked()
    play.at(300_000)
    evicted, stays = sorted(both, key=lambda joiner: joiner.reply.error == 0)
    evicted.expect(ErrorCode.UNKNOWN_MEMBER_ID, id="", at=300_000)
    stays.expect(generation=1, at=300_000)
    assert len(stays.reply.members) == 1
    assert play.session_left("b" if evicted is both[0] else "a") == 600_000


@scenario("RB-24")
def test_another_member_leads_when_the_leader_leaves_before_assigning(play: Play) -> None:
    play.joined("a", "b", "c", static=True)
    b = play.sync("b").expect_parked()
    play.leave("a").expect()
    b.expect(ErrorCode.REBALANCE_IN_PROGRESS)
    play.group_is(State.PREPARING, members=["b", "c"])
    assert play.group().leader in (play.id_of("b"), play.id_of("c"))
    play.join("b").expect_parked()
    play.join("c").expect(generation=2)
    play.expect("b", generation=2)
    play.expect_note(NoteKind.ROUND_END, result=RoundResult.SUPERSEDED)


def test_a_state_change_note_has_its_cause(play: Play) -> None:
    play.two_dynamic()
    play.leave("b")
    play.expect_note(NoteKind.STATE_CHANGE, from_state=State.STABLE, to_state=State.PREPARING, reason=Cause.MEMBER_LEFT)
    play.join("a")
    play.expect_note(NoteKind.STATE_CHANGE, from_state=State.PREPARING, to_state=State.COMPLETING, reason=Cause.EVERYONE_JOINED)
    play.sync("a", {"a": 1})
    play.expect_note(NoteKind.STATE_CHANGE, from_state=State.COMPLETING, to_state=State.STABLE, reason=Cause.ASSIGNED)
    play.at(10_000)
    play.expect_note(NoteKind.STATE_CHANGE, from_state=State.STABLE, to_state=State.PREPARING, reason=Cause.SESSION_EXPIRED, member="a")


def test_a_leaving_id_is_distinguished_from_a_leaving_member(play: Play) -> None:
    play.one_dynamic()
    play.join("p")
    play.leave("p")
    play.expect_note(NoteKind.STATE_CHANGE, from_state=State.STABLE, to_state=State.PREPARING, reason=Cause.PENDING_LEFT, member="p")
    play.expect_note(NoteKind.MEMBER_GONE, member_id="p", how=Removal.LEFT)


def test_a_member_that_leaves_together_with_a_pending_id_is_named_as_the_cause(play: Play) -> None:
    play.two_dynamic()
    play.join("p")
    play.leave("b", "p").expect(0, 0)
    play.expect_note(NoteKind.STATE_CHANGE, from_state=State.STABLE, to_state=State.PREPARING, reason=Cause.MEMBER_LEFT, member="b")


def test_a_group_without_members_becomes_empty(play: Play) -> None:
    play.one_dynamic()
    play.after(1_000)
    play.leave("a")
    play.expect_note(NoteKind.STATE_CHANGE, from_state=State.PREPARING, to_state=State.EMPTY, reason=Cause.GROUP_EMPTIED)


def test_a_round_note_has_the_durations_of_its_phases_and_the_late_members(play: Play) -> None:
    play.two_static()
    play.after(1_000).join("b", metadata=T0_T1)
    play.keep_alive("a").at(21_000)
    play.after(300)
    play.sync("b", {"a": 1, "b": 2}).expect()
    note = play.expect_note(NoteKind.ROUND_END, result=RoundResult.STABLE, join_ms=20_000, sync_ms=300)
    assert isinstance(note.body, RoundEnd)
    assert note.body.laggards == [play.id_of("a")]


def test_the_note_of_a_superseded_round_has_the_members_joined_so_far(play: Play) -> None:
    play.two_awaiting_assignment()
    play.after(700).join("b", metadata=T0_T1)
    play.expect_note(NoteKind.ROUND_END, result=RoundResult.SUPERSEDED, join_ms=6_000, sync_ms=700)
    play.after(200).leave("a", "b")
    play.expect_note(NoteKind.ROUND_END, result=RoundResult.EMPTY, join_ms=200, sync_ms=0)


def test_a_subscription_hash_fits_into_a_note(play: Play) -> None:
    for number in range(20):
        play.join(f"m{number}", metadata=bytes([number]) * 3, version=3)
    hashes = {note.body.subscription_hash for note in play.notes if isinstance(note.body, MemberJoin)}
    assert len(hashes) == 20
    assert all(-(1 << 63) <= value < 1 << 63 for value in hashes)


def test_a_rejoin_renews_the_session(play: Play) -> None:
    play.two_dynamic(session=60_000)
    play.after(5_000).join("b", metadata=T0_T1)
    play.after(2_000).leave("b")
    play.expect_note(NoteKind.MEMBER_GONE, member_id="b", how=Removal.LEFT, since_heartbeat_ms=2_000)
