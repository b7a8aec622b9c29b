"""LeaveGroup: section 9 of the conformance catalogue. tests/broker tests versions, and shards that do not serve."""

from __future__ import annotations

import pytest

from coordinator.notes import TEXT_CHARS_MAX, Cause, Removal, spend_note_budget
from coordinator.states import State
from protocol.errors import ErrorCode
from protocol.messages.kinds import NoteKind
from tests.coordinator.playbook import Play, scenario

pytestmark = pytest.mark.once  # no dependence on the Python version


@scenario("LV-01")
def test_a_leaving_member_causes_a_rebalance(play: Play) -> None:
    play.two_dynamic()
    play.leave("b").expect(ErrorCode.NONE)
    play.group_is(State.PREPARING, generation=1, members=["a"])
    play.expect_note(NoteKind.STATE_CHANGE, reason=Cause.MEMBER_LEFT, member="b")
    play.heartbeat("a").expect(ErrorCode.REBALANCE_IN_PROGRESS)
    play.join("a").expect(generation=2, leader="a", members=["a"])
    play.expect_records()


def test_a_leave_note_has_the_clients_reason(play: Play) -> None:
    play.two_dynamic()
    play.leave("b", reason="the deployment is over").expect(ErrorCode.NONE)
    play.expect_note(NoteKind.STATE_CHANGE, reason=Cause.MEMBER_LEFT, member=play.id_of("b"), text="the deployment is over")


def test_a_leave_reason_is_cut_to_fit_into_a_note(play: Play) -> None:
    play.two_dynamic()
    play.leave("b", reason="x" * 32_767).expect(ErrorCode.NONE)
    play.expect_note(NoteKind.STATE_CHANGE, reason=Cause.MEMBER_LEFT, member=play.id_of("b"), text="x" * TEXT_CHARS_MAX)


@scenario("LV-02")
def test_another_member_leads_when_the_leader_leaves(play: Play) -> None:
    play.two_dynamic()
    play.leave("a").expect(ErrorCode.NONE)
    play.group_is(State.PREPARING, leader="b", members=["b"])
    play.join("b").expect(generation=2, leader="b", members=["b"])


@scenario("LV-03")
def test_the_last_leave_is_answered_when_the_empty_group_is_durable(play: Play) -> None:
    play.one_dynamic()
    play.hold_appends()
    leave_reply = play.leave("a")
    leave_reply.expect_parked()
    play.confirm()
    leave_reply.expect(ErrorCode.NONE)
    play.group_is(State.EMPTY, generation=2, members=[])
    group_record = play.expect_group_record("empty group")
    assert (group_record.protocol_type, group_record.protocol, group_record.leader) == ("consumer", None, None)


@scenario("LV-04")
def test_members_that_leave_in_one_request_cause_one_rebalance(play: Play) -> None:
    play.three_static()
    sent = play.leave(("", "ia"), ("b", None), ("x", "ib"), ("", "zz"), ("", None), ("c", "ib"), ("gone", None))
    sent.expect(ErrorCode.NONE, ErrorCode.NONE, *[ErrorCode.UNKNOWN_MEMBER_ID] * 5)  # ("c", "ib") is unknown too, as b has just left and freed "ib"
    play.group_is(State.PREPARING, generation=1, leader="c", members=["c"])
    play.expect_records()
    play.join("c").expect(generation=2, leader="c", members=["c"])


@scenario("LV-05")
def test_an_instance_that_is_named_twice_leaves_once(play: Play) -> None:
    play.three_static()
    play.leave(("", "ia"), ("", "ib"), ("", "ic"), ("", "ic")).expect(ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)
    play.group_is(State.EMPTY, generation=2, members=[])
    play.expect_records("empty group")


@scenario("LV-06")
def test_a_static_member_leaves_under_its_own_instance_id_or_none(play: Play) -> None:
    play.two_static()
    play.leave(("a", "ib")).expect(ErrorCode.FENCED_INSTANCE_ID)
    play.leave(("a", "zz")).expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.group_is(State.STABLE, members=["a", "b"])
    play.leave(("a", None)).expect(ErrorCode.NONE)
    play.group_is(State.PREPARING, leader="b", members=["b"])


@scenario("LV-07")
def test_a_leave_with_a_foreign_member_id_for_an_instance_is_refused(play: Play) -> None:
    play.two_static()
    play.leave(("x", "ib")).expect(ErrorCode.FENCED_INSTANCE_ID)
    play.group_is(State.STABLE, members=["a", "b"])


@scenario("LV-08")
def test_an_administrator_removes_an_instance_without_knowing_its_member_id(play: Play) -> None:
    play.two_static()
    play.leave(("", "ib")).expect(ErrorCode.NONE)
    play.group_is(State.PREPARING, members=["a"])
    play.expect_note(NoteKind.MEMBER_GONE, member_id="b", how=Removal.ADMIN_REMOVED)
    play.expect_note(NoteKind.STATE_CHANGE, reason=Cause.ADMIN_REMOVED)


@scenario("LV-09")
def test_a_leave_of_an_unknown_group_is_refused(play: Play) -> None:
    play.leave(("x", None), ("y", "iy")).expect(ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID)
    play.group_is_absent()
    play.expect_records()


@scenario("LV-10")
def test_a_leave_of_an_empty_group_is_refused(play: Play) -> None:
    play.one_dynamic().leave("a")
    play.expect_records("empty group")
    play.leave("a").expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.group_is(State.EMPTY, generation=2)
    play.expect_records()


@scenario("LV-11")
def test_an_id_that_never_joined_still_causes_a_rebalance_when_it_leaves(play: Play) -> None:
    play.two_dynamic()
    play.join("p").expect(ErrorCode.MEMBER_ID_REQUIRED)
    play.leave("p").expect(ErrorCode.NONE)
    play.group_is(State.PREPARING, members=["a", "b"], pending=[])
    play.heartbeat("a").expect(ErrorCode.REBALANCE_IN_PROGRESS)


@scenario("LV-12")
def test_the_instance_id_of_a_leaving_pending_id_is_not_checked(play: Play) -> None:
    play.one_dynamic()
    play.join("p").expect(ErrorCode.MEMBER_ID_REQUIRED)
    play.leave(("p", "bogus")).expect(ErrorCode.NONE)
    play.group_is(State.PREPARING, members=["a"], pending=[])


@scenario("LV-13")
def test_a_departure_that_the_log_refuses_is_undone(play: Play) -> None:
    """The failed append makes the shard replay its log, in which the member has not left."""
    play.one_dynamic()
    play.hold_appends()
    leave_reply = play.leave("a")
    play.fail_log(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    leave_reply.expect_refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    play.group_is(State.STABLE, generation=1, members=["a"])
    play.join("b", version=3).expect_parked()
    play.leave("a").expect(ErrorCode.NONE)
    play.expect("b", generation=2, leader="b", members=["b"])


@scenario("LV-17")
def test_a_parked_join_is_answered_when_an_administrator_removes_its_member(play: Play) -> None:
    parked = play.leader_rejoins()
    play.leave(("", "ia")).expect(ErrorCode.NONE)
    parked.expect(ErrorCode.UNKNOWN_MEMBER_ID, id="")
    play.group_is(State.PREPARING, leader="b", members=["b"])


@scenario("LV-18")
def test_an_administrator_removes_all_members(play: Play) -> None:
    play.two_static()
    play.join("d", version=3).expect_parked()
    play.join("a").expect_parked()
    play.join("b")
    play.expect("d", generation=2, members=[])
    play.leave(("", "ia"), ("", "ib"), ("d", None)).expect(ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE)
    play.group_is(State.EMPTY, generation=3, members=[])


@scenario("LV-19")
def test_a_static_member_that_closes_sends_nothing_and_keeps_its_place_until_its_session_ends(play: Play) -> None:
    play.two_static()
    play.keep_alive("a").at(9_999)
    play.group_is(State.STABLE, generation=1, members=["a", "b"])
    play.at(10_000)
    play.group_is(State.PREPARING, members=["a"])
    play.expect_note(NoteKind.MEMBER_GONE, member_id="b", how=Removal.EXPIRED)


@pytest.mark.parametrize(
    ("leavers", "cause", "about"),
    [
        (["p", "b"], Cause.MEMBER_LEFT, "b"),
        (["b", "p"], Cause.MEMBER_LEFT, "b"),
        (["b", "c"], Cause.MEMBER_LEFT, "c"),
        (["b", "x"], Cause.MEMBER_LEFT, "b"),
        (["b", ("", "ic")], Cause.ADMIN_REMOVED, "ic"),
        ([("", "ic"), "b"], Cause.MEMBER_LEFT, "b"),
        ([("", "ix"), ("", "ic"), ("", None)], Cause.ADMIN_REMOVED, "ic"),
    ],
)
def test_the_last_member_of_a_batched_leave_is_named_as_the_cause(
    play: Play, leavers: list[str | tuple[str, str | None]], cause: Cause, about: str
) -> None:
    play.settled("a", "b", "c", static={"c"})
    play.join("p").expect(ErrorCode.MEMBER_ID_REQUIRED)
    play.leave(*leavers)
    play.expect_note(NoteKind.STATE_CHANGE, reason=cause, member=about)


def test_an_id_that_leaves_before_it_joined_is_noted_without_a_session(play: Play) -> None:
    play.one_dynamic()
    play.join("p").expect(ErrorCode.MEMBER_ID_REQUIRED)
    play.at(2_000).leave("p", reason="not needed").expect(ErrorCode.NONE)
    defaults = {"instance_id": None, "since_heartbeat_ms": 0, "session_ms": 0}
    play.expect_note(NoteKind.MEMBER_GONE, member_id="p", how=Removal.LEFT, client_reason="not needed", **defaults)
    play.join("q").expect(ErrorCode.MEMBER_ID_REQUIRED)
    play.keep_alive("a").after(10_000)
    play.expect_note(NoteKind.MEMBER_GONE, member_id="q", how=Removal.PENDING_EXPIRED, client_reason=None, **defaults)


def test_departures_beyond_the_note_limit_are_counted(play: Play) -> None:
    play.settled("a", "b")
    for name in ("p", "q"):
        play.join(name).expect(ErrorCode.MEMBER_ID_REQUIRED)
    play.keep_alive("a", "b").at(9_999)
    while spend_note_budget(play.group(), play.now):
        pass
    dropped = play.group().notes_dropped
    play.leave("p").expect(ErrorCode.NONE)
    assert play.group().notes_dropped == dropped + 2  # the departure, and the change of state
    play.at(10_000)  # the pending id of q expires
    assert play.group().notes_dropped == dropped + 3
    play.leave("b").expect(ErrorCode.NONE)
    assert play.group().notes_dropped == dropped + 4
    assert [note.kind for note in play.notes if note.kind == NoteKind.MEMBER_GONE] == []
