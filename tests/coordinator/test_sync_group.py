"""Catalogue, section 7: SyncGroup, assignments and the sync timeout."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.notes import Cause, Removal
from coordinator.states import State
from protocol.errors import ErrorCode
from protocol.messages.kinds import NoteKind
from tests.coordinator.playbook import T0_T1, Play, scenario


@scenario("SY-01")
def test_a_follower_waits_for_the_leader_and_both_are_answered_when_it_is_stored(play: Play) -> None:
    play.two_awaiting_assignment()
    b = play.sync("b").expect_parked()
    play.expect_records()
    play.hold_appends()
    a = play.sync("a", {"a": 1, "b": 2}).expect_parked()
    b.expect_parked()
    play.confirm()
    a.expect(assignment=1)
    b.expect(assignment=2)
    assert (a.reply.protocol_type, a.reply.protocol_name) == ("consumer", "range")
    play.expect_records("assignments")
    play.group_is(State.STABLE, generation=1)


def test_each_generation_is_stored_with_its_leaders_assignments(play: Play) -> None:
    play.two_dynamic()
    for generation, assignment in ((2, 1), (3, 1), (4, 3), (5, 3)):
        play.join("a")
        play.join("b").expect(generation=generation)
        play.after(10)
        play.sync("a", {"a": assignment, "b": 2}).expect(assignment=assignment)
        play.sync("b").expect(assignment=2)
        group_record = play.expect_group_record("assignments")
        assert group_record.generation == generation
        assert group_record.current_state_timestamp == play.now - 10
        assert [member.assignment for member in group_record.members] == [bytes([assignment]), b"\2"]


@scenario("SY-02")
def test_a_follower_that_comes_after_the_leader_is_answered_at_once(play: Play) -> None:
    play.two_awaiting_assignment()
    play.sync("a", {"a": 1, "b": 2}).expect(assignment=1)
    play.group_is(State.STABLE)
    play.sync("b").expect(assignment=2)


@scenario("SY-03")
def test_a_second_parked_sync_replaces_the_first_and_gets_the_assignment_z2(play: Play) -> None:
    play.two_awaiting_assignment()
    first = play.sync("b").expect_parked()
    second = play.sync("b").expect_parked()
    first.expect(ErrorCode.REBALANCE_IN_PROGRESS)  # Kafka never answers it
    play.sync("a", {"a": 1, "b": 2})
    second.expect(assignment=2)


@scenario("SY-04")
def test_an_empty_assignment_of_the_leader_gives_each_member_nothing(play: Play) -> None:
    b = play.follower_awaits_assignment()
    play.sync("a").expect(assignment=b"")
    b.expect(assignment=b"")
    play.group_is(State.STABLE)


@scenario("SY-05")
def test_a_followers_assignments_are_ignored(play: Play) -> None:
    play.two_awaiting_assignment()
    b = play.sync("b", {"a": 8, "b": 9}).expect_parked()
    play.expect_records()
    play.sync("a", {"a": 1, "b": 2}).expect(assignment=1)
    b.expect(assignment=2)


@scenario("SY-06")
def test_assignments_of_unknown_members_are_dropped_and_missing_ones_are_empty(play: Play) -> None:
    b = play.follower_awaits_assignment()
    play.sync("a", {"a": 1, "ghost": 3}).expect(assignment=1)
    b.expect(assignment=b"")
    assert [(member.group_instance_id, member.assignment) for member in play.expect_group_record("assignments").members] == [("ia", b"\1"), ("ib", b"")]


@scenario("SY-07")
def test_a_sync_that_names_another_protocol_is_refused_and_still_awaited(play: Play) -> None:
    play.two_awaiting_assignment()
    play.sync("b", type="connect").expect(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    play.sync("b", protocol="foo").expect(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert play.id_of("b") in play.group().pending_sync
    play.sync("b", type="consumer", protocol="range").expect_parked()
    assert play.id_of("b") not in play.group().pending_sync


@scenario("SY-08")
def test_in_a_join_phase_generation_and_protocol_are_checked_first(play: Play) -> None:
    play.leader_rejoins()
    play.sync("b", generation=1).expect(ErrorCode.REBALANCE_IN_PROGRESS)
    play.sync("b", generation=0).expect(ErrorCode.ILLEGAL_GENERATION)
    play.sync("b", generation=2).expect(ErrorCode.ILLEGAL_GENERATION)
    play.sync("b", generation=1, type="connect").expect(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


@scenario("SY-09")
def test_in_a_join_phase_identity_is_checked_first(play: Play) -> None:
    play.leader_rejoins()
    play.sync("x", generation=1, instance=None).expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.sync("b", generation=1, instance="zz").expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.sync("x", generation=1, instance="ib").expect(ErrorCode.FENCED_INSTANCE_ID)


@scenario("SY-10")
def test_in_a_stable_group_generation_and_protocol_are_checked_first(play: Play) -> None:
    play.two_static()
    play.sync("b", generation=0).expect(ErrorCode.ILLEGAL_GENERATION)
    play.sync("b", generation=1, protocol="zzz").expect(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    play.sync("b", generation=1).expect(assignment=2)


@scenario("SY-11")
def test_a_sync_to_a_group_without_members_is_refused(play: Play) -> None:
    play.sync("x", generation=0).expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.group_is_absent()
    play.one_dynamic()
    play.leave("a")
    play.group_is(State.EMPTY, generation=2)
    play.sync("a", generation=2).expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.sync("x", generation=2).expect(ErrorCode.UNKNOWN_MEMBER_ID)


@scenario("SY-12")
def test_a_leader_that_heartbeats_but_never_assigns_is_removed(play: Play) -> None:
    b = play.follower_awaits_assignment(rebalance=5_000)
    play.keep_alive("a").at(4_999)
    b.expect_parked()
    play.at(5_000)
    b.expect(ErrorCode.REBALANCE_IN_PROGRESS, at=5_000)
    play.group_is(State.PREPARING, leader="b", members=["b"])
    play.heartbeat("a", 1).expect(ErrorCode.UNKNOWN_MEMBER_ID)
    assert play.phase_left() == 5_000
    play.join("b").expect(generation=2, members=["b"])
    play.expect_note(NoteKind.MEMBER_GONE, member_id="a", how=Removal.SYNC_TIMEOUT)
    play.expect_note(NoteKind.STATE_CHANGE, to_state=State.PREPARING, reason=Cause.SYNC_TIMEOUT)


@scenario("SY-13")
def test_a_follower_that_heartbeats_but_never_syncs_is_removed(play: Play) -> None:
    play.two_awaiting_assignment(rebalance=5_000)
    play.sync("a", {"a": 1, "b": 2})
    play.keep_alive("a")
    for ms in (1_000, 3_000, 4_999):
        play.at(ms).heartbeat("b", 1).expect()
    play.at(5_000)
    play.heartbeat("b", 1).expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.heartbeat("a", 1).expect(ErrorCode.REBALANCE_IN_PROGRESS)


@scenario("SY-14")
def test_no_member_is_waited_for_when_all_have_synced(play: Play) -> None:
    play.two_awaiting_assignment()
    assert play.phase_left() == 20_000
    play.sync("b")
    assert play.phase_left() == 20_000
    play.sync("a", {"a": 1, "b": 2})
    assert play.phase_left() is None
    play.keep_alive("a", "b").at(60_000).group_is(State.STABLE, generation=1, members=["a", "b"])


def absent_leader(play: Play) -> None:
    play.two_static()
    play.join("b", metadata=T0_T1)
    play.keep_alive("a", "b").at(20_000)
    play.group_is(State.COMPLETING, generation=2, leader="b", members=["a", "b"])


@scenario("SY-15")
def test_a_static_member_that_never_joins_is_removed_one_rebalance_timeout_later(play: Play) -> None:
    absent_leader(play)
    play.sync("b", {"a": 1, "b": 2})
    play.at(39_999).group_is(State.STABLE, generation=2, members=["a", "b"])
    play.heartbeat("a", 2).expect()
    play.at(40_000).group_is(State.PREPARING, generation=2, members=["b"])
    play.expect_note(NoteKind.MEMBER_GONE, member_id="a", how=Removal.SYNC_TIMEOUT)


@scenario("SY-16")
def test_a_static_member_that_joins_late_and_syncs_is_not_removed(play: Play) -> None:
    absent_leader(play)
    play.join("a").expect(generation=2, leader="b", members=[])
    a = play.sync("a", generation=2).expect_parked()
    play.sync("b", {"a": 7, "b": 8}).expect(assignment=8)
    a.expect(assignment=7)
    play.at(60_000).group_is(State.STABLE, generation=2, members=["a", "b"])


@scenario("SY-17")
def test_a_changed_join_after_assignments_in_flight_sees_them_assigned_z17(play: Play) -> None:
    play.two_awaiting_assignment()
    play.hold_appends()
    a = play.sync("a", {"a": 1, "b": 2}).expect_parked()
    b = play.sync("b").expect_parked()
    rejoin = play.join("b", metadata=T0_T1).expect_parked()
    play.confirm()
    a.expect(assignment=1)  # Kafka answers both with REBALANCE_IN_PROGRESS
    b.expect(assignment=2)
    play.group_is(State.PREPARING, generation=1)
    play.join("a").expect(generation=2)
    rejoin.expect(generation=2)
    play.expect_records("assignments")
    play.sync("a", {"a": 3, "b": 4}).expect(assignment=3)
    play.expect_records("assignments")


@scenario("SY-18")
def test_a_leave_after_assignments_in_flight_sees_them_assigned_z17(play: Play) -> None:
    play.two_awaiting_assignment()
    play.hold_appends()
    a = play.sync("a", {"a": 1, "b": 2}).expect_parked()
    leave_reply = play.leave(("", "ib")).expect_parked()
    play.confirm()
    a.expect(assignment=1)  # Kafka: REBALANCE_IN_PROGRESS
    leave_reply.expect()
    play.group_is(State.PREPARING, generation=1, members=["a"])


@scenario("SY-19")
def test_a_leader_that_assigns_twice_gets_its_first_assignment_z4_z17(play: Play) -> None:
    play.joined("a", static=True)
    play.hold_appends()
    first = play.sync("a", {"a": 1})
    second = play.sync("a", {"a": 5})
    play.confirm()
    first.expect(assignment=1)
    second.expect(assignment=1)
    play.expect_records("assignments")  # Kafka: two, and its log ends with the second


@scenario("SY-20")
def test_a_member_that_waits_for_its_assignment_does_not_expire(play: Play) -> None:
    b = play.follower_awaits_assignment(session={"a": 60_000, "b": 6_000})
    play.at(7_000)
    b.expect_parked()
    assert play.session_left("b") is None
    play.sync("a", {"a": 1, "b": 2})
    b.expect(assignment=2)
    assert play.session_left("b") == 6_000


@scenario("SY-21")
def test_a_leader_that_expires_before_assigning_causes_a_rebalance(play: Play) -> None:
    b = play.follower_awaits_assignment(session={"a": 6_000})
    play.at(6_000)
    b.expect(ErrorCode.REBALANCE_IN_PROGRESS, at=6_000)
    play.group_is(State.PREPARING, leader="b", members=["b"])


@scenario("SY-22")
def test_a_member_that_leaves_while_it_waits_is_answered_z1(play: Play) -> None:
    b = play.follower_awaits_assignment()
    play.leave("b").expect()
    b.expect(ErrorCode.UNKNOWN_MEMBER_ID)  # Kafka never answers it
    play.group_is(State.PREPARING, members=["a"])


@scenario("SY-23")
def test_a_leader_that_leaves_before_assigning_causes_a_rebalance(play: Play) -> None:
    b = play.follower_awaits_assignment()
    play.leave("a").expect()
    b.expect(ErrorCode.REBALANCE_IN_PROGRESS)
    play.group_is(State.PREPARING, leader="b", members=["b"])


@scenario("SY-24")
def test_a_parked_sync_is_answered_when_all_members_leave_z1(play: Play) -> None:
    b = play.follower_awaits_assignment()
    play.leave(("", "ia"), ("", "ib")).expect(0, 0)
    b.expect(ErrorCode.UNKNOWN_MEMBER_ID)  # Kafka never answers it
    play.group_is(State.EMPTY, generation=2)
    play.expect_records("empty group")


@scenario("SY-25")
def test_a_sync_in_a_stable_group_does_not_renew_the_session(play: Play) -> None:
    play.settled("a", "b", synced=[])
    play.after(1_000).sync("b").expect(assignment=2)
    assert play.session_left("b") == 9_000


def test_assignments_too_large_for_a_batch_are_refused_and_a_rebalance_begins(play: Play) -> None:
    play.configure(batch_bytes_max=1_000)
    b = play.follower_awaits_assignment()
    play.sync("a", {"a": b"x" * 1_000, "b": 2}).expect(ErrorCode.UNKNOWN_SERVER_ERROR)
    b.expect(ErrorCode.UNKNOWN_SERVER_ERROR)
    play.group_is(State.PREPARING, generation=1, members=["a", "b"])
    assert all(not member.assignment for member in play.group().members.values())
    play.expect_records()
    play.expect_note(NoteKind.STATE_CHANGE, to_state=State.PREPARING, reason=Cause.SYNC_FAILED)
    a = play.join("a").expect_parked()
    play.join("b").expect(generation=2)
    a.expect(generation=2)
    play.sync("a", {"a": 1, "b": 2}).expect(assignment=1)


def test_an_aborted_round_leaves_no_assignment(play: Play) -> None:
    play.two_static()
    play.join("a")
    play.join("b").expect(generation=2)
    assert [member.assignment for member in play.describe().members] == [b"\1", b"\2"]
    play.join("b", metadata=T0_T1).expect_parked()
    assert [member.assignment for member in play.describe().members] == [b"", b""]


def test_a_parked_sync_refused_by_a_rebalance_starts_a_full_session(play: Play) -> None:
    b = play.follower_awaits_assignment()
    play.at(4_000)
    play.join("a", metadata=T0_T1)
    b.expect(ErrorCode.REBALANCE_IN_PROGRESS, at=4_000)
    assert play.session_left("b") == 10_000
    play.at(14_000)
    play.expect_note(NoteKind.MEMBER_GONE, member_id="b", how=Removal.EXPIRED, since_heartbeat_ms=10_000)


def test_an_assignment_starts_a_full_session(play: Play) -> None:
    b = play.follower_awaits_assignment()
    play.keep_alive("a").at(4_000)
    play.sync("a", {"a": 1, "b": 2})
    b.expect(assignment=2, at=4_000)
    assert play.session_left("b") == 10_000
    play.at(14_000)
    play.expect_note(NoteKind.MEMBER_GONE, member_id="b", how=Removal.EXPIRED, since_heartbeat_ms=10_000)


def test_a_sync_counts_as_a_heartbeat(play: Play) -> None:
    play.two_awaiting_assignment()
    play.after(5_000).sync("b")
    play.after(2_000).leave("b")
    play.expect_note(NoteKind.MEMBER_GONE, member_id="b", how=Removal.LEFT, since_heartbeat_ms=2_000)


@pytest.mark.parametrize("fields", [{"type": "consumer"}, {"protocol": "range"}, {"type": "consumer", "protocol": "range"}, {}])
def test_a_sync_with_only_a_protocol_type_or_name_is_checked_for_that_field_alone(play: Play, fields: dict[str, Any]) -> None:
    play.two_awaiting_assignment()
    play.sync("a", {"a": 1, "b": 2}, **fields).expect(ErrorCode.NONE, 1)
    play.sync("b", **fields).expect(ErrorCode.NONE, 2)


def test_before_a_protocol_is_selected_any_protocol_name_is_accepted(play: Play) -> None:
    play.join("a", version=3).expect_parked()
    play.sync("a", protocol="other").expect(ErrorCode.REBALANCE_IN_PROGRESS)
    play.sync("a", type="other").expect(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
