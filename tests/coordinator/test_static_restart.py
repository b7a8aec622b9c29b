"""Catalogue, section 3.1: the process behind an instance id restarts while its group is Stable."""

from __future__ import annotations

import pytest

from coordinator.notes import Replacement
from coordinator.states import State
from protocol.errors import ErrorCode
from protocol.messages.kinds import NoteKind
from tests.coordinator.playbook import T0, T0_T1, Play, row, scenario
from tests.coordinator.sent_requests import Bytes

pytestmark = pytest.mark.once  # no dependence on the Python version


@scenario("SR-01")
def test_a_static_member_that_restarts_keeps_its_place(play: Play) -> None:
    play.two_static()
    since_ms = play.group().state_ms
    play.after(1_000)
    play.join("b'").expect(generation=1, id="b'", leader="a", members=[], protocol="range", type="consumer", at=1_000)
    play.group_is(State.STABLE, generation=1, leader="a", members=["a", "b'"])
    group_record = play.expect_group_record("replacement")
    assert (group_record.generation, group_record.leader, group_record.current_state_timestamp) == (1, "ia-a", since_ms)
    assert [(member.member_id, member.group_instance_id, member.assignment) for member in group_record.members] == [
        ("ia-a", "ia", b"\1"),
        ("ib-b'", "ib", b"\2"),
    ]
    play.heartbeat("a", 1).expect()
    note = play.expect_note(NoteKind.STATIC_REPLACED, instance_id="ib", old_id="b", new_id="b'", outcome=Replacement.NO_REBALANCE)
    assert note.state == State.STABLE


@scenario("SR-02")
def test_heartbeats_of_both_processes_are_answered_when_the_restart_is_durable_z17(play: Play) -> None:
    play.two_static()
    play.hold_appends()
    restart = play.join("b'").expect_parked()
    old = play.heartbeat("b", 1).expect_parked()
    new = play.heartbeat("b'", 1).expect_parked()
    play.confirm()
    restart.expect(generation=1, id="b'", leader="a")
    old.expect(ErrorCode.FENCED_INSTANCE_ID)
    new.expect()


@scenario("SR-03")
def test_a_restarted_follower_gets_its_assignment_back(play: Play) -> None:
    play.two_static()
    play.join("b'")
    play.sync("b'", generation=1).expect(assignment=2)


@scenario("SR-04")
def test_the_old_process_is_fenced_in_every_request(play: Play) -> None:
    play.two_static()
    play.join("b'")
    play.heartbeat("b", 1).expect(ErrorCode.FENCED_INSTANCE_ID)
    play.sync("b", generation=1).expect(ErrorCode.FENCED_INSTANCE_ID)
    play.join("b").expect(ErrorCode.FENCED_INSTANCE_ID, id="b")
    play.leave("b").expect(ErrorCode.FENCED_INSTANCE_ID)
    play.group_is(State.STABLE, generation=1, members=["a", "b'"])


@scenario("SR-05")
def test_the_old_process_is_unknown_when_it_leaves_its_instance_out(play: Play) -> None:
    play.two_static()
    play.join("b'")
    play.heartbeat("b", 1, instance=None).expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.sync("b", generation=1, instance=None).expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.join("b", instance=None).expect(ErrorCode.UNKNOWN_MEMBER_ID, id="b")


@scenario("SR-06")
def test_a_restarted_leader_leads_and_skips_the_assignment(play: Play) -> None:
    play.two_static()
    play.join("a'").expect(generation=1, id="a'", leader="a'", members=["a'", "b"], skip=True)
    assert play.expect_group_record("replacement").leader == play.id_of("a'")


@scenario("SR-07")
@pytest.mark.parametrize("assignments", [None, {"a'": 7, "b": 8}])
def test_a_restarted_leaders_assignments_are_ignored(play: Play, assignments: dict[str, Bytes] | None) -> None:
    play.two_static()
    play.join("a'")
    play.expect_records("replacement")
    play.sync("a'", assignments, generation=1).expect(assignment=1)
    play.sync("b", generation=1).expect(assignment=2)
    play.expect_records()


@pytest.mark.parametrize("version", [row("SR-08", 5), row("SR-08", 8)])
def test_an_old_client_that_led_gets_its_old_id_as_the_leader(play: Play, version: int) -> None:
    play.two_static()
    play.join("a'", version=version).expect(generation=1, id="a'", leader="a", members=[])
    play.group_is(State.STABLE, leader="a'")
    play.expect_records("replacement")


@scenario("SR-09")
def test_assignments_of_a_restarted_old_leader_are_ignored(play: Play) -> None:
    play.two_static()
    play.join("a'", version=5)
    play.expect_records("replacement")
    play.sync("a'", {"a'": 7, "b": 8}, generation=1).expect(assignment=1)
    play.expect_records()


@scenario("SR-10")
def test_an_old_client_that_led_still_leads(play: Play) -> None:
    play.two_static()
    play.join("a'", version=5)
    a = play.join("a'", version=9).expect_parked()
    play.join("b").expect(generation=2, leader="a'")
    a.expect(generation=2, leader="a'", members=["a'", "b"])


@pytest.mark.parametrize("version", [row("SR-11", 5), row("SR-11", 8)])
def test_a_restarted_follower_of_an_old_version_gets_the_generation_without_a_rebalance(play: Play, version: int) -> None:
    play.two_static()
    play.join("b'", version=version).expect(generation=1, id="b'", leader="a", members=[])
    play.expect_records("replacement")


@scenario("SR-12")
def test_a_restart_with_other_metadata_is_stored_without_a_rebalance(play: Play) -> None:
    play.two_static()
    play.join("b'", metadata=T0_T1).expect(generation=1)
    play.group_is(State.STABLE, generation=1)
    assert [member.subscription for member in play.expect_group_record("replacement").members] == [T0, T0_T1]


@scenario("SR-13")
def test_a_restarted_leader_with_other_metadata_sees_it_among_the_members(play: Play) -> None:
    play.two_static()
    restart = play.join("a'", metadata=T0_T1).expect(generation=1, members=["a'", "b"], skip=True)
    assert [member[2] for member in restart.reply.members] == [T0_T1, T0]
    play.group_is(State.STABLE, generation=1)


@scenario("SR-14")
def test_a_restart_with_more_protocols_is_no_rebalance_while_the_choice_is_the_same(play: Play) -> None:
    play.two_static()
    play.join("b'", protocols=["range", "roundrobin"]).expect(generation=1, protocol="range")
    play.group_is(State.STABLE, generation=1)


@scenario("SR-15")
def test_a_join_after_a_restart_is_compared_with_the_restarts_metadata(play: Play) -> None:
    play.two_static()
    play.join("b'", protocols=["range", "roundrobin"])
    play.join("b'").expect(generation=1, at=0)
    play.group_is(State.STABLE, generation=1)


@scenario("SR-16")
def test_a_restart_that_changes_the_choice_of_protocol_is_a_rebalance(play: Play) -> None:
    play.two_static(protocols=["range", "roundrobin"])
    play.group_is(State.STABLE, protocol="range")
    restart = play.join("b'", protocols=["roundrobin"]).expect_parked()
    play.expect_records()
    play.heartbeat("a", 1).expect(ErrorCode.REBALANCE_IN_PROGRESS)
    play.join("a").expect(generation=2, protocol="roundrobin", members=["a", "b'"])
    restart.expect(generation=2, protocol="roundrobin", id="b'")
    group_record = play.expect_group_record("replacement in a rebalance")  # Kafka writes nothing before the leader's assignments
    assert (group_record.generation, [member.member_id for member in group_record.members]) == (1, ["ia-a", "ib-b'"])
    play.expect_note(NoteKind.STATIC_REPLACED, new_id="b'", outcome=Replacement.PROTOCOL_CHANGED)


@scenario("SR-17")
def test_the_first_session_after_a_restart_is_as_long_as_the_old_ones_were(play: Play) -> None:
    play.two_static()
    play.keep_alive("a").at(5_000)
    play.join("b'", session=30_000)
    assert play.session_left("b'") == 10_000
    play.at(12_000).group_is(State.STABLE, members=["a", "b'"])  # the old id's session ends without effect
    play.heartbeat("b'", 1).expect()
    assert play.session_left("b'") == 30_000


@scenario("SR-18")
def test_two_restarts_in_a_row_are_both_answered_and_the_second_has_the_seat_z17(play: Play) -> None:
    play.one_static()
    play.hold_appends()
    first = play.join("a'").expect_parked()
    second = play.join("a''").expect_parked()
    play.confirm()
    play.expect_records("replacement", "replacement")
    first.expect(generation=1, id="a'", leader="a'", skip=True, members=["a'"])  # Kafka: FENCED_INSTANCE_ID at once
    second.expect(generation=1, id="a''", leader="a''", skip=True, members=["a''"])
    play.heartbeat("a'", 1).expect(ErrorCode.FENCED_INSTANCE_ID)
    play.heartbeat("a''", 1).expect()


@scenario("SR-19")
def test_a_restart_that_cannot_be_stored_leaves_the_old_member_as_it_was_z17(play: Play) -> None:
    play.two_static()
    play.hold_appends()
    restart = play.join("a'", rebalance=7_000, session=6_500).expect_parked()
    play.fail_log(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    restart.expect(ErrorCode.COORDINATOR_NOT_AVAILABLE, id="", generation=-1)  # Kafka: generation 1, leader a
    play.group_is(State.STABLE, generation=1, leader="a", members=["a", "b"])
    member = play.group().members[play.id_of("a")]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (10_000, 20_000)
    assert play.session_left("a") == 10_000
    play.heartbeat("a", 1).expect()
    play.heartbeat("a'", 1).expect(ErrorCode.FENCED_INSTANCE_ID)


@scenario("SR-20")
def test_a_restart_on_a_broken_disk_gets_not_coordinator_z17(play: Play) -> None:
    play.two_static()
    play.hold_appends()
    restart = play.join("b'").expect_parked()
    play.fail_log(ErrorCode.NOT_COORDINATOR)
    restart.expect(ErrorCode.NOT_COORDINATOR, id="", generation=-1)
    play.heartbeat("b", 1).expect()


@scenario("SR-21")
def test_after_two_restarts_that_could_not_be_stored_the_old_id_has_the_seat_z16_z17(play: Play) -> None:
    play.one_static()
    play.hold_appends()
    first, second = play.join("a'").expect_parked(), play.join("a''").expect_parked()
    play.fail_log(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    first.expect(ErrorCode.COORDINATOR_NOT_AVAILABLE, id="")
    second.expect(ErrorCode.COORDINATOR_NOT_AVAILABLE, id="")
    play.group_is(State.STABLE, members=["a"])  # Kafka: a', the id of no process
    play.join("a'''").expect(generation=1, skip=True)


@scenario("SR-22")
def test_a_newcomer_after_a_restart_in_flight_sees_it_completed_z17(play: Play) -> None:
    play.two_static()
    play.hold_appends()
    restart = play.join("b'").expect_parked()
    c = play.join("c", instance="ic").expect_parked()
    play.group_is(State.PREPARING, generation=1)
    play.confirm()
    restart.expect(generation=1, id="b'")
    a = play.join("a").expect_parked()
    play.join("b'").expect(generation=2)
    a.expect(generation=2, members=["a", "b'", "c"])
    c.expect(generation=2)


@scenario("SR-23")
def test_a_leader_that_rejoins_after_a_restart_in_flight_waits_for_it_z17(play: Play) -> None:
    play.two_static()
    play.hold_appends()
    restart = play.join("b'").expect_parked()
    a = play.join("a").expect_parked()
    play.confirm()
    restart.expect(generation=1, id="b'")  # Kafka: it counts as joined, and both get generation 2
    a.expect_parked()
    play.join("b'").expect(generation=2)
    a.expect(generation=2, members=["a", "b'"])


@scenario("SR-24")
def test_a_newcomer_after_a_failed_restart_append_is_refused_too_z17(play: Play) -> None:
    play.two_static()
    play.hold_appends()
    restart = play.join("b'").expect_parked()
    c = play.join("c", instance="ic").expect_parked()
    play.fail_log(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    restart.expect(ErrorCode.COORDINATOR_NOT_AVAILABLE, id="")
    c.expect(ErrorCode.NOT_COORDINATOR, id="c")
    play.group_is(State.STABLE, generation=1, members=["a", "b"])
    a = play.join("a").expect_parked()
    play.join("b").expect(generation=2)
    a.expect(generation=2, members=["a", "b"])


@scenario("SR-25")
def test_no_generation_is_announced_after_a_failed_restart_append_z14_z17(play: Play) -> None:
    play.two_static()
    play.hold_appends()
    restart = play.join("b'")
    play.join("a")
    retried = play.join("b'").expect_parked()
    assert play.group().generation == 2
    play.fail_log(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    restart.expect(ErrorCode.COORDINATOR_NOT_AVAILABLE, id="")
    retried.expect(ErrorCode.COORDINATOR_NOT_AVAILABLE, id="")
    play.expect("a", ErrorCode.COORDINATOR_NOT_AVAILABLE, id="")
    play.heartbeat("b'", 2).expect(ErrorCode.FENCED_INSTANCE_ID)
    play.heartbeat("b", 1).expect()


@scenario("SR-26")
def test_an_administrator_removes_a_member_whose_restart_is_in_flight_z17(play: Play) -> None:
    play.two_static()
    play.hold_appends()
    restart = play.join("b'").expect_parked()
    removed = play.leave(("", "ib")).expect_parked()
    play.group_is(State.PREPARING, members=["a"])
    play.confirm()
    restart.expect(generation=1, id="b'")  # Kafka: UNKNOWN_MEMBER_ID
    removed.expect()
    play.heartbeat("b'", 1).expect(ErrorCode.UNKNOWN_MEMBER_ID)


@scenario("SR-27")
def test_an_orderly_unload_waits_for_a_restart_in_flight_z17(play: Play) -> None:
    play.two_static()
    play.hold_appends()
    restart = play.join("b'").expect_parked()
    play.unload()
    restart.expect(generation=1, id="b'")  # Kafka: NOT_COORDINATOR
    play.load()
    play.heartbeat("b'", 1).expect()
    play.heartbeat("b", 1).expect(ErrorCode.FENCED_INSTANCE_ID)


@scenario("SR-28")
def test_a_restart_in_flight_does_not_count_as_joined_when_the_other_leaves_z17(play: Play) -> None:
    play.two_static()
    play.hold_appends()
    restart = play.join("a'").expect_parked()
    play.leave("b").expect_parked()
    play.confirm()
    restart.expect(generation=1, id="a'", leader="a'", skip=True)  # Kafka: generation 2 at once
    play.heartbeat("a'", 1).expect(ErrorCode.REBALANCE_IN_PROGRESS)
    play.join("a'").expect(generation=2, members=["a'"], at=0)
    play.heartbeat("a'", 1).expect(ErrorCode.ILLEGAL_GENERATION)


@scenario("SR-29")
def test_a_rolling_restart_is_no_rebalance(play: Play) -> None:
    play.three_static()
    for number, name in enumerate("abc", 1):
        play.after(1_000)
        new = name + "'"
        play.join(new).expect(generation=1, id=new, skip=name == "a")
        play.sync(new, generation=1).expect(assignment=number)
        for member in ("a'", "b" if name == "a" else "b'", "c'" if name == "c" else "c"):
            play.heartbeat(member, 1).expect()
    play.expect_records("replacement", "replacement", "replacement")


@scenario("SR-30")
def test_a_static_member_that_returns_after_its_session_is_a_newcomer(play: Play) -> None:
    play.three_static()
    play.keep_alive("a", "b").at(10_000)
    play.group_is(State.PREPARING, generation=1, members=["a", "b"])
    c = play.join("c'").expect_parked()
    play.join("a").expect_parked()
    play.join("b").expect(generation=2)
    c.expect(generation=2, id="c'")
    play.expect("a", generation=2, members=["a", "b", "c'"])
    group_record = play.expect_group_record("replacement in a rebalance")  # c' was answered as a member, so the next coordinator must know it
    assert [member.member_id for member in group_record.members] == ["ia-a", "ib-b", "ic-c'"]


@scenario("SR-31")
def test_a_member_that_restarts_before_it_synced_is_not_waited_for_under_its_old_id_z3(play: Play) -> None:
    play.two_awaiting_assignment()
    play.sync("a", {"a": 1, "b": 2})
    play.join("b'").expect(generation=1)
    play.sync("b'", generation=1).expect(assignment=2)
    play.keep_alive("a", "b'").at(30_000)
    play.group_is(State.STABLE, generation=1, members=["a", "b'"])  # Kafka: a rebalance when the sync timer fires


@scenario("SR-31")
def test_a_member_that_restarts_and_never_syncs_is_removed_all_the_same(play: Play) -> None:
    play.two_awaiting_assignment()
    play.sync("a", {"a": 1, "b": 2})
    play.join("b'")
    play.keep_alive("a", "b'").at(19_999).group_is(State.STABLE, members=["a", "b'"])
    play.at(20_000).group_is(State.PREPARING, members=["a"])


def test_an_unknown_instance_in_an_empty_group_is_a_newcomer(play: Play) -> None:
    play.one_static().at(10_000)
    play.group_is(State.EMPTY, generation=2)
    play.join("a'").expect_parked()
    play.group_is(State.PREPARING, members=["a'"])
