"""Zombie members, late and duplicate requests: section 22 of the conformance catalogue."""

from __future__ import annotations

import pytest

from coordinator.states import State
from protocol.errors import ErrorCode
from tests.coordinator.playbook import Play, scenario

pytestmark = pytest.mark.once  # no dependence on the Python version


@scenario("ZB-01", "E2E-06")
@pytest.mark.parametrize("request_of", ["heartbeat", "join", "sync", "commit"])
def test_of_two_processes_with_one_instance_id_the_later_stays(play: Play, request_of: str) -> None:
    play.two_static()
    play.join("b'").expect(generation=1)
    for _ in range(2):
        sent = getattr(play, request_of)("b")
        if request_of == "join":
            sent.expect(ErrorCode.FENCED_INSTANCE_ID, id="b")
        else:
            sent.expect(ErrorCode.FENCED_INSTANCE_ID)
        play.heartbeat("b'").expect(ErrorCode.NONE)
    play.group_is(State.STABLE, generation=1, members=["a", "b'"])


@scenario("ZB-02")
def test_of_two_processes_with_one_instance_that_start_together_the_second_joins(play: Play) -> None:
    first = play.join("a", instance="ia")
    first.expect_parked()
    play.join("a'").expect_parked()
    first.expect(ErrorCode.FENCED_INSTANCE_ID, id="a")
    play.after(3_000).expect("a'", generation=1, leader="a'", members=["a'"])


@scenario("ZB-03")
def test_a_leader_of_the_generation_before_cannot_assign(play: Play) -> None:
    play.two_static()
    play.join("a").expect_parked()
    play.join("b").expect(generation=2)
    play.sync("a", {"a": 7, "b": 8}, generation=1).expect(ErrorCode.ILLEGAL_GENERATION)
    play.group_is(State.COMPLETING, generation=2)
    play.join("a'").expect_parked()
    play.sync("a", {"a": 7, "b": 8}, generation=1).expect(ErrorCode.FENCED_INSTANCE_ID)


@scenario("ZB-04")
def test_only_the_first_assignments_of_a_generation_count(play: Play) -> None:
    play.two_static()
    play.sync("a", {"a": 7, "b": 8}).expect(ErrorCode.NONE, 1)
    play.expect_records()
    play.sync("b").expect(ErrorCode.NONE, 2)


@scenario("ZB-07")
def test_a_dynamic_member_whose_reply_was_lost_becomes_a_new_member(play: Play) -> None:
    play.one_dynamic()
    play.join("b").expect(ErrorCode.MEMBER_ID_REQUIRED)
    play.join("b").expect_parked()
    play.join("a").expect(generation=2, members=["a", "b"])
    play.expect("b", generation=2)  # the reply that is lost, as the connection is dead
    play.join("b'").expect(ErrorCode.MEMBER_ID_REQUIRED)
    play.join("b'").expect_parked()
    play.group_is(State.PREPARING, members=["a", "b", "b'"])
    play.keep_alive("a").at(9_999).group_is(State.PREPARING, members=["a", "b", "b'"])
    play.at(10_000).group_is(State.PREPARING, members=["a", "b'"])
    play.join("a").expect(generation=3, members=["a", "b'"])


@scenario("ZB-08")
def test_a_static_member_whose_reply_was_lost_keeps_its_identity(play: Play) -> None:
    play.two_static()
    for name in ("b'", "b''", "b'''"):
        play.join(name).expect(generation=1, id=name)
    play.group_is(State.STABLE, generation=1, members=["a", "b'''"])


@scenario("ZB-09")
def test_a_heartbeat_is_checked_against_the_groups_generation_not_the_members(play: Play) -> None:
    play.two_dynamic()
    play.join("a").expect_parked()
    play.heartbeat("b", 2).expect(ErrorCode.ILLEGAL_GENERATION)
    play.join("b").expect(generation=2)
    play.heartbeat("b", 2).expect(ErrorCode.NONE)


@scenario("ZB-10", "JR-04")
def test_a_member_removed_for_a_missing_sync_may_not_commit(play: Play) -> None:
    play.settled("a", "b", synced=["a"], rebalance=5_000)
    play.keep_alive("a", "b")
    play.after(5_000).group_is(State.PREPARING, members=["a"])
    play.commit("b", generation=1).expect(ErrorCode.UNKNOWN_MEMBER_ID)


@scenario("ZB-11")
def test_a_member_leaves_once(play: Play) -> None:
    play.two_dynamic()
    play.leave("b").expect(ErrorCode.NONE)
    play.leave("b").expect(ErrorCode.UNKNOWN_MEMBER_ID)


@scenario("ZB-12")
def test_a_heartbeat_read_before_the_session_check_keeps_the_member(play: Play) -> None:
    play.one_static()
    play.at(9_999)
    play.now += 2  # the deadline has passed, and advance() has not run
    play.heartbeat("a").expect(ErrorCode.NONE)
    play.after(0)
    play.group_is(State.STABLE, members=["a"])
    assert play.session_left("a") == 10_000
