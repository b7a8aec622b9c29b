"""group.max.size: section 10 of the conformance catalogue."""

from __future__ import annotations

import pytest

from coordinator.notes import Removal
from coordinator.states import State
from protocol.errors import ErrorCode
from protocol.messages.kinds import NoteKind
from tests.coordinator.playbook import Play, scenario

pytestmark = pytest.mark.once  # no dependence on the Python version


@pytest.fixture
def size_two(play: Play) -> Play:
    """Groups of at most two members."""
    play.configure(group_max_size=2)
    return play


@pytest.fixture
def size_one(play: Play) -> Play:
    play.configure(group_max_size=1)
    return play


@scenario("MX-01")
def test_a_pending_member_of_a_full_group_is_refused_and_forgotten(size_two: Play) -> None:
    for name in ("a", "b", "c"):
        size_two.join(name).expect(ErrorCode.MEMBER_ID_REQUIRED)
    size_two.join("a").expect_parked()
    size_two.join("b").expect_parked()
    size_two.join("c").expect(ErrorCode.GROUP_MAX_SIZE_REACHED, id="")
    size_two.group_is(State.PREPARING, members=["a", "b"], pending=[])
    size_two.at(6_000)  # b extended the initial delay once
    size_two.expect("a", generation=1, leader="a", members=["a", "b"], at=6_000)
    size_two.expect("b", generation=1, members=[])


@scenario("MX-02")
def test_a_full_group_refuses_an_expired_member_id(size_one: Play) -> None:
    size_one.join("a").expect(ErrorCode.MEMBER_ID_REQUIRED)
    size_one.join("b").expect(ErrorCode.MEMBER_ID_REQUIRED)
    size_one.join("a").expect_parked()
    size_one.at(3_000).group_is(State.COMPLETING, members=["a"], pending=["b"])
    size_one.join("b").expect(ErrorCode.GROUP_MAX_SIZE_REACHED, id="")
    size_one.group_is(State.COMPLETING, members=["a"], pending=[])
    size_one.join("b").expect(ErrorCode.GROUP_MAX_SIZE_REACHED, id="")
    size_one.group_is(State.COMPLETING, members=["a"], pending=[])


@scenario("MX-03")
def test_a_full_group_hands_out_no_ids(size_two: Play) -> None:
    size_two.two_static()
    size_two.join("x").expect(ErrorCode.GROUP_MAX_SIZE_REACHED, id="")
    size_two.group_is(State.STABLE, generation=1, members=["a", "b"], pending=[])
    size_two.expect_records()


@scenario("MX-04")
def test_a_full_group_refuses_a_new_instance(size_two: Play) -> None:
    size_two.two_static()
    size_two.join("c", instance="ic").expect(ErrorCode.GROUP_MAX_SIZE_REACHED, id="")
    size_two.group_is(State.STABLE, generation=1, members=["a", "b"])


@scenario("MX-05", "JR-14")
def test_a_full_group_refuses_even_a_static_member_that_restarts(size_two: Play) -> None:
    size_two.two_static()
    size_two.join("b'").expect(ErrorCode.GROUP_MAX_SIZE_REACHED, id="")
    size_two.heartbeat("b").expect(ErrorCode.NONE)
    size_two.group_is(State.STABLE, generation=1, members=["a", "b"])
    size_two.expect_records()


@scenario("MX-06")
def test_a_member_of_a_full_group_may_join_again(size_two: Play) -> None:
    size_two.two_static()
    size_two.join("b").expect(generation=1, members=[])


@scenario("MX-07")
def test_a_static_member_may_restart_while_a_full_group_waits_for_rejoins(size_two: Play) -> None:
    parked = size_two.leader_rejoins()
    size_two.join("b'").expect(generation=2, id="b'", members=[])
    parked.expect(generation=2, leader="a", members=["a", "b'"])


def one_restarted_while_parked(play: Play) -> None:
    parked = play.leader_rejoins()
    play.join("a'").expect_parked()
    parked.expect(ErrorCode.FENCED_INSTANCE_ID, id="a")


@scenario("MX-08")
def test_a_parked_static_member_may_restart_while_a_full_group_rebalances(size_two: Play) -> None:
    one_restarted_while_parked(size_two)
    size_two.group_is(State.PREPARING, leader="a'", members=["a'", "b"])


def b_came_too_late(play: Play) -> None:
    one_restarted_while_parked(play)
    play.join("x", instance="ix").expect_parked()
    play.join("y", instance="iy").expect(ErrorCode.GROUP_MAX_SIZE_REACHED, id="")
    play.join("b").expect(ErrorCode.GROUP_MAX_SIZE_REACHED, id="")


@scenario("MX-09", "JR-09")
def test_a_late_member_is_removed_with_its_instance_when_newcomers_filled_the_group(size_two: Play) -> None:
    b_came_too_late(size_two)
    size_two.group_is(State.PREPARING, members=["a'", "x"])
    assert set(size_two.group().static_members) == {"ia", "ix"}
    size_two.expect_note(NoteKind.MEMBER_GONE, member_id="b", how=Removal.OVER_MAX_SIZE)


@scenario("MX-10")
def test_removing_the_last_missing_member_of_a_full_group_does_not_end_the_join_phase(size_two: Play) -> None:
    b_came_too_late(size_two)
    size_two.at(19_999).group_is(State.PREPARING, generation=1)
    size_two.at(20_000)
    size_two.expect("a'", generation=2, leader="a'", members=["a'", "x"], at=20_000)
    size_two.expect("x", generation=2, members=[])


@scenario("MX-11")
def test_a_full_group_accepts_a_newcomer_after_a_member_left(size_one: Play) -> None:
    size_one.one_static()
    size_one.join("b", instance="ib").expect(ErrorCode.GROUP_MAX_SIZE_REACHED, id="")
    size_one.leave(("", "ia")).expect(ErrorCode.NONE)
    size_one.join("b", id="").expect_parked()


@scenario("MX-12")
def test_newcomers_are_counted_while_a_new_group_waits_for_them(size_one: Play) -> None:
    size_one.join("a", instance="ia").expect_parked()
    size_one.join("b", instance="ib").expect(ErrorCode.GROUP_MAX_SIZE_REACHED, id="")
    size_one.at(3_000).expect("a", generation=1, members=["a"])


@scenario("MX-13", "JR-09")
def test_a_loaded_group_above_the_maximum_rebalances_and_keeps_the_first_to_rejoin(size_two: Play) -> None:
    size_two.two_loaded(count=3)
    size_two.group_is(State.PREPARING, generation=7, members=["m0", "m1", "m2"])
    assert size_two.phase_left() == 5_000
    size_two.heartbeat("m0").expect(ErrorCode.REBALANCE_IN_PROGRESS)
    size_two.join("m0").expect_parked()
    size_two.join("m1").expect_parked()
    size_two.join("m2").expect(ErrorCode.GROUP_MAX_SIZE_REACHED, id="")
    size_two.heartbeat("m2").expect(ErrorCode.UNKNOWN_MEMBER_ID)
    size_two.at(4_999).group_is(State.PREPARING)
    size_two.at(5_000)
    size_two.expect("m0", generation=8, leader="m0", members=["m0", "m1"], at=5_000)
    size_two.expect("m1", generation=8, members=[])


@scenario("MX-13")
def test_a_loaded_group_at_its_maximum_size_does_not_rebalance(size_two: Play) -> None:
    size_two.two_loaded(count=2)
    size_two.group_is(State.STABLE, generation=7)


@scenario("MX-14")
def test_static_members_that_do_not_rejoin_keep_a_loaded_group_above_the_maximum(size_two: Play) -> None:
    size_two.two_loaded_static(count=3)
    size_two.keep_alive("m2")
    size_two.join("m0").expect_parked()
    size_two.join("m1").expect_parked()
    size_two.at(5_000)
    size_two.expect("m0", generation=8, leader="m0", members=["m0", "m1", "m2"], at=5_000)


@scenario("MX-15")
def test_an_empty_group_has_room_despite_pending_ids(size_one: Play) -> None:
    size_one.one_dynamic().leave("a").expect(ErrorCode.NONE)
    for name in ("p", "q", "r"):
        size_one.join(name).expect(ErrorCode.MEMBER_ID_REQUIRED)
    size_one.join("q").expect_parked()
