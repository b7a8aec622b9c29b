"""Catalogue, section 1: new groups, dynamic members, and the member id that a newcomer gets before it joins (KIP-394)."""

from __future__ import annotations

import pytest

from coordinator.notes import Cause, Removal
from coordinator.states import State
from protocol.errors import ErrorCode
from protocol.messages.kinds import NoteKind
from tests.coordinator.playbook import T0_T1, Play, row, scenario


@scenario("DJ-01")
def test_a_newcomer_gets_an_id_first_and_its_group_exists_from_then_on(play: Play) -> None:
    play.join("p", version=4).expect(ErrorCode.MEMBER_ID_REQUIRED, id="p", generation=-1, leader="", members=[])
    play.group_is(State.EMPTY, generation=0, members=[], pending=["p"])
    group_record = play.expect_group_record("new group")
    assert (group_record.protocol_type, group_record.generation, group_record.protocol, group_record.leader) == ("", 0, None, None)
    assert group_record.current_state_timestamp == play.now


@scenario("DJ-02")
def test_a_newcomer_joins_with_its_id_and_leads_after_the_initial_delay(play: Play) -> None:
    play.join("p", version=4)
    play.expect_records("new group")
    joining = play.join("p").expect_parked()
    play.group_is(State.PREPARING, pending=[])
    play.at(10_000)
    joining.expect(generation=1, leader="p", id="p", members=["p"], protocol="range", type="consumer", at=3_000)
    play.expect_records()
    play.expect_note(NoteKind.MEMBER_JOIN, member_id="p")
    play.expect_note(NoteKind.STATE_CHANGE, from_state=State.EMPTY, to_state=State.PREPARING, reason=Cause.NEW_MEMBER)
    play.expect_note(NoteKind.STATE_CHANGE, from_state=State.PREPARING, to_state=State.COMPLETING, reason=Cause.JOIN_TIMEOUT)


@scenario("DJ-03")
def test_an_old_client_is_added_at_once(play: Play) -> None:
    joining = play.join("p", version=3).expect_parked()
    assert play.expect_group_record("new group").members == []
    play.at(3_000)
    joining.expect(generation=1, at=3_000)


@scenario("DJ-04")
def test_an_unknown_id_makes_no_group(play: Play) -> None:
    play.join("x", id="x").expect(ErrorCode.UNKNOWN_MEMBER_ID, id="x")
    play.group_is_absent()
    play.expect_records()


@scenario("DJ-05")
def test_an_unknown_member_id_is_refused_by_an_existing_group(play: Play) -> None:
    play.one_dynamic()
    play.join("x", id="x").expect(ErrorCode.UNKNOWN_MEMBER_ID, id="x")
    play.group_is(State.STABLE, generation=1, members=["a"])


@scenario("DJ-06")
def test_an_unused_member_id_expires_after_one_session(play: Play) -> None:
    play.join("p", version=4, session=6_000)
    play.at(5_999).group_is(State.EMPTY, generation=0, pending=["p"])
    play.at(6_000).group_is(State.EMPTY, generation=0, pending=[])
    play.expect_note(NoteKind.MEMBER_GONE, member_id="p", how=Removal.PENDING_EXPIRED)


@scenario("DJ-07")
def test_a_second_join_replaces_a_parked_join_z2(play: Play) -> None:
    play.join("p", version=4)
    first = play.join("p")
    second = play.join("p").expect_parked()
    first.expect(ErrorCode.UNKNOWN_MEMBER_ID, id="", at=0)  # Kafka never answers this request
    play.at(3_000)
    second.expect(generation=1, members=["p"], at=3_000)


@scenario("DJ-08")
def test_a_pending_id_is_unknown_before_it_joins(play: Play) -> None:
    play.join("p", version=4)
    play.heartbeat("p", 0).expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.sync("p", generation=0).expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.heartbeat("p", -1).expect(ErrorCode.UNKNOWN_MEMBER_ID)


@scenario("DJ-09")
def test_a_pending_id_is_unknown_to_a_stable_group(play: Play) -> None:
    play.one_dynamic()
    play.join("p").expect(ErrorCode.MEMBER_ID_REQUIRED)
    play.heartbeat("p", 1).expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.sync("p", generation=1).expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.group_is(State.STABLE, generation=1, members=["a"], pending=["p"])


@scenario("DJ-10")
def test_an_id_of_a_dynamic_member_cannot_become_static_z8(play: Play) -> None:
    play.join("p", version=4)
    play.join("p", instance="ip").expect(ErrorCode.UNKNOWN_SERVER_ERROR)
    play.group_is(State.EMPTY, pending=["p"])
    play.join("p", instance=None).expect_parked()
    play.group_is(State.PREPARING, members=["p"], pending=[])


@scenario("DJ-11")
def test_a_join_without_protocols_is_refused_but_makes_the_group(play: Play) -> None:
    play.join("p", protocols=[]).expect(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, id="")
    play.group_is(State.EMPTY, generation=0, members=[], pending=[])
    play.expect_records("new group")


@scenario("DJ-12")
def test_a_join_without_a_protocol_type_is_refused(play: Play) -> None:
    play.join("p", protocols=[])
    play.expect_records("new group")
    play.join("q", type="").expect(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, id="")
    play.expect_records()


@scenario("DJ-13")
def test_an_empty_group_may_change_its_protocol_type(play: Play) -> None:
    play.one_dynamic()
    play.leave("a").expect()
    play.expect_records("empty group")
    joining = play.join("b", protocols=["roundrobin"], type="connect", version=3).expect_parked()
    play.at(3_000)
    joining.expect(generation=3, type="connect", protocol="roundrobin", at=3_000)


@scenario("DJ-14")
def test_another_protocol_type_is_refused_while_the_group_has_members(play: Play) -> None:
    play.one_dynamic()
    play.join("b", type="connect").expect(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, id="")


@scenario("DJ-15")
def test_the_protocol_is_checked_before_an_id_is_handed_out(play: Play) -> None:
    play.one_dynamic()
    play.join("b", protocols=["roundrobin"]).expect(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, id="")
    play.group_is(State.STABLE, members=["a"], pending=[])


@scenario("DJ-16")
def test_a_newcomer_starts_a_rebalance_with_the_present_members(play: Play) -> None:
    play.one_dynamic()
    play.join("b").expect(ErrorCode.MEMBER_ID_REQUIRED)
    b = play.join("b").expect_parked()
    play.group_is(State.PREPARING, generation=1)
    play.heartbeat("a", 1).expect(ErrorCode.REBALANCE_IN_PROGRESS)
    a = play.join("a")
    b.expect(generation=2, leader="a", members=[], id="b")
    a.expect(generation=2, leader="a", members=["a", "b"], id="a")
    play.expect_records()


@scenario("DJ-17")
def test_the_record_of_a_generation_has_the_end_of_its_join_phase(play: Play) -> None:
    play.one_dynamic()
    play.join("b", version=3)
    play.after(500)
    play.join("a")
    joined_ms = play.now
    play.after(700)
    b = play.sync("b", generation=2).expect_parked()
    a = play.sync("a", {"a": 1, "b": 2}, generation=2)
    a.expect(assignment=1)
    b.expect(assignment=2)
    play.group_is(State.STABLE, generation=2)
    group_record = play.expect_group_record("assignments")
    assert (group_record.generation, group_record.current_state_timestamp) == (2, joined_ms)
    assert [(member.member_id, member.assignment) for member in group_record.members] == [(play.id_of("a"), b"\1"), (play.id_of("b"), b"\2")]


@scenario("DJ-18")
def test_a_leader_that_joins_again_unchanged_begins_a_rebalance(play: Play) -> None:
    play.two_dynamic()
    a = play.join("a").expect_parked()
    play.join("b").expect(generation=2, members=[])
    a.expect(generation=2, members=["a", "b"])
    play.expect_note(NoteKind.STATE_CHANGE, to_state=State.PREPARING, reason=Cause.LEADER_REJOINED)


@scenario("DJ-19")
def test_a_follower_that_joins_again_unchanged_is_answered_at_once(play: Play) -> None:
    play.two_dynamic()
    play.join("b").expect(generation=1, leader="a", members=[], id="b", protocol="range", type="consumer", at=0)
    play.group_is(State.STABLE, generation=1)
    play.expect_records()


@scenario("DJ-20")
def test_a_follower_with_other_metadata_begins_a_rebalance(play: Play) -> None:
    play.two_dynamic()
    play.join("b", metadata=T0_T1).expect_parked()
    play.group_is(State.PREPARING)
    play.heartbeat("a", 1).expect(ErrorCode.REBALANCE_IN_PROGRESS)
    play.expect_note(NoteKind.STATE_CHANGE, to_state=State.PREPARING, reason=Cause.MEMBER_METADATA_CHANGED)


@scenario("DJ-21")
def test_a_changed_order_of_protocols_causes_a_rebalance(play: Play) -> None:
    play.two_dynamic(protocols=["range", "roundrobin"])
    play.join("b", protocols=["roundrobin", "range"]).expect_parked()
    play.group_is(State.PREPARING)


@scenario("DJ-22")
def test_members_that_lost_their_answer_get_the_generation_again(play: Play) -> None:
    play.two_awaiting_assignment(static=False)
    play.join("a").expect(generation=1, leader="a", members=["a", "b"], at=0)
    play.join("b").expect(generation=1, leader="a", members=[], at=0)
    play.group_is(State.COMPLETING, generation=1)


@scenario("DJ-23")
def test_changed_metadata_while_assignments_are_awaited_begins_a_rebalance(play: Play) -> None:
    waiting = play.follower_awaits_assignment(static=False)
    b = play.join("b", metadata=T0_T1)
    waiting.expect(ErrorCode.REBALANCE_IN_PROGRESS)
    play.group_is(State.PREPARING)
    play.join("a").expect(generation=2, members=["a", "b"])
    b.expect(generation=2)


@scenario("DJ-24")
def test_a_member_that_left_cannot_come_back_under_its_id(play: Play) -> None:
    play.one_dynamic()
    play.leave("a")
    play.group_is(State.EMPTY, generation=2)
    play.join("a").expect(ErrorCode.UNKNOWN_MEMBER_ID, id="a")


@scenario("DJ-25")
def test_a_second_parked_join_replaces_the_first_and_gets_the_generation_z2(play: Play) -> None:
    play.two_dynamic()
    play.join("c", version=3).expect_parked()
    first = play.join("b")
    second = play.join("b", metadata=T0_T1)
    first.expect(ErrorCode.UNKNOWN_MEMBER_ID, id="")  # Kafka never answers this request
    play.join("a")
    second.expect(generation=2)


@scenario("DJ-26")
def test_a_members_previous_protocols_count_when_it_changes_them(play: Play) -> None:
    play.one_dynamic()
    play.join("a", protocols=["roundrobin"]).expect(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, id="a")


@scenario("DJ-27")
def test_a_member_alone_changes_protocols_by_offering_both(play: Play) -> None:
    play.one_dynamic()
    play.join("a", protocols=["roundrobin", "range"]).expect(generation=2, protocol="roundrobin", at=0)


@scenario("DJ-28")
def test_the_join_phase_waits_for_pending_ids(play: Play) -> None:
    play.one_dynamic()
    play.join("p")
    play.join("q")
    p = play.join("p").expect_parked()
    a = play.join("a").expect_parked()
    q = play.join("q")
    a.expect(generation=2, members=["a", "p", "q"])
    p.expect(generation=2)
    q.expect(generation=2)


@scenario("DJ-29")
def test_an_id_that_expires_does_not_disturb_a_stable_group(play: Play) -> None:
    play.one_dynamic()
    play.join("p", session=6_000)
    play.keep_alive("a").at(5_999).group_is(State.STABLE, pending=["p"])
    play.at(6_000).group_is(State.STABLE, generation=1, members=["a"], pending=[])


@scenario("DJ-30")
def test_an_old_client_that_joins_twice_is_two_members(play: Play) -> None:
    play.one_dynamic()
    play.join("b", version=3).expect_parked()
    play.join("b2", version=3).expect_parked()
    play.join("a").expect(generation=2, members=["a", "b", "b2"])


@scenario("DJ-31")
def test_an_unchanged_follower_cannot_change_its_timeouts(play: Play) -> None:
    play.two_dynamic()
    play.join("b", session=30_000, rebalance=1).expect(generation=1)
    assert play.session_left("b") == 10_000
    play.after(1_000).heartbeat("b").expect()
    assert play.session_left("b") == 10_000


@scenario("DJ-32")
def test_a_rejoining_leaders_new_timeouts_apply_to_the_next_generation(play: Play) -> None:
    play.one_dynamic()
    play.join("a", session=30_000, rebalance=7_000).expect(generation=2, at=0)
    assert play.session_left("a") == 30_000
    assert play.phase_left() == 7_000


@scenario("DJ-33")
def test_the_join_phase_still_waits_for_a_member_whose_join_was_refused(play: Play) -> None:
    play.two_dynamic()
    b = play.join("b", metadata=T0_T1).expect_parked()
    play.join("a", protocols=["sticky"]).expect(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, id="a")
    play.join("a", protocols=["range"], type="connect").expect(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, id="a")
    b.expect_parked()
    play.join("a", type="consumer").expect(generation=2, members=["a", "b"])
    b.expect(generation=2)


@scenario("DJ-34")
def test_a_dynamic_member_that_claims_an_instance_is_unknown(play: Play) -> None:
    play.two_dynamic()
    play.heartbeat("b", instance="ib").expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.sync("b", instance="ib").expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.leave(("b", "ib")).expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.join("b", instance="ib").expect(ErrorCode.UNKNOWN_MEMBER_ID, id="b")
    play.heartbeat("b", instance=None).expect()


@scenario("DJ-35")
def test_a_pending_id_before_the_assignment_causes_no_rebalance(play: Play) -> None:
    waiting = play.follower_awaits_assignment()
    play.join("p").expect(ErrorCode.MEMBER_ID_REQUIRED)
    play.group_is(State.COMPLETING, generation=1)
    waiting.expect_parked()


@scenario("DJ-36")
def test_a_new_member_while_assignments_are_awaited_begins_a_rebalance(play: Play) -> None:
    waiting = play.follower_awaits_assignment()
    play.join("p")
    p = play.join("p").expect_parked()
    waiting.expect(ErrorCode.REBALANCE_IN_PROGRESS)
    play.join("a").expect_parked()
    play.join("b").expect(generation=2)
    play.expect("a", generation=2, members=["a", "b", "p"])
    p.expect(generation=2)


@scenario("DJ-37")
def test_a_second_sync_replaces_the_first_which_gets_rebalance_in_progress_z2(play: Play) -> None:
    first = play.follower_awaits_assignment()
    play.join("b").expect(generation=1, at=0)
    first.expect_parked()
    second = play.sync("b").expect_parked()
    first.expect(ErrorCode.REBALANCE_IN_PROGRESS)  # Kafka never answers this request
    play.sync("a", {"a": 1, "b": 2}).expect(assignment=1)
    second.expect(assignment=2)


@pytest.mark.parametrize("session", [row("DJ-38", 5_999), row("DJ-38", 1_800_001)])
def test_session_timeouts_have_bounds(play: Play, session: int) -> None:
    play.join("p", session=session).expect(ErrorCode.INVALID_SESSION_TIMEOUT, id="")
    play.group_is_absent()
    play.one_dynamic()
    play.join("x", id="x", session=session).expect(ErrorCode.INVALID_SESSION_TIMEOUT, id="x")
    play.join("q", session=session).expect(ErrorCode.INVALID_SESSION_TIMEOUT, id="")
    play.group_is(State.STABLE, members=["a"], pending=[])


@pytest.mark.parametrize("session", [row("DJ-38", 6_000), row("DJ-38", 1_800_000)])
def test_the_bounds_of_session_timeouts_are_allowed(play: Play, session: int) -> None:
    play.join("p", session=session).expect(ErrorCode.MEMBER_ID_REQUIRED)


@scenario("DJ-39")
def test_a_group_without_a_name_cannot_be_joined(play: Play) -> None:
    play.join("p", group="").expect(ErrorCode.INVALID_GROUP_ID, id="")
    play.join("x", id="x", group="").expect(ErrorCode.INVALID_GROUP_ID, id="x")
    play.join("x", id="x", group="", session=1).expect(ErrorCode.INVALID_GROUP_ID, id="x")  # before its session timeout is checked
    assert not play.listed()


@scenario("DJ-40")
def test_a_client_without_a_name_gets_an_id_that_begins_with_a_dash(play: Play) -> None:
    joining = play.join("p", client="")
    joining.expect(ErrorCode.MEMBER_ID_REQUIRED)
    assert joining.member_id == "-p"


def test_an_instance_id_is_checked_before_a_rebalance_begins(play: Play) -> None:
    play.two_static()
    play.join("x", id="x", instance="ia").expect(ErrorCode.FENCED_INSTANCE_ID, id="x")
    play.group_is(State.STABLE, generation=1)
