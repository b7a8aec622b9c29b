"""Catalogue, section 5: the initial rebalance delay."""

from __future__ import annotations

import pytest

from coordinator.states import State
from protocol.errors import ErrorCode
from tests.coordinator.playbook import T0_T1, Play, row, scenario

pytestmark = pytest.mark.once  # no dependence on the Python version


@scenario("IR-01")
def test_a_member_alone_waits_for_the_initial_delay(play: Play) -> None:
    joining = play.join("a", instance="ia")
    play.at(2_999).group_is(State.PREPARING)
    joining.expect_parked()
    play.at(3_000)
    joining.expect(generation=1)


@scenario("IR-02")
def test_new_members_extend_the_delay_up_to_the_rebalance_timeout(play: Play) -> None:
    first = play.join("a", rebalance=7_000, version=3)
    for name, ms in (("b", 100), ("c", 3_100), ("d", 6_100)):
        play.at(ms).join(name, version=3).expect_parked()
    play.at(20_000)
    first.expect(generation=1, members=["a", "b", "c", "d"], at=7_000)


@scenario("IR-03")
def test_a_short_rebalance_timeout_neither_shortens_nor_extends_the_delay(play: Play) -> None:
    first = play.join("a", rebalance=1_000, version=3)
    play.at(100).join("b", rebalance=1_000, version=3)
    play.at(20_000)
    first.expect(generation=1, members=["a", "b"], at=3_000)


@scenario("IR-04")
def test_each_new_member_extends_the_initial_delay_once(play: Play) -> None:
    first = play.join("a", version=3)
    second = play.at(100).join("b", version=3)
    play.at(20_000)
    first.expect(generation=1, members=["a", "b"], at=6_000)
    second.expect(generation=1, at=6_000)


@scenario("IR-05")
def test_without_a_delay_simultaneous_joins_form_one_generation(play: Play) -> None:
    play.configure(group_initial_rebalance_delay_ms=0)
    a = play.join("a", instance="ia").expect_parked()
    b = play.join("b", instance="ib").expect_parked()
    play.after(0)
    a.expect(generation=1, members=["a", "b"], at=0)
    b.expect(generation=1, at=0)


@scenario("IR-06")
def test_a_pending_member_id_does_not_extend_the_delay_and_stays_valid(play: Play) -> None:
    first = play.join("a", instance="ia")
    play.at(100).join("p").expect(ErrorCode.MEMBER_ID_REQUIRED)
    play.at(3_000)
    first.expect(generation=1, members=["a"], at=3_000)
    play.group_is(play.group().state, pending=["p"])


@scenario("IR-07")
def test_an_expired_pending_id_ends_the_phase_if_all_members_have_joined(play: Play) -> None:
    play.configure(group_initial_rebalance_delay_ms=10_000)
    play.join("p", session=6_000)
    first = play.join("a", instance="ia")
    play.at(20_000)
    first.expect(generation=1, members=["a"], at=6_000)


@scenario("IR-08")
def test_a_leaving_pending_id_does_not_end_the_initial_phase(play: Play) -> None:
    play.configure(group_initial_rebalance_delay_ms=10_000)
    play.join("p", session=6_000)
    first = play.join("a", instance="ia")
    play.leave(("p", None)).expect()
    play.at(20_000)
    first.expect(generation=1, at=10_000)


@scenario("IR-09")
def test_a_removed_member_does_not_change_the_initial_delay(play: Play) -> None:
    a = play.join("a", instance="ia")
    b = play.join("b", instance="ib")
    play.leave(("", "ia")).expect()
    a.expect(ErrorCode.UNKNOWN_MEMBER_ID, id="", at=0)
    play.group_is(State.PREPARING, leader="b", members=["b"])
    play.at(20_000)
    b.expect(generation=1, leader="b", members=["b"], at=6_000)


@scenario("IR-10")
def test_a_join_phase_without_members_ends(play: Play) -> None:
    play.join("a", instance="ia")
    play.expect_records("new group")
    play.leave(("", "ia")).expect()
    play.at(2_999).group_is(State.PREPARING, generation=0, members=[])
    play.expect_records()
    play.at(3_000).group_is(State.EMPTY, generation=1)
    play.expect_records("empty group")


@scenario("IR-11")
def test_a_new_initial_phase_begins_after_all_members_left(play: Play) -> None:
    play.join("a", instance="ia")
    play.leave(("", "ia"))
    play.at(3_000)
    rejoined = play.join("a'").expect_parked()
    play.at(20_000)
    rejoined.expect(generation=2, members=["a'"], at=6_000)


@scenario("IR-12")
def test_an_initial_phase_that_used_up_its_extensions_does_not_shorten_the_next(play: Play) -> None:
    play.configure(group_initial_rebalance_delay_ms=1_000)
    play.joined("a", "b", rebalance=1_000)
    play.leave("a", "b").expect(0, 0)
    play.group_is(State.EMPTY)
    joining = play.join("c", rebalance=5_000, version=3)
    play.at(1_999)
    joining.expect_parked()
    play.at(2_000)
    joining.expect(at=2_000)


@scenario("IR-13")
def test_a_member_that_joins_again_does_not_change_the_initial_delay(play: Play) -> None:
    play.join("a", version=3)
    play.at(1_000)
    rejoined = play.join("a", metadata=T0_T1).expect_parked()
    play.group_is(State.PREPARING, generation=0)
    play.at(20_000)
    rejoined.expect(generation=1, at=3_000)
    assert rejoined.reply.members[0][2] == T0_T1


@scenario("IR-14")
def test_an_empty_group_that_is_joined_waits_again(play: Play) -> None:
    play.one_dynamic()
    play.leave("a")
    play.group_is(State.EMPTY, generation=2)
    joining = play.join("b", instance="ib").expect_parked()
    play.at(20_000)
    joining.expect(generation=3, at=3_000)


@pytest.mark.parametrize("rebalance", [row("IR-03", 0), row("IR-03", -1)])
def test_no_rebalance_timeout_is_too_short_for_the_delay(play: Play, rebalance: int) -> None:
    joining = play.join("a", rebalance=rebalance, version=3)
    play.at(3_000)
    joining.expect(generation=1, at=3_000)
