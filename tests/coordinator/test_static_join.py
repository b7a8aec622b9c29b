"""Catalogue, section 2: static members that join, and that rejoin with their own id."""

from __future__ import annotations

import pytest

from coordinator.states import State
from protocol.errors import ErrorCode
from tests.coordinator.playbook import Play, scenario

pytestmark = pytest.mark.once  # no dependence on the Python version


@scenario("SJ-01")
def test_a_static_member_joins_at_once_under_an_id_made_from_its_instance(play: Play) -> None:
    joining = play.join("a", instance="ia").expect_parked()
    play.expect_records("new group")
    play.at(3_000)
    joining.expect(generation=1, id="a", at=3_000)
    assert joining.member_id == "ia-a"
    assert joining.reply.members == [("ia-a", "ia", play.group().members["ia-a"].metadata("range"))]


@scenario("SJ-02")
def test_a_static_follower_that_joins_again_unchanged_is_answered_at_once(play: Play) -> None:
    play.two_static()
    play.join("b").expect(generation=1, leader="a", id="b", members=[], at=0)
    play.group_is(State.STABLE, generation=1)


@scenario("SJ-03")
def test_a_static_leader_that_joins_again_begins_a_rebalance(play: Play) -> None:
    play.two_static()
    play.join("a").expect_parked()
    play.group_is(State.PREPARING)


@scenario("SJ-04")
def test_a_static_member_may_leave_its_instance_out(play: Play) -> None:
    play.two_static()
    play.join("b", instance=None).expect(generation=1, id="b", at=0)
    play.group_is(State.STABLE, generation=1)


@pytest.mark.parametrize(("static", "instances"), [({"a", "c"}, ["ia", "ic", None]), ({"b"}, ["ib", None, None])])
def test_the_leaders_member_list_has_static_members_first_in_join_order(play: Play, static: set[str], instances: list[str | None]) -> None:
    """kafka-python's range assignor would assign nothing to a static member listed after a dynamic member."""
    play.settled("a", "b", "c", static=static)
    leads = play.join("a")
    play.join("b")
    play.join("c")
    assert [member[1] for member in leads.reply.members] == instances


@scenario("SJ-05")
def test_members_stay_static_through_a_round_without_instance_ids(play: Play) -> None:
    play.two_static()
    a = play.join("a", instance=None)
    play.join("b", instance=None).expect(generation=2)
    a.expect(generation=2, members=["a", "b"])
    assert [member[1] for member in a.reply.members] == ["ia", "ib"]
    play.sync("a", {"a": 1, "b": 2}, generation=2, instance=None).expect(assignment=1)
    play.sync("b", generation=2, instance=None).expect(assignment=2)
    assert [member.group_instance_id for member in play.expect_group_record("assignments").members] == ["ia", "ib"]


@scenario("SJ-06")
def test_a_member_with_the_instance_id_of_another_member_is_fenced(play: Play) -> None:
    play.two_static()
    play.join("b", instance="ia").expect(ErrorCode.FENCED_INSTANCE_ID, id="b")


@scenario("SJ-07")
def test_a_member_with_an_unknown_instance_id_is_unknown(play: Play) -> None:
    play.two_static()
    play.join("b", instance="zz").expect(ErrorCode.UNKNOWN_MEMBER_ID, id="b")


@scenario("SJ-08")
def test_a_replaced_member_id_with_its_instance_id_is_fenced(play: Play) -> None:
    play.two_static()
    play.join("gone", id="gone", instance="ib").expect(ErrorCode.FENCED_INSTANCE_ID, id="gone")


@scenario("SJ-09")
def test_the_empty_string_is_an_instance(play: Play) -> None:
    first = play.join("a", instance="").expect_parked()
    assert play.id_of("a") == "-a"
    second = play.join("a'", instance="").expect_parked()
    first.expect(ErrorCode.FENCED_INSTANCE_ID, id="a")
    play.group_is(State.PREPARING, members=["a'"])
    play.at(3_000)
    second.expect(generation=1, id="a'", members=["a'"])
    assert second.reply.members[0][1] == ""


@scenario("SJ-10")
def test_an_instance_that_an_administrator_removed_joins_as_new(play: Play) -> None:
    play.one_static()
    play.leave(("", "ia")).expect()
    play.group_is(State.EMPTY, generation=2)
    play.expect_records("empty group")
    joining = play.join("a'").expect_parked()
    play.at(3_000)
    joining.expect(generation=3, at=3_000)


@scenario("SJ-11")
def test_a_new_instance_begins_a_rebalance(play: Play) -> None:
    play.two_static()
    c = play.join("c", instance="ic").expect_parked()
    play.heartbeat("a", 1).expect(ErrorCode.REBALANCE_IN_PROGRESS)
    play.join("b").expect_parked()
    play.join("a").expect(generation=2, members=["a", "b", "c"])
    c.expect(generation=2, members=[])


@scenario("SJ-12")
def test_a_restart_with_a_protocol_of_its_own_is_refused_and_the_member_untouched(play: Play) -> None:
    play.two_static()
    play.join("b'", protocols=["roundrobin"]).expect(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, id="")
    play.heartbeat("b", 1).expect()
    play.group_is(State.STABLE, generation=1, members=["a", "b"])
    play.expect_records()
