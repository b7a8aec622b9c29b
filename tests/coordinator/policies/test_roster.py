"""instance.ids, roster.timeout.ms and roster.strict: the instances that a group is made of."""

from __future__ import annotations

from coordinator.notes import Cause, Removal
from coordinator.states import State
from protocol.errors import ErrorCode
from protocol.messages.kinds import NoteKind
from tests.coordinator.playbook import Play, scenario

REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED


def roster(names: str, *, strict: bool = False, timeout_ms: int | None = 60_000) -> dict[str, str]:
    texts = {"instance.ids": names}
    if strict:
        texts["roster.strict"] = "true"
    if timeout_ms is not None:
        texts["roster.timeout.ms"] = str(timeout_ms)
    return texts


def status(play: Play, name: str) -> str:
    assert play.shard is not None
    return play.shard.policies.status("g").get(name, "")


# Forming.


@scenario("PL-01")
def test_a_group_that_forms_is_ready_when_all_listed_instances_are_there(play: Play) -> None:
    assert not play.set_policies(roster("ia,ib,ic"))
    play.join("a", instance="ia").expect_parked()
    play.at(20_000)
    last = play.join("b", instance="ib").expect_parked()
    assert status(play, "status.missing") == "ic"
    play.at(40_000)
    play.join("c", instance="ic").expect(generation=1, at=40_000)
    last.expect(generation=1)
    play.expect("a", generation=1, members=["a", "b", "c"])
    assert not status(play, "status.missing")


@scenario("PL-02")
def test_a_forming_group_is_assigned_without_missing_instances_at_the_timeout(play: Play) -> None:
    play.set_policies(roster("ia,ib,ic"))
    first = play.join("a", instance="ia").expect_parked()
    play.at(50_000)
    play.join("b", instance="ib").expect_parked()
    play.at(59_999)
    first.expect_parked()
    play.at(60_000)
    first.expect(generation=1, at=60_000, members=["a", "b"])


@scenario("PL-03")
def test_an_instance_list_without_a_timeout_does_not_delay_the_group(play: Play) -> None:
    play.set_policies(roster("ia,ib,ic", timeout_ms=None))
    first = play.join("a", instance="ia").expect_parked()
    play.at(3_000)
    first.expect(generation=1, at=3_000)


@scenario("PL-03")
def test_a_complete_list_without_a_timeout_does_not_shorten_the_initial_delay(play: Play) -> None:
    play.set_policies(roster("ia", timeout_ms=None))
    play.join("a", instance="ia").expect_parked()
    play.at(3_000).expect("a", generation=1, at=3_000)


@scenario("PL-04")
def test_a_single_listed_instance_does_not_wait(play: Play) -> None:
    play.set_policies(roster("ia"))
    play.join("a", instance="ia").expect(generation=1, at=0)


@scenario("PL-05")
def test_new_members_outlast_a_long_wait_for_the_list(play: Play) -> None:
    play.set_policies(roster("ia,ib", timeout_ms=600_000))
    first = play.join("a", instance="ia").expect_parked()
    play.at(500_000)
    play.join("b", instance="ib").expect(generation=1)
    first.expect(generation=1, at=500_000)


@scenario("PL-06")
def test_a_list_that_shrinks_to_those_present_ends_the_wait(play: Play) -> None:
    play.set_policies(roster("ia,ib", strict=True))
    first = play.join("a", instance="ia").expect_parked()
    assert not play.set_policies(roster("ia", strict=True))
    first.expect(generation=1)


@scenario("PL-07")
def test_without_the_list_a_group_that_forms_waits_only_its_initial_delay(play: Play) -> None:
    play.set_policies(roster("ia,ib"))
    first = play.join("a", instance="ia").expect_parked()
    play.at(10_000)
    play.set_policies()
    play.at(13_000)
    first.expect(generation=1, at=13_000)


# Growing.


@scenario("PL-08")
def test_added_instances_join_in_one_rebalance_when_the_list_is_complete(play: Play) -> None:
    play.two_static()
    assert not play.set_policies(roster("ia,ib,ic,id"))
    play.keep_alive("a", "b")
    play.join("c", instance="ic").expect_parked()
    play.at(19_000).group_is(State.STABLE, generation=1, members=["a", "b"])
    assert status(play, "status.missing") == "id"
    play.join("d", instance="id").expect_parked()
    play.group_is(State.PREPARING, members=["a", "b", "c", "d"])
    play.expect_note(NoteKind.STATE_CHANGE, reason=Cause.ROSTER_COMPLETE)


@scenario("PL-09")
def test_added_instances_join_at_the_timeout_if_one_stays_missing(play: Play) -> None:
    play.two_static()
    play.set_policies(roster("ia,ib,ic,id", timeout_ms=15_000))
    play.keep_alive("a", "b").at(1_000)
    play.join("c", instance="ic").expect_parked()
    play.at(15_999).group_is(State.STABLE, members=["a", "b"])
    play.at(16_000).group_is(State.PREPARING, members=["a", "b", "c"])


@scenario("PL-10")
def test_an_unlisted_newcomer_does_not_wait_for_the_list(play: Play) -> None:
    play.two_static()
    play.set_policies(roster("ia,ib,ic,id"))
    play.join("c", instance="ic").expect_parked()
    play.join("x", instance="ix").expect_parked()
    play.group_is(State.PREPARING, members=["a", "b", "x", "c"])


@scenario("PL-11")
def test_of_an_expansion_timeout_and_a_list_the_earlier_wins(play: Play) -> None:
    play.two_static()
    play.set_policies({**roster("ia,ib,ic,id", timeout_ms=9_000), "expansion.timeout.ms": "5000"})
    play.keep_alive("a", "b")
    play.join("c", instance="ic").expect_parked()
    play.at(4_999).group_is(State.STABLE, members=["a", "b"])
    play.at(5_000).group_is(State.PREPARING, members=["a", "b", "c"])


@scenario("PL-11")
def test_the_timeout_of_the_list_counts_from_the_first_listed_newcomer(play: Play) -> None:
    play.two_static()
    play.set_policies({**roster("ia,ib,ic,id", timeout_ms=5_000), "expansion.timeout.ms": "60000"})
    play.keep_alive("a", "b")
    play.join("x", instance="ix").expect_parked()
    play.at(10_000)
    play.join("c", instance="ic").expect_parked()
    play.at(14_999).group_is(State.STABLE, members=["a", "b"])
    play.at(15_000).group_is(State.PREPARING, members=["a", "b", "x", "c"])


# Strict.


@scenario("PL-12")
def test_a_strict_list_refuses_others_and_dynamic_members(play: Play) -> None:
    play.two_static()
    play.set_policies(roster("ia,ib", strict=True))
    play.join("x", instance="ix").expect(REFUSED, id="")
    play.join("y", instance=None).expect(REFUSED, id="")
    play.join("z", instance=None, version=3).expect(REFUSED, id="")
    play.group_is(State.STABLE, generation=1, members=["a", "b"], pending=[])
    play.expect_note(NoteKind.JOIN_REFUSED, instance_id="ix", listed="ia, ib")
    play.expect_records("policies")
    play.join("b'").expect(generation=1)


@scenario("PL-13")
def test_a_refused_instance_creates_no_group(play: Play) -> None:
    play.set_policies(roster("ia", strict=True))
    play.join("x", instance="ix").expect(REFUSED, id="")
    play.group_is_absent()


@scenario("PL-14")
def test_members_taken_off_a_strict_list_are_removed_in_one_rebalance(play: Play) -> None:
    play.settled("a", "b", "c", "d", static=True)
    play.set_policies(roster("ia,ib,ic,id", strict=True))
    play.group_is(State.STABLE, generation=1)
    assert not play.set_policies(roster("ia,ib", strict=True))
    play.group_is(State.PREPARING, generation=1, members=["a", "b"])
    play.expect_note(NoteKind.STATE_CHANGE, reason=Cause.ROSTER_CHANGED)
    play.expect_note(NoteKind.MEMBER_GONE, member_id="d", how=Removal.NOT_LISTED)
    play.heartbeat("c").expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.join("c").expect(REFUSED, id="")
    play.join("b")
    play.join("a").expect(generation=2, members=["a", "b"])


@scenario("PL-15")
def test_no_member_is_removed_by_a_list_that_is_not_strict(play: Play) -> None:
    play.two_static()
    play.set_policies(roster("ia,ib"))
    (sentence,) = play.set_policies(roster("ia"))
    assert "roster.strict" in sentence
    play.group_is(State.STABLE, members=["a", "b"])


@scenario("PL-16")
def test_a_strict_list_removes_members_that_are_not_in_it(play: Play) -> None:
    play.settled("a", "b", "c", static={"a", "b"})
    play.set_policies(roster("ia,ib", strict=True))
    play.group_is(State.PREPARING, members=["a", "b"])


@scenario("PL-17")
def test_a_failover_before_the_end_of_the_rebalance_removes_unlisted_members_again(play: Play) -> None:
    play.three_static()
    play.set_policies(roster("ia,ib,ic", strict=True))
    play.set_policies(roster("ia,ib", strict=True))
    play.failover()
    play.group_is(State.PREPARING, members=["a", "b"])
    play.join("b")
    play.join("a").expect(generation=2, members=["a", "b"])
    play.sync("a", {"a": 1, "b": 2}).expect()
    play.failover()
    play.group_is(State.STABLE, generation=2, members=["a", "b"])


@scenario("PL-18")
def test_a_strict_list_refuses_newcomers_that_wait(play: Play) -> None:
    play.two_static()
    play.set_policies({"expansion.timeout.ms": "5000"})
    waiting = play.join("x", instance="ix").expect_parked()
    play.set_policies({"expansion.timeout.ms": "5000", **roster("ia,ib", strict=True)})
    waiting.expect(REFUSED)
    assert not play.newcomers()
    play.group_is(State.STABLE, members=["a", "b"])


@scenario("PL-19")
def test_a_listed_member_may_leave_its_instance_out(play: Play) -> None:
    play.two_static()
    play.set_policies(roster("ia,ib", strict=True))
    play.join("b", instance=None).expect(generation=1)


@scenario("PL-20")
def test_all_members_removed_from_the_list_empty_the_group(play: Play) -> None:
    play.two_static()
    play.set_policies(roster("ix", strict=True))
    play.group_is(State.EMPTY, generation=2)


@scenario("PL-21")
def test_a_member_that_comes_back_to_an_otherwise_complete_list_joins_at_once(play: Play) -> None:
    play.two_static()
    play.set_policies(roster("ia,ib"))
    play.leave(("", "ib")).expect()
    play.join("a").expect(generation=2)
    play.sync("a", {"a": 1}).expect()
    play.join("b'").expect_parked()
    play.group_is(State.PREPARING, members=["a", "b'"])
