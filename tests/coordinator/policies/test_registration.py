"""registration.timeout.ms: a static member whose session ends is away and keeps its seat until the timeout."""

from __future__ import annotations

import pytest

from coordinator.notes import Cause, Removal
from coordinator.states import State
from protocol.errors import ErrorCode
from protocol.messages.kinds import NoteKind
from tests.coordinator.playbook import Play, scenario

SESSION_MS = 10_000
TIMEOUT_MS = 15_000
REGISTRATION = {"registration.timeout.ms": str(TIMEOUT_MS)}


def away_at(play: Play, *absences: tuple[str, int], present: tuple[str, ...]) -> Play:
    """Static members that send their last heartbeat at the given moments; `present` stay alive. Time then counts from the end of the first session."""
    names = [*present, *[name for name, _ in absences]]
    play.settled(*names, static=True, session=SESSION_MS)
    assert not play.set_policies(REGISTRATION)
    play.expect_records("policies")
    play.keep_alive(*names)
    for name, at_ms in sorted(absences, key=lambda absence: absence[1]):
        play.at(at_ms)
        play.heartbeat(name)
        play.stop_heartbeats(name)
    play.at(SESSION_MS)
    play.began = play.now
    return play


@scenario("PA-01")
def test_a_member_whose_session_ends_is_away_without_a_rebalance(play: Play) -> None:
    away_at(play, ("b", 0), present=("a",))
    play.group_is(State.STABLE, generation=1, members=["a", "b"])
    play.heartbeat("a", 1).expect()
    play.expect_records("away")
    play.expect_note(NoteKind.MEMBER_AWAY, instance_id="ib", back=False)
    assert play.shard is not None
    assert play.shard.policies.status("g") == {"status.away": f"ib since {play.wall}"}


@scenario("PA-02")
def test_the_table_of_absences(play: Play) -> None:
    """a is away at 0:00 and b at 0:10; a is back at 0:14. b stays away, so one rebalance begins at 0:25, and removes b."""
    away_at(play, ("a", 0), ("b", 10_000), present=("c",))
    play.at(14_000)
    play.join("a'").expect(generation=1)
    play.keep_alive("a'")
    play.at(24_999)
    play.group_is(State.STABLE, generation=1, members=["c", "a'", "b"])
    play.at(25_000)
    play.group_is(State.PREPARING, members=["c", "a'"])
    play.expect_note(NoteKind.STATE_CHANGE, reason=Cause.ABSENCES_ENDED)
    play.expect_note(NoteKind.MEMBER_GONE, member_id="b", how=Removal.STAYED_AWAY)
    assert play.group().phase_start_ms == play.began + 25_000


@scenario("PA-03")
def test_all_members_that_are_away_go_in_one_rebalance(play: Play) -> None:
    away_at(play, ("a", 0), ("b", 10_000), present=("c",))
    play.at(14_999)
    play.group_is(State.STABLE, generation=1, members=["c", "a", "b"])
    play.at(15_000)
    play.group_is(State.PREPARING, members=["c"])
    play.join("c").expect(generation=2, members=["c"])
    play.sync("c", {"c": 1}).expect()
    play.expect_records("away", "away", "assignments", "back", "back")


@scenario("PA-04")
def test_a_member_that_returns_in_time_keeps_its_seat(play: Play) -> None:
    away_at(play, ("b", 0), present=("a",))
    play.at(14_999)
    play.join("b'").expect(generation=1, id="b'", members=[])
    play.sync("b'", generation=1).expect(assignment=2)
    play.keep_alive("b'").after(60_000)
    play.group_is(State.STABLE, generation=1, members=["a", "b'"])
    play.expect_records("away", "back", "replacement")
    play.expect_note(NoteKind.MEMBER_AWAY, instance_id="ib", back=True, away_ms=14_999)


@scenario("PA-05")
@pytest.mark.parametrize("request_kind", ["heartbeat", "join", "sync", "commit"])
def test_every_request_of_the_old_process_ends_its_absence(play: Play, request_kind: str) -> None:
    away_at(play, ("b", 0), present=("a",))
    play.at(10_000)
    getattr(play, request_kind)("b").expect()
    assert play.session_left("b") == SESSION_MS
    play.keep_alive("b").after(60_000)
    play.group_is(State.STABLE, generation=1, members=["a", "b"])
    kinds = [record.kind for record in play._newest]
    assert kinds[:2] == ["away", "back"]


@scenario("PA-06")
def test_a_full_stop_and_start_within_the_timeout_needs_no_generation(play: Play) -> None:
    play.three_static()
    play.set_policies(REGISTRATION)
    play.at(SESSION_MS + TIMEOUT_MS - 1)
    play.group_is(State.STABLE, generation=1, members=["a", "b", "c"])
    play.join("c'").expect(generation=1)
    play.join("b'").expect(generation=1)
    play.join("a'").expect(generation=1, leader="a'", members=["a'", "b'", "c'"], skip=True)
    for number, name in enumerate(["a'", "b'", "c'"], 1):
        play.sync(name, generation=1).expect(assignment=number)
    play.keep_alive("a'", "b'", "c'").after(60_000)
    play.group_is(State.STABLE, generation=1)


@scenario("PA-07")
def test_a_full_stop_for_longer_than_the_timeout_empties_the_group_once(play: Play) -> None:
    play.three_static()
    play.set_policies(REGISTRATION)
    play.at(SESSION_MS + TIMEOUT_MS)
    play.group_is(State.EMPTY, generation=2)
    play.expect_records("policies", "away", "away", "away", "empty group", "back", "back", "back")


@scenario("PA-08")
def test_a_join_phase_does_not_wait_for_an_away_member_and_keeps_its_seat(play: Play) -> None:
    away_at(play, ("c", 0), present=("a", "b"))
    play.join("a").expect_parked()  # the leader triggers a rebalance
    joined = play.join("b")
    joined.expect(generation=2)
    play.expect("a", generation=2, members=["a", "b", "c"])
    play.sync("a", {"a": 1, "b": 2, "c": 3}).expect()
    play.sync("b").expect()
    assert play.phase_left() is None
    play.at(10_000)
    play.group_is(State.STABLE, generation=2, members=["a", "b", "c"])
    play.join("c'").expect(generation=2)
    play.sync("c'", generation=2).expect(assignment=3)


@scenario("PA-09")
def test_a_member_that_goes_away_ends_the_join_phase_that_waited_for_it(play: Play) -> None:
    play.two_static(session={"a": 10_000, "b": 10_000})
    play.set_policies(REGISTRATION)
    joining = play.join("a").expect_parked()
    play.at(SESSION_MS)
    joining.expect(generation=2, at=SESSION_MS, members=["a", "b"])


@scenario("PA-10")
def test_the_timer_for_missing_sync_groups_spares_an_away_member(play: Play) -> None:
    play.settled("a", "b", static=True, synced=["a"], session={"a": 60_000, "b": 10_000}, rebalance=12_000)
    play.set_policies(REGISTRATION)
    play.keep_alive("a").at(13_000)
    play.group_is(State.STABLE, generation=1, members=["a", "b"])
    assert play.phase_left() is None


@scenario("PA-11")
def test_a_leader_that_goes_away_before_it_assigned_is_replaced_as_leader(play: Play) -> None:
    parked = play.follower_awaits_assignment(session={"a": 6_000, "b": 10_000}, rebalance=30_000)
    play.set_policies(REGISTRATION)
    play.at(6_000)
    parked.expect(ErrorCode.REBALANCE_IN_PROGRESS)
    play.group_is(State.PREPARING, members=["a", "b"])
    play.join("b").expect(generation=2, leader="b", members=["a", "b"])


@scenario("PA-12")
def test_dynamic_members_are_never_away(play: Play) -> None:
    play.settled("a", "b", static={"a"})
    play.set_policies(REGISTRATION)
    play.keep_alive("a").at(SESSION_MS)
    play.group_is(State.PREPARING, members=["a"])


@scenario("PA-13")
def test_a_member_without_a_generation_is_never_away(play: Play) -> None:
    play.two_static(rebalance=400_000)
    play.set_policies(REGISTRATION)
    play.keep_alive("a")
    play.join("c", instance="ic").expect_parked()
    play.at(300_000)
    assert "ic-c" not in play.group().members
    play.expect_note(NoteKind.MEMBER_GONE, member_id="c", how=Removal.EXPIRED)


@scenario("PA-14")
def test_an_administrator_removes_an_away_member_at_once(play: Play) -> None:
    away_at(play, ("b", 0), present=("a",))
    play.leave(("", "ib")).expect()
    play.group_is(State.PREPARING, members=["a"])
    play.join("a").expect(generation=2)
    play.sync("a", {"a": 1}).expect()
    play.expect_records("away", "assignments", "back")


@scenario("PA-15")
def test_without_the_policy_the_members_that_are_away_go_at_once(play: Play) -> None:
    away_at(play, ("b", 0), present=("a",))
    play.at(3_000)
    play.set_policies()
    play.after(0)
    play.group_is(State.PREPARING, members=["a"])
    play.expect_note(NoteKind.STATE_CHANGE, reason=Cause.REGISTRATION_UNSET, member=play.id_of("b"))
    play.expect_note(NoteKind.MEMBER_GONE, member_id="b", how=Removal.REGISTRATION_UNSET)


@scenario("PA-16")
def test_a_shorter_timeout_counts_from_the_begin_of_the_absence(play: Play) -> None:
    away_at(play, ("b", 0), present=("a",))
    play.at(3_000)
    play.set_policies({"registration.timeout.ms": "5000"})
    play.at(4_999)
    play.group_is(State.STABLE)
    play.at(5_000)
    play.group_is(State.PREPARING, members=["a"])


@scenario("PA-17")
@pytest.mark.parametrize("crash_ms", [1, 4_000, 5_001, 14_999])
def test_a_stored_absence_ends_after_one_session_or_at_its_timeout(play: Play, crash_ms: int) -> None:
    away_at(play, ("b", 0), present=("a",))
    play.at(crash_ms)
    play.failover()
    ends = max(TIMEOUT_MS, crash_ms + SESSION_MS)
    play.at(ends - 1)
    play.group_is(State.STABLE, generation=1, members=["a", "b"])
    play.at(ends)
    play.group_is(State.PREPARING, members=["a"])


@scenario("PA-18")
def test_a_failover_after_the_rebalance_began_removes_the_absent_member_after_one_session(play: Play) -> None:
    away_at(play, ("b", 0), present=("a",))
    play.at(TIMEOUT_MS)
    play.group_is(State.PREPARING, members=["a"])
    play.failover()
    play.at(TIMEOUT_MS + SESSION_MS - 1)
    play.group_is(State.STABLE, members=["a", "b"])
    play.at(TIMEOUT_MS + SESSION_MS)
    play.group_is(State.PREPARING, members=["a"])


@scenario("PA-19")
def test_a_member_heard_of_after_a_failover_is_not_away_since_before(play: Play) -> None:
    away_at(play, ("b", 0), present=("a",))
    play.at(5_000)
    play.failover()
    play.heartbeat("b").expect()
    assert play._newest[-1].kind == "back"
    play.at(5_000 + SESSION_MS + TIMEOUT_MS - 1)
    play.group_is(State.STABLE, members=["a", "b"])
    play.at(5_000 + SESSION_MS + TIMEOUT_MS)
    play.group_is(State.PREPARING, members=["a"])


@scenario("PA-20")
def test_the_record_of_a_removed_members_absence_is_deleted_at_the_load(play: Play) -> None:
    away_at(play, ("b", 0), present=("a",))
    play.hold_appends()
    play.at(TIMEOUT_MS)
    play.join("a")
    play.confirm()
    play.sync("a", {"a": 1}).expect()
    absence_facts = [fact for fact in play.log if fact[0][:2] == b"\x75\x31" and fact[1] is not None]
    play.load(*absence_facts)
    assert [record.kind for record in play._newest] == ["back"]
    play.failover()
    assert not play._newest


@scenario("PA-21")
def test_a_clock_that_was_set_back_does_not_make_an_absence_longer(play: Play) -> None:
    away_at(play, ("b", 0), present=("a",))
    play.at(5_000)
    play.skew_ms = -3_600_000
    play.failover()
    play.at(5_000 + SESSION_MS + TIMEOUT_MS - 1)
    play.group_is(State.STABLE, members=["a", "b"])
    play.at(5_000 + SESSION_MS + TIMEOUT_MS)
    play.group_is(State.PREPARING, members=["a"])


@scenario("PA-22")
def test_a_returned_member_with_a_shorter_first_session_goes_away_again(play: Play) -> None:
    """The first session of the returned process has the old member's timeout: 10 s, shorter than the heartbeat interval for its own 40 s."""
    away_at(play, ("b", 0), present=("a",))
    play.join("b'", session=40_000).expect(generation=1)
    play.after(SESSION_MS)
    assert len(play.group().away) == 1
    play.heartbeat("b'").expect()
    assert not play.group().away


@scenario("PA-23")
@pytest.mark.parametrize("crash_ms", [10_001, 14_999])
def test_absences_that_end_with_the_first_session_after_a_load_end_in_one_rebalance(play: Play, crash_ms: int) -> None:
    """The load gives both members a new session. Both sessions, and with them the absences, end at one moment."""
    away_at(play, ("b", 0), ("c", 10_000), present=("a",))
    play.at(crash_ms)
    play.failover()
    play.at(crash_ms + SESSION_MS - 1)
    play.group_is(State.STABLE, generation=1, members=["a", "b", "c"])
    play.at(crash_ms + SESSION_MS)
    play.group_is(State.PREPARING, members=["a"])
