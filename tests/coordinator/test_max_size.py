"""group.max.size: section 10 of the conformance catalogue."""

from __future__ import annotations

import pytest

from coordinator.notes import Kind, Removal
from coordinator.states import State
from protocol.errors import ErrorCode
from tests.coordinator.playbook import Play, scenario

pytestmark = pytest.mark.once  # pure rules: one Python speaks for all


@pytest.fixture
def two(play: Play) -> Play:
    """Groups of two at most."""
    play.configure(group_max_size=2)
    return play


@pytest.fixture
def one(play: Play) -> Play:
    play.configure(group_max_size=1)
    return play


@scenario("MX-01")
def test_a_pending_member_of_a_full_group_is_refused_and_forgotten(two: Play) -> None:
    for name in ("a", "b", "c"):
        two.join(name).expect(ErrorCode.MEMBER_ID_REQUIRED)
    two.join("a").parks()
    two.join("b").parks()
    two.join("c").expect(ErrorCode.GROUP_MAX_SIZE_REACHED, id="")
    two.group_is(State.PREPARING, members=["a", "b"], pending=[])
    two.at(6_000)  # b extended the initial delay once
    two.expect("a", generation=1, leader="a", members=["a", "b"], at=6_000)
    two.expect("b", generation=1, members=[])


@scenario("MX-02")
def test_a_full_group_refuses_an_id_that_it_has_already_given_up(one: Play) -> None:
    one.join("a").expect(ErrorCode.MEMBER_ID_REQUIRED)
    one.join("b").expect(ErrorCode.MEMBER_ID_REQUIRED)
    one.join("a").parks()
    one.at(3_000).group_is(State.COMPLETING, members=["a"], pending=["b"])
    one.join("b").expect(ErrorCode.GROUP_MAX_SIZE_REACHED, id="")
    one.group_is(State.COMPLETING, members=["a"], pending=[])
    one.join("b").expect(ErrorCode.GROUP_MAX_SIZE_REACHED, id="")
    one.group_is(State.COMPLETING, members=["a"], pending=[])


@scenario("MX-03")
def test_a_full_group_hands_out_no_ids(two: Play) -> None:
    two.s2()
    two.join("x").expect(ErrorCode.GROUP_MAX_SIZE_REACHED, id="")
    two.group_is(State.STABLE, generation=1, members=["a", "b"], pending=[])
    two.wrote()


@scenario("MX-04")
def test_a_full_group_refuses_a_new_instance(two: Play) -> None:
    two.s2()
    two.join("c", instance="ic").expect(ErrorCode.GROUP_MAX_SIZE_REACHED, id="")
    two.group_is(State.STABLE, generation=1, members=["a", "b"])


@scenario("MX-05", "JR-14")
def test_a_full_group_refuses_even_a_static_member_that_restarts(two: Play) -> None:
    two.s2()
    two.join("b'").expect(ErrorCode.GROUP_MAX_SIZE_REACHED, id="")
    two.heartbeat("b").expect(ErrorCode.NONE)
    two.group_is(State.STABLE, generation=1, members=["a", "b"])
    two.wrote()


@scenario("MX-06")
def test_a_member_of_a_full_group_may_join_again(two: Play) -> None:
    two.s2()
    two.join("b").expect(generation=1, members=[])


@scenario("MX-07")
def test_a_static_member_may_restart_while_a_full_group_rebalances_and_not_all_are_back(two: Play) -> None:
    parked = two.p2()
    two.join("b'").expect(generation=2, id="b'", members=[])
    parked.expect(generation=2, leader="a", members=["a", "b'"])


def one_restarted_while_parked(play: Play) -> None:
    parked = play.p2()
    play.join("a'").parks()
    parked.expect(ErrorCode.FENCED_INSTANCE_ID, id="a")


@scenario("MX-08")
def test_a_static_member_that_waits_may_restart_while_a_full_group_rebalances(two: Play) -> None:
    one_restarted_while_parked(two)
    two.group_is(State.PREPARING, leader="a'", members=["a'", "b"])


def b_came_too_late(play: Play) -> None:
    one_restarted_while_parked(play)
    play.join("x", instance="ix").parks()
    play.join("y", instance="iy").expect(ErrorCode.GROUP_MAX_SIZE_REACHED, id="")
    play.join("b").expect(ErrorCode.GROUP_MAX_SIZE_REACHED, id="")


@scenario("MX-09", "JR-09")
def test_a_member_for_which_newcomers_left_no_room_is_put_out_with_its_instance(two: Play) -> None:
    b_came_too_late(two)
    two.group_is(State.PREPARING, members=["a'", "x"])
    assert set(two.group().statics) == {"ia", "ix"}
    two.noted(Kind.MEMBER_GONE, member_id="b", how=Removal.OVER_MAX_SIZE)


@scenario("MX-10")
def test_putting_out_the_last_one_missing_does_not_end_the_join_phase(two: Play) -> None:
    b_came_too_late(two)
    two.at(19_999).group_is(State.PREPARING, generation=1)
    two.at(20_000)
    two.expect("a'", generation=2, leader="a'", members=["a'", "x"], at=20_000)
    two.expect("x", generation=2, members=[])


@scenario("MX-11")
def test_there_is_room_once_somebody_has_left(one: Play) -> None:
    one.s1()
    one.join("b", instance="ib").expect(ErrorCode.GROUP_MAX_SIZE_REACHED, id="")
    one.leave(("", "ia")).expect(ErrorCode.NONE)
    one.join("b", id="").parks()


@scenario("MX-12")
def test_newcomers_are_counted_while_a_new_group_waits_for_them(one: Play) -> None:
    one.join("a", instance="ia").parks()
    one.join("b", instance="ib").expect(ErrorCode.GROUP_MAX_SIZE_REACHED, id="")
    one.at(3_000).expect("a", generation=1, members=["a"])


@scenario("MX-13", "JR-09")
def test_a_loaded_group_above_the_maximum_calls_its_members_back_and_has_room_for_the_first(two: Play) -> None:
    two.f2(count=3)
    two.group_is(State.PREPARING, generation=7, members=["m0", "m1", "m2"])
    assert two.phase_left() == 5_000
    two.heartbeat("m0").expect(ErrorCode.REBALANCE_IN_PROGRESS)
    two.join("m0").parks()
    two.join("m1").parks()
    two.join("m2").expect(ErrorCode.GROUP_MAX_SIZE_REACHED, id="")
    two.heartbeat("m2").expect(ErrorCode.UNKNOWN_MEMBER_ID)
    two.at(4_999).group_is(State.PREPARING)
    two.at(5_000)
    two.expect("m0", generation=8, leader="m0", members=["m0", "m1"], at=5_000)
    two.expect("m1", generation=8, members=[])


@scenario("MX-13")
def test_a_loaded_group_at_its_maximum_size_does_not_rebalance(two: Play) -> None:
    two.f2(count=2)
    two.group_is(State.STABLE, generation=7)


@scenario("MX-14")
def test_static_members_that_stay_away_leave_a_loaded_group_above_the_maximum(two: Play) -> None:
    two.f2s(count=3)
    two.alive("m2")
    two.join("m0").parks()
    two.join("m1").parks()
    two.at(5_000)
    two.expect("m0", generation=8, leader="m0", members=["m0", "m1", "m2"], at=5_000)


@scenario("MX-15")
def test_an_empty_group_has_room_whoever_is_pending(one: Play) -> None:
    one.d1().leave("a").expect(ErrorCode.NONE)
    for name in ("p", "q", "r"):
        one.join(name).expect(ErrorCode.MEMBER_ID_REQUIRED)
    one.join("q").parks()
