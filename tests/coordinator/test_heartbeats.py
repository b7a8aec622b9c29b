"""Catalogue, section 8: heartbeats and expired sessions."""

from __future__ import annotations

import pytest

from coordinator import Commit
from coordinator.notes import Cause, Removal
from coordinator.states import State
from protocol.errors import ErrorCode
from protocol.messages.coordinator_notes import MemberGone
from protocol.messages.kinds import NoteKind
from protocol.messages.offset_commit import OffsetCommitRequestPartition
from tests.coordinator.playbook import Play, row, scenario


@pytest.mark.parametrize(
    ("id", "instance", "generation", "error"),
    [
        row("HB-01", "a", "ia", 1, ErrorCode.NONE),
        row("HB-01", "a", None, 1, ErrorCode.NONE),
        row("HB-02", "a", "zz", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        row("HB-02", "b", "ia", 1, ErrorCode.FENCED_INSTANCE_ID),
        row("HB-02", "", "ia", 1, ErrorCode.FENCED_INSTANCE_ID),
        row("HB-02", "x", None, 1, ErrorCode.UNKNOWN_MEMBER_ID),
        row("HB-03", "a", "ia", 0, ErrorCode.ILLEGAL_GENERATION),
        row("HB-03", "a", "ia", 2, ErrorCode.ILLEGAL_GENERATION),
        row("HB-03", "a", "ia", -1, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_identity_comes_before_the_generation(play: Play, id: str, instance: str | None, generation: int, error: int) -> None:
    play.two_static()
    play.after(1_000).heartbeat(id, generation, instance=instance).expect(error)
    assert play.session_left("a") == (9_000 if error else 10_000)
    play.expect_records()


@scenario("HB-04")
def test_heartbeats_before_the_sync_are_accepted(play: Play) -> None:
    play.two_static()
    play.join("a")
    play.join("b")
    play.group_is(State.COMPLETING, generation=2)
    play.after(1_000).heartbeat("b", 2).expect()
    assert play.session_left("b") == 10_000
    play.heartbeat("b", 1).expect(ErrorCode.ILLEGAL_GENERATION)


@scenario("HB-05")
def test_heartbeats_in_the_join_phase_are_answered_with_rebalance_in_progress(play: Play) -> None:
    play.leader_rejoins()
    play.heartbeat("b", 1).expect(ErrorCode.REBALANCE_IN_PROGRESS)
    play.heartbeat("b", 2).expect(ErrorCode.ILLEGAL_GENERATION)


@scenario("HB-06")
def test_a_heartbeat_to_an_empty_group_is_refused(play: Play) -> None:
    play.one_dynamic()
    play.leave("a")
    play.group_is(State.EMPTY, generation=2)
    play.heartbeat("a", 2).expect(ErrorCode.UNKNOWN_MEMBER_ID)


@scenario("HB-07")
def test_a_heartbeat_to_a_missing_group_is_refused(play: Play) -> None:
    play.heartbeat("x", 0).expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.heartbeat("x", 0, group="").expect(ErrorCode.INVALID_GROUP_ID)
    play.sync("x", generation=0, group="").expect(ErrorCode.INVALID_GROUP_ID)
    play.group_is_absent()


@scenario("HB-09")
def test_a_silent_static_member_expires_after_its_session(play: Play) -> None:
    play.two_static()
    play.keep_alive("a").at(9_999).group_is(State.STABLE, members=["a", "b"])
    play.at(10_000).group_is(State.PREPARING, generation=1, members=["a"])
    play.heartbeat("b", 1).expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.heartbeat("a", 1).expect(ErrorCode.REBALANCE_IN_PROGRESS)
    play.expect_note(NoteKind.MEMBER_GONE, member_id="b", instance_id="ib", how=Removal.EXPIRED, since_heartbeat_ms=10_000, session_ms=10_000)
    play.expect_note(NoteKind.STATE_CHANGE, to_state=State.PREPARING, reason=Cause.SESSION_EXPIRED, member="b")
    play.expect_records()


@scenario("HB-10")
def test_an_expired_leader_is_replaced(play: Play) -> None:
    play.two_static()
    play.keep_alive("b").at(10_000).group_is(State.PREPARING, leader="b", members=["b"])
    play.join("b").expect(generation=2, leader="b", members=["b"])


@scenario("HB-11")
def test_when_the_last_member_expires_the_group_is_empty(play: Play) -> None:
    play.one_static()
    play.at(9_999).group_is(State.STABLE)
    play.at(10_000).group_is(State.EMPTY, generation=2)
    group_record = play.expect_group_record("empty group")
    assert (group_record.protocol_type, group_record.generation, group_record.current_state_timestamp) == ("consumer", 2, play.now)


@scenario("HB-12")
def test_a_heartbeat_in_the_last_moment_is_in_time(play: Play) -> None:
    play.one_static()
    play.at(9_999).heartbeat("a", 1).expect()
    play.at(10_000).group_is(State.STABLE)
    play.at(19_998).group_is(State.STABLE)
    play.at(19_999).group_is(State.EMPTY)


@scenario("HB-13")
def test_a_heartbeat_after_a_commit_in_flight_is_answered_together_with_it(play: Play) -> None:
    play.two_static()
    play.hold_appends()
    commit = play.commit("a").expect_parked()
    beat = play.heartbeat("b", 1).expect_parked()
    play.confirm()
    commit.expect()
    beat.expect()
    assert play.answers == [commit, beat]


@scenario("HB-14")
def test_commits_alone_keep_a_member_alive(play: Play) -> None:
    play.two_static()
    play.keep_alive("a")
    for ms in (9_000, 18_000, 27_000):
        play.at(ms).commit("b", generation=1).expect()
    play.at(36_999).group_is(State.STABLE, members=["a", "b"])
    play.at(37_000).group_is(State.PREPARING, members=["a"])


@scenario("HB-15")
def test_offset_fetch_and_sync_do_not_renew_the_session(play: Play) -> None:
    play.two_static()
    play.keep_alive("a")
    for ms in (3_000, 6_000, 9_000):
        play.at(ms)
        play.fetch().expect(-1)
        play.sync("b", generation=1).expect(assignment=2)
    play.at(10_000).group_is(State.PREPARING, members=["a"])


@scenario("HB-16")
def test_a_replaced_members_session_expires_no_member(play: Play) -> None:
    play.two_static()
    play.keep_alive("a").at(5_000).join("b'").expect(generation=1)
    play.at(14_999).group_is(State.STABLE, generation=1, members=["a", "b'"])
    play.at(15_000).group_is(State.PREPARING, members=["a"])
    assert [note.body.member_id for note in play.notes if isinstance(note.body, MemberGone)] == [play.id_of("b'")]


def test_a_refused_heartbeat_does_not_renew_the_session(play: Play) -> None:
    play.one_static()
    play.at(9_000).heartbeat("a", 0).expect(ErrorCode.ILLEGAL_GENERATION)
    play.at(10_000).group_is(State.EMPTY)


def test_a_slow_log_gives_each_member_one_more_session(play: Play) -> None:
    play.two_static()
    assert play.shard is not None
    play.shard.deadlines.extends = True
    play.at(10_000).group_is(State.STABLE, members=["a", "b"])
    assert play.session_left("a") == play.session_left("b") == 10_000
    play.at(20_000).group_is(State.EMPTY)  # only once: the log may stay slow


def test_a_member_heard_during_a_log_stall_gets_another_session(play: Play) -> None:
    play.two_static()
    assert play.shard is not None
    play.shard.deadlines.extends = True
    play.at(19_000)
    play.heartbeat("a")
    play.at(29_000).group_is(State.PREPARING, members=["a"])
    assert play.session_left("a") == 10_000
    play.at(39_000).group_is(State.EMPTY)


def test_a_slow_log_extends_the_sync_timeout(play: Play) -> None:
    play.two_awaiting_assignment(rebalance=5_000)
    assert play.shard is not None
    play.shard.deadlines.extends = True
    play.keep_alive("a", "b").at(5_000).group_is(State.COMPLETING, members=["a", "b"])
    assert play.phase_left() == 5_000
    play.at(10_000).group_is(State.EMPTY)


def test_a_slow_log_extends_the_life_of_pending_ids(play: Play) -> None:
    play.join("p", session=6_000)
    assert play.shard is not None
    play.shard.deadlines.extends = True
    play.at(6_000).group_is(State.EMPTY, pending=["p"])
    play.at(11_999).group_is(State.EMPTY, pending=["p"])
    play.at(12_000).group_is(State.EMPTY, pending=[])


@pytest.mark.parametrize("skew_ms", [-691_200_000, 691_200_000])
def test_setting_the_wall_clock_neither_ends_nor_extends_sessions(play: Play, skew_ms: int) -> None:
    play.two_static()
    play.at(3_000)
    play.skew_ms = skew_ms
    play.at(9_999).group_is(State.STABLE)
    play.at(10_000).group_is(State.EMPTY)


def test_a_suspended_shard_gives_each_member_a_full_session(play: Play) -> None:
    play.two_static()
    play.at(9_000)
    play.fail_log(ErrorCode.NOT_COORDINATOR)
    assert play.session_left("a") == play.session_left("b") == 10_000


def test_a_session_that_is_made_shorter_ends_in_time(play: Play) -> None:
    play.two_static(session=60_000)
    play.join("b'", session=6_000)
    assert play.session_left("b'") == 60_000
    play.keep_alive("a").after(1_000).heartbeat("b'", 1).expect()
    play.after(5_999).group_is(State.STABLE)
    play.after(1).group_is(State.PREPARING, members=["a"])


def test_heartbeat_and_sync_of_the_group_without_a_name_are_invalid_also_when_it_has_offsets(play: Play) -> None:
    sent = play.commit_as_is(Commit("", -1, "", None, [("t0", [OffsetCommitRequestPartition(0, 1)])]))
    assert sent.reply == ErrorCode.NONE
    play.heartbeat("x", 0, group="").expect(ErrorCode.INVALID_GROUP_ID)
    play.sync("x", generation=0, group="").expect(ErrorCode.INVALID_GROUP_ID)
