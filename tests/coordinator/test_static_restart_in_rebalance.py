"""Catalogue, sections 3.2 and 3.3: the process behind an instance id restarts while its group rebalances."""

from __future__ import annotations

import pytest

from coordinator.notes import Replacement
from coordinator.states import State
from protocol.errors import ErrorCode
from protocol.messages.kinds import NoteKind
from tests.coordinator.playbook import Play, scenario

pytestmark = pytest.mark.once  # no dependence on the Python version


@scenario("SR-40")
def test_the_last_missing_member_may_restart_in_the_join_phase(play: Play) -> None:
    a = play.leader_rejoins()
    restart = play.join("b'")
    a.expect(generation=2, members=["a", "b'"])
    restart.expect(generation=2, id="b'", leader="a")
    group_record = play.expect_group_record("replacement in a rebalance")  # Kafka writes nothing
    assert [(member.member_id, member.assignment) for member in group_record.members] == [("ia-a", b"\1"), ("ib-b'", b"\2")]
    play.expect_note(NoteKind.STATIC_REPLACED, old_id="b", new_id="b'", outcome=Replacement.PREPARING)


@scenario("SR-41")
def test_a_restart_fences_the_parked_join_of_the_old_process(play: Play) -> None:
    play.three_static()
    play.join("a").expect_parked()
    old = play.join("b").expect_parked()
    new = play.join("b'").expect_parked()
    old.expect(ErrorCode.FENCED_INSTANCE_ID, id="b")
    play.join("c").expect(generation=2)
    new.expect(generation=2, id="b'")
    play.expect("a", generation=2, members=["a", "b'", "c"])


@scenario("SR-42")
def test_a_restarted_leader_leads_the_next_generation(play: Play) -> None:
    play.three_static()
    old = play.join("a").expect_parked()
    new = play.join("a'").expect_parked()
    old.expect(ErrorCode.FENCED_INSTANCE_ID, id="a")
    play.join("b").expect_parked()
    play.join("c").expect(generation=2, leader="a'")
    new.expect(generation=2, leader="a'", members=["a'", "b", "c"])
    play.expect("b", generation=2, leader="a'")


@scenario("SR-43")
def test_a_restart_in_the_initial_phase_neither_extends_nor_shortens_it(play: Play) -> None:
    first = play.join("a", instance="ia").expect_parked()
    play.at(1_000)
    second = play.join("a'").expect_parked()
    first.expect(ErrorCode.FENCED_INSTANCE_ID, id="a", at=1_000)
    play.at(10_000)
    second.expect(generation=1, id="a'", leader="a'", members=["a'"], at=3_000)
    assert play.session_left("a'") == 3_000
    play.expect_records("new group")


@scenario("SR-44")
def test_a_restart_that_is_parked_does_not_expire(play: Play) -> None:
    play.configure(group_initial_rebalance_delay_ms=15_000)
    play.join("a", instance="ia")
    second = play.at(1_000).join("a'").expect_parked()
    play.at(14_999)
    second.expect_parked()
    play.at(15_000)
    second.expect(generation=1, at=15_000)


@scenario("SR-45")
def test_a_restart_and_a_newcomer_meet_in_one_generation(play: Play) -> None:
    play.two_static()
    c = play.join("c", instance="ic").expect_parked()
    b = play.join("b'").expect_parked()
    play.join("a").expect(generation=2, members=["a", "b'", "c"])
    b.expect(generation=2, id="b'")
    c.expect(generation=2)


@scenario("SR-50")
def test_a_restart_while_assignments_are_awaited_is_a_rebalance(play: Play) -> None:
    waiting = play.follower_awaits_assignment()
    restart = play.join("b'").expect_parked()
    waiting.expect(ErrorCode.FENCED_INSTANCE_ID)
    play.group_is(State.PREPARING)
    play.join("a").expect(generation=2, members=["a", "b'"])
    restart.expect(generation=2, id="b'")
    play.expect_note(NoteKind.STATIC_REPLACED, new_id="b'", outcome=Replacement.COMPLETING)


@scenario("SR-51")
def test_a_leader_that_restarts_before_assigning_causes_a_rebalance(play: Play) -> None:
    waiting = play.follower_awaits_assignment()
    restart = play.join("a'").expect_parked()
    waiting.expect(ErrorCode.REBALANCE_IN_PROGRESS)
    play.group_is(State.PREPARING, leader="a'")
    play.join("b").expect(generation=2, leader="a'")
    restart.expect(generation=2, leader="a'", members=["a'", "b"])


@scenario("SR-52")
def test_a_restart_after_assignments_in_flight_sees_them_assigned_z17(play: Play) -> None:
    play.two_awaiting_assignment()
    play.hold_appends()
    leader = play.sync("a", {"a": 1, "b": 2}).expect_parked()
    restart = play.join("b'").expect_parked()
    play.confirm()
    leader.expect(assignment=1)  # Kafka: REBALANCE_IN_PROGRESS, and a rebalance
    restart.expect(generation=1, id="b'")
    play.expect_records("assignments", "replacement")
    play.sync("b'", generation=1).expect(assignment=2)


@scenario("SR-53")
def test_a_restart_after_a_failed_assignment_append_is_refused_z17(play: Play) -> None:
    play.two_awaiting_assignment()
    play.hold_appends()
    leader = play.sync("a", {"a": 1, "b": 2}).expect_parked()
    restart = play.join("b'").expect_parked()
    play.fail_log(ErrorCode.NOT_COORDINATOR)
    leader.expect(ErrorCode.NOT_COORDINATOR)
    restart.expect(ErrorCode.NOT_COORDINATOR, id="")
    play.group_is(State.EMPTY, generation=0)


@scenario("SR-54")
def test_a_member_alone_that_restarts_while_it_is_awaited_begins_a_generation_at_once(play: Play) -> None:
    play.joined("a", static=True)
    play.join("a'").expect(generation=2, id="a'", leader="a'", members=["a'"], skip=False, at=0)
    play.group_is(State.COMPLETING, generation=2)
    play.expect_records()


@scenario("SR-55")
def test_a_restart_with_a_protocol_of_its_own_changes_nothing_while_assignments_are_awaited(play: Play) -> None:
    play.two_awaiting_assignment()
    play.join("b'", protocols=["roundrobin"]).expect(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, id="")
    play.group_is(State.COMPLETING, generation=1, members=["a", "b"])
    play.sync("a", {"a": 1, "b": 2}).expect(assignment=1)


def test_only_the_newest_of_many_restarts_is_in_the_next_generation(play: Play) -> None:
    play.three_static()
    a = play.join("a").expect_parked()
    play.join("b'").expect_parked()
    play.join("b''").expect_parked()
    newest = play.join("b'''").expect_parked()
    play.expect("b'", ErrorCode.FENCED_INSTANCE_ID, id="b'")
    play.expect("b''", ErrorCode.FENCED_INSTANCE_ID, id="b''")
    play.join("c").expect(generation=2)
    a.expect(generation=2, members=["a", "b'''", "c"])
    newest.expect(generation=2, id="b'''")


def test_a_failover_after_a_restart_during_a_rebalance_knows_the_new_process_z13(play: Play) -> None:
    a = play.leader_rejoins()
    play.join("b'").expect(generation=2)
    a.expect(generation=2)
    play.expect_records("replacement in a rebalance")
    play.failover()
    play.group_is(State.STABLE, generation=1, members=["a", "b'"])
    play.join("b'").expect(generation=1, at=0)
    play.heartbeat("b", 1).expect(ErrorCode.FENCED_INSTANCE_ID)


def test_the_leaders_new_id_is_stored_as_the_leaders_z13(play: Play) -> None:
    play.two_static()
    play.join("b", metadata=b"").expect_parked()
    play.join("a'").expect(generation=2, leader="a'")
    group_record = play.expect_group_record("replacement in a rebalance")
    assert (group_record.leader, group_record.generation) == ("ia-a'", 1)


def test_a_restart_before_anything_of_the_group_but_offsets_was_stored_stores_no_identities_z13(play: Play) -> None:
    play.commit(None, {("t0", 0): 5})
    play.expect_records("offset")
    play.join("a", instance="ia").expect_parked()
    a = play.at(100).join("a'").expect_parked()
    play.at(3_000)
    a.expect(generation=1, leader="a'", members=["a'"])
    play.expect_records()


def test_a_generation_without_restarts_stores_no_identities_z13(play: Play) -> None:
    a = play.leader_rejoins()
    play.join("b").expect(generation=2)
    a.expect(generation=2)
    play.expect_records()
