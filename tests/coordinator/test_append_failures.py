"""The log refuses an append: section 13 of the conformance catalogue.

Unlike Kafka, no state is rolled back by hand: replies that wait for the log get the error code, parked requests get NOT_COORDINATOR, and
the shard is replayed from the durable facts. Only facts too large for a batch are refused before they are applied, so they change nothing.
"""

from __future__ import annotations

import pytest

from coordinator.notes import Cause
from coordinator.states import State
from protocol.errors import ErrorCode
from protocol.messages.kinds import NoteKind
from tests.coordinator.playbook import T0_T1, Play, row, scenario

pytestmark = pytest.mark.once  # no dependence on the Python version

# Error codes of a failed append: 16 after a disk error or a fenced append; 15 if it is unknown whether the append is in the log.
FAILURES = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE]


def assigning(play: Play) -> None:
    """Generation 8 of a group whose generation 7 is in the log: the follower is parked, the leader's assignments are in flight."""
    play.two_loaded_static()
    play.join("m0").expect_parked()
    play.join("m1").expect(generation=8)
    play.sync("m1").expect_parked()
    play.hold_appends()
    play.sync("m0", {"m0": 8, "m1": 9}).expect_parked()


@scenario("AF-01")
@pytest.mark.parametrize("failure", FAILURES)
def test_assignments_that_the_log_refuses_reach_no_member(play: Play, failure: int) -> None:
    assigning(play)
    play.fail_log(failure)
    play.expect("m0", failure)
    play.expect("m1", failure)
    play.group_is(State.STABLE, generation=7, members=["m0", "m1"])
    play.heartbeat("m0", 8).expect(ErrorCode.ILLEGAL_GENERATION)
    play.heartbeat("m0", 7).expect(ErrorCode.NONE)
    assert (play.session_left("m0"), play.session_left("m1")) == (10_000, 10_000)
    play.join("m0").expect_parked()
    play.join("m1").expect(generation=8)
    play.sync("m0", {"m0": 8, "m1": 9}).expect(ErrorCode.NONE, 8)


def too_much_assigned(play: Play) -> None:
    play.configure(batch_bytes_max=1_000)
    play.follower_awaits_assignment()
    play.sync("a", {"a": bytes(1_000), "b": 2}).expect(ErrorCode.UNKNOWN_SERVER_ERROR)


@scenario("AF-02", "E2E-15")
def test_assignments_too_large_for_a_batch_are_refused_and_all_members_rejoin(play: Play) -> None:
    too_much_assigned(play)
    play.expect("b", ErrorCode.UNKNOWN_SERVER_ERROR)
    play.group_is(State.PREPARING, generation=1, members=["a", "b"])
    play.expect_records()
    play.expect_note(NoteKind.STATE_CHANGE, reason=Cause.SYNC_FAILED)
    play.heartbeat("a").expect(ErrorCode.REBALANCE_IN_PROGRESS)
    play.join("a").expect_parked()
    play.join("b").expect(generation=2)
    play.expect("a", generation=2, members=["a", "b"])


@scenario("AF-03")
def test_after_assignments_that_were_too_large_members_have_a_full_rebalance_timeout(play: Play) -> None:
    too_much_assigned(play)
    assert play.phase_left() == 20_000
    assert [member.assignment for member in play.describe().members] == [b"", b""]
    assert (play.session_left("a"), play.session_left("b")) == (10_000, 10_000)


@scenario("AF-04")
def test_a_group_that_the_log_refuses_is_created_again_by_the_next_join(play: Play) -> None:
    play.hold_appends()
    parked = play.join("a", instance="ia")
    parked.expect_parked()
    play.fail_log()
    parked.expect(ErrorCode.NOT_COORDINATOR, id="a")
    play.group_is_absent()
    play.join("a", id="").expect_parked()
    play.expect_records("new group")
    play.after(3_000).expect("a", generation=1, members=["a"])


@scenario("AF-05")
def test_a_member_id_is_sent_after_its_group_is_durable(play: Play) -> None:
    play.hold_appends()
    held = play.join("p")
    held.expect_parked()
    play.fail_log()
    held.expect(ErrorCode.NOT_COORDINATOR, id="")
    play.group_is_absent()
    play.join("p").expect(ErrorCode.UNKNOWN_MEMBER_ID, id="p")


@scenario("AF-05")
def test_a_refusal_that_created_a_group_waits_for_the_log(play: Play) -> None:
    play.hold_appends()
    held = play.join("p", protocols=[])
    held.expect_parked()
    play.confirm()
    held.expect(23, id="")
    play.group_is(State.EMPTY, generation=0)


@scenario("AF-06")
def test_an_expiry_that_the_log_refuses_is_undone(play: Play) -> None:
    play.one_static()
    play.hold_appends()
    play.at(10_000).group_is(State.EMPTY, generation=2)
    held = play.heartbeat("a", 1)
    held.expect_parked()
    play.fail_log()
    held.expect(ErrorCode.NOT_COORDINATOR)
    play.group_is(State.STABLE, generation=1, members=["a"])
    assert play.session_left("a") == 10_000
    play.heartbeat("a").expect(ErrorCode.NONE)


@scenario("AF-08")
@pytest.mark.parametrize("failure", FAILURES)
def test_a_static_rejoin_that_the_log_refuses_keeps_the_old_member(play: Play, failure: int) -> None:
    play.two_static()
    play.hold_appends()
    held = play.join("a'", rebalance=7_000, session=6_500)
    held.expect_parked()
    play.fail_log(failure)
    held.expect(failure, id="", generation=-1)
    play.group_is(State.STABLE, generation=1, leader="a", members=["a", "b"])
    member = play.group().members[play.id_of("a")]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms, play.session_left("a")) == (10_000, 20_000, 10_000)
    play.heartbeat("a").expect(ErrorCode.NONE)
    play.heartbeat("a'").expect(ErrorCode.FENCED_INSTANCE_ID)


@scenario("AF-08")
def test_a_static_rejoin_too_large_for_a_batch_keeps_the_old_member(play: Play) -> None:
    play.configure(batch_bytes_max=1_000)
    play.two_static()
    play.join("b'", metadata=bytes(1_000)).expect(ErrorCode.UNKNOWN_SERVER_ERROR, id="", generation=1, leader="a", type="consumer", protocol="range")
    play.expect_records()
    play.group_is(State.STABLE, generation=1, members=["a", "b"])
    play.heartbeat("b").expect(ErrorCode.NONE)
    play.heartbeat("b'").expect(ErrorCode.FENCED_INSTANCE_ID)


@pytest.mark.parametrize("failure", [row("AF-09", failure) for failure in FAILURES])
def test_a_commit_that_the_log_refuses_is_not_seen(play: Play, failure: int) -> None:
    play.one_static()
    play.commit("a", {("t0", 0): 5})
    play.hold_appends()
    held = play.commit("a", {("t0", 0): 6, ("t0", 1): 1})
    held.expect_parked()
    play.fail_log(failure)
    held.expect(failure)
    play.fetch("t0", 0).expect(5)
    play.fetch("t0", 1).expect(-1)


@scenario("AF-09")
def test_a_commit_that_is_too_large_for_a_batch_is_refused_whole(play: Play) -> None:
    play.configure(batch_bytes_max=1_000)
    play.one_static()
    play.commit("a", {("t0", 0): 5})
    play.expect_records("offset")
    play.commit("a", {("t0", partition): 6 for partition in range(100)}).expect(ErrorCode.UNKNOWN_SERVER_ERROR)
    play.expect_records()
    assert play.fetch_all() == {("t0", 0): 5}
    play.commit("a", {("t0", 0): 7}).expect(ErrorCode.NONE)


@scenario("AF-09")
def test_a_commit_that_is_too_large_makes_no_group(play: Play) -> None:
    play.configure(batch_bytes_max=1_000)
    play.commit(None, {("t0", partition): 6 for partition in range(100)}).expect(ErrorCode.UNKNOWN_SERVER_ERROR)
    play.group_is_absent()
    play.expect_records()


@pytest.mark.parametrize("failure", [row("AF-10", failure) for failure in FAILURES])
def test_a_group_deletion_that_the_log_refuses_keeps_its_offsets(play: Play, failure: int) -> None:
    play.commit(None, {("t0", 0): 5})
    play.hold_appends()
    held = play.delete()
    held.expect_parked()
    play.fail_log(failure)
    held.expect(failure)
    assert play.fetch_all() == {("t0", 0): 5}
    play.delete().expect(ErrorCode.NONE)
    play.group_is_absent()


@scenario("AF-10")
def test_a_group_with_more_offsets_than_one_batch_cannot_be_deleted(play: Play) -> None:
    play.configure(batch_bytes_max=1_000)
    for partition in range(30):
        play.commit(None, {("t0", partition): partition})
    play.delete().expect(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert len(play.fetch_all()) == 30


@scenario("AF-11")
def test_operations_of_one_batch_fail_together(play: Play) -> None:
    play.commit(None, {("t0", 0): 5}, group="x")
    play.follower_awaits_assignment()
    play.hold_appends()
    committed = play.commit(None, {("t0", 0): 6}, group="x")
    assigned = play.sync("a", {"a": 1, "b": 2})
    play.fail_log()
    committed.expect(ErrorCode.NOT_COORDINATOR)
    assigned.expect(ErrorCode.NOT_COORDINATOR)
    play.expect("b", ErrorCode.NOT_COORDINATOR)
    play.fetch(group="x").expect(5)


@scenario("AF-01")
def test_a_request_after_an_append_in_flight_is_answered_as_if_it_had_succeeded(play: Play) -> None:
    """The request sees the state that the append will make durable; its reply leaves after the append."""
    assigning(play)
    assert play.group().state == State.STABLE
    beat = play.heartbeat("m1", 8)
    beat.expect_parked()
    changed = play.join("m1", metadata=T0_T1)
    changed.expect_parked()
    play.confirm()
    play.expect("m0", ErrorCode.NONE, 8)
    beat.expect(ErrorCode.NONE)
    changed.expect_parked()
    play.group_is(State.PREPARING, generation=8)
    assert play.group().state != State.COMPLETING


@scenario("AF-01")
def test_a_parked_newcomer_gets_not_coordinator_and_an_unknown_id_when_the_log_fails(play: Play) -> None:
    assigning(play)
    play.join("p").expect_parked()  # its id waits for the log too
    play.fail_log()
    play.expect("p", ErrorCode.NOT_COORDINATOR, id="")
    play.join("q").expect(ErrorCode.MEMBER_ID_REQUIRED)
    play.join("p").expect(ErrorCode.UNKNOWN_MEMBER_ID)
