"""target.group.size: members beyond the target are warm standbys, and a seat moves to one without a rebalance."""

from __future__ import annotations

import pytest

from coordinator.notes import Cause, Removal, StandbyStep
from coordinator.policies.door import resolve, rules_of
from coordinator.policies.target_size import TargetSize
from coordinator.states import State
from protocol.errors import ErrorCode
from protocol.messages.kinds import NoteKind
from tests.coordinator.playbook import T0, T0_T1, Play, scenario, subscription
from tests.coordinator.sent_requests import SentJoin

NONE = ErrorCode.NONE
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
SESSION_MS = 10_000
EMPTY_ASSIGNMENT = b"\0\0" + b"\0\0\0\0" + b"\xff\xff\xff\xff"  # version 0, no topics, no user data
TWO = {"target.group.size": "2"}


def status(play: Play) -> dict[str, str]:
    assert play.shard is not None
    return play.shard.policies.status("g")


def standbys(play: Play) -> list[str]:
    rules = rules_of(play.group(), TargetSize)
    return [] if rules is None else list(rules.standbys)


def taking(play: Play) -> list[str]:
    rules = rules_of(play.group(), TargetSize)
    return [] if rules is None else list(rules.take_overs)


def add_standby(play: Play, name: str, **options: object) -> None:
    """A newcomer beyond the target: it joins the generation, and its assignment is empty."""
    play.join(name, instance=f"i{name}", **options).expect(generation=1, members=[])  # type: ignore[arg-type]
    play.sync(name, generation=1).expect(assignment=EMPTY_ASSIGNMENT)


@pytest.fixture
def play(play: Play) -> Play:
    """a (leader) and b are active in generation 1 with assignments 1 and 2; x and, a second later, y joined as standbys."""
    play.two_static()
    assert not play.set_policies(TWO)
    add_standby(play, "x")
    play.keep_alive("a", "b", "x").after(1_000)
    add_standby(play, "y")
    play.keep_alive("y")
    play.began = play.now
    play._newest.clear()
    return play


def take_over(play: Play, name: str, assignment: int, *, leads: bool = False, generation: int = 1) -> None:
    """The standby's heartbeat is refused, so it rejoins in the same generation and gets the seat's assignment."""
    play.heartbeat(name, generation).expect(REBALANCE)
    play.join(name).expect(generation=generation, skip=leads)
    play.sync(name, generation=generation).expect(assignment=assignment)
    play.heartbeat(name, generation).expect()
    assert play.group().state is State.STABLE
    assert play.group().generation == generation


def remove(play: Play, name: str, kind: str) -> None:
    if kind == "expiry":
        play.stop_heartbeats(name).at(SESSION_MS)
    else:
        play.leave(name if kind == "leave" else ("", f"i{name}")).expect()


# Standbys.


@scenario("PW-10")
def test_a_newcomer_beyond_the_target_enters_a_stable_group_without_a_rebalance(play: Play) -> None:
    play.group_is(State.STABLE, generation=1, leader="a", members=["a", "b", "x", "y"])
    assert standbys(play) == ["ix-x", "iy-y"]
    assert status(play) == {"status.standby": f"ix since {play.wall - 1_000}, iy since {play.wall}"}
    play.expect_note(NoteKind.STANDBY, member_id="y", instance_id="iy", step=StandbyStep.WAITS)
    play.heartbeat("x", 1).expect()
    play.commit("x", generation=1).expect()


@scenario("PW-11")
def test_a_newcomer_is_stored_with_its_record_before_it_is_answered(play: Play) -> None:
    play.hold_appends()
    joining = play.join("z", instance="iz").expect_parked()
    play.failover()
    joining.expect_parked()
    assert standbys(play) == ["ix-x", "iy-y"]
    add_standby(play, "w")
    play.expect_records("replacement", "seats")
    play.failover()
    assert standbys(play) == ["ix-x", "iy-y", "iw-w"]
    play.sync("w", generation=1).expect(assignment=EMPTY_ASSIGNMENT)


@scenario("PW-11")
def test_a_newcomer_that_does_not_fit_into_a_batch_changes_nothing() -> None:
    play = Play()
    play.configure(batch_bytes_max=1_000)
    play.two_static()
    play.set_policies(TWO)
    play.expect_records("policies")
    play.join("x", instance="ix", client="c" * 900).expect(ErrorCode.UNKNOWN_SERVER_ERROR)
    play.group_is(State.STABLE, generation=1, leader="a", members=["a", "b"])
    assert not standbys(play)
    play.expect_records()


@scenario("PW-11")
def test_a_standby_with_the_instance_id_of_a_removed_member_is_not_fenced_after_a_failover(play: Play) -> None:
    """Until the leader assigns, the log still has the removed member y under the instance id iy."""
    for name in "abx":
        play.join(name)
    play.leave(("", "iy")).expect()
    play.expect("a", generation=2)
    play.join("w", instance="iy").expect(generation=2, members=[])
    play.expect_records("replacement in a rebalance")
    play.failover()
    play.heartbeat("w", 2).expect(ErrorCode.ILLEGAL_GENERATION)
    play.join("w").expect(generation=1, members=[])


@scenario("PW-12")
def test_a_newcomer_within_the_target_causes_a_rebalance(play: Play) -> None:
    play.set_policies({"target.group.size": "5"})
    play.group_is(State.PREPARING)
    play.expect_note(NoteKind.STATE_CHANGE, reason=Cause.TARGET_CHANGED, to_state=State.PREPARING)
    for name in "abxy":
        play.join(name)
    play.expect("a", generation=2, members=["a", "b", "x", "y"])
    play.sync("a", {"a": 1, "b": 2, "x": 3, "y": 4}).expect()
    play.expect_records("policies", "assignments", "no seats")
    play.join("z", instance="iz").expect_parked()
    play.group_is(State.PREPARING)


@scenario("PW-13")
@pytest.mark.parametrize("names", [["a-10", "a-2", "a-1"], ["a-1", "a-10", "a-2"], ["a-2", "a-1", "a-10"]])
def test_in_a_forming_group_the_first_names_are_active(names: list[str]) -> None:
    play = Play()
    play.set_policies(TWO)
    joined = {name: play.join(name, instance=name).expect_parked() for name in names}
    play.after(7_000)
    active = [f"{name}-{name}" for name in names if name != "a-10"]
    leader = active[0]
    for sent in joined.values():
        sent.expect(generation=1, leader=leader, members=active if sent.member_id == leader else [])
    assert standbys(play) == ["a-10-a-10"]
    for name in names:
        if f"{name}-{name}" != leader:
            play.sync(name)
    play.sync(leader.split("-a-")[0], dict.fromkeys(names, 7)).expect(assignment=7)
    play.expect("a-10", assignment=EMPTY_ASSIGNMENT)


@scenario("PW-13")
def test_leading_zeros_of_names_do_not_count() -> None:
    play = Play()
    play.set_policies({"target.group.size": "1"})
    for name in ("b-10", "b-002"):
        play.join(name, instance=name).expect_parked()
    play.after(7_000)
    play.group_is(State.COMPLETING, leader="b-002")
    assert standbys(play) == ["b-10-b-10"]


@scenario("PW-14")
def test_dynamic_members_are_standbys_too() -> None:
    play = Play().two_dynamic()
    play.set_policies(TWO)
    play.join("x").expect(ErrorCode.MEMBER_ID_REQUIRED)
    play.join("x").expect(generation=1, leader="a")
    play.sync("x", generation=1).expect(assignment=EMPTY_ASSIGNMENT)
    play.leave("b").expect()
    play.group_is(State.STABLE, generation=1, members=["a", "x"])
    for _ in range(2):
        assert status(play)["status.takeover"].startswith("c-x for c-b since ")
        play.failover()
    take_over(play, "x", 2)
    assert not standbys(play)


@scenario("PW-15")
def test_standbys_rejoin_in_every_rebalance_and_the_leader_does_not_see_them(play: Play) -> None:
    play.join("a").expect_parked()
    for name in "bxy":
        play.heartbeat(name, 1).expect(REBALANCE)
        play.join(name)
    play.expect("a", generation=2, members=["a", "b"], leader="a")
    for name in "xy":
        play.expect(name, generation=2, members=[], leader="a")
        play.sync(name).expect_parked()
    play.sync("a", {"a": 3, "b": 4, "x": 5}).expect(assignment=3)
    for name in "xy":
        play.expect(name, assignment=EMPTY_ASSIGNMENT)
    play.expect_records("assignments", "seats")
    assert standbys(play) == ["ix-x", "iy-y"]


@scenario("PW-15")
def test_a_standby_gets_a_free_seat_before_a_newcomer(play: Play) -> None:
    play.join("a").expect_parked()
    play.join("z", instance="iz").expect_parked()
    play.leave("b").expect()
    play.join("y").expect_parked()
    play.join("x").expect(generation=2)
    play.expect("a", members=["a", "x"])
    assert standbys(play) == ["iy-y", "iz-z"]


@scenario("PW-15")
def test_static_members_come_first_in_the_leaders_list_with_static_standbys_too() -> None:
    play = Play().settled("a", "b", static={"b"})
    play.set_policies(TWO)
    add_standby(play, "x")
    play.join("a").expect_parked()
    play.join("x").expect_parked()
    play.join("b").expect(generation=2)
    play.expect("a", generation=2, members=["b", "a"])


@scenario("PW-16")
def test_standbys_vote_on_protocols() -> None:
    play = Play().two_static(protocols=["range", "roundrobin"])
    play.set_policies(TWO)
    play.join("x", instance="ix", protocols=["roundrobin", "range"]).expect(generation=1, protocol="range")
    play.join("y", instance="iy", protocols=["roundrobin", "range"]).expect(generation=1, protocol="range")
    # With a third vote for roundrobin the selected protocol changes, which needs a rebalance.
    voting = play.join("z", instance="iz", protocols=["roundrobin", "range"]).expect_parked()
    play.group_is(State.PREPARING)
    for name in "abxy":
        play.join(name)
    voting.expect(generation=2, protocol="roundrobin", members=[])
    play.expect("a", generation=2, members=["a", "b"])
    play.join("w", instance="iw", protocols=["other"]).expect(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


@scenario("PW-17")
def test_a_standby_that_rejoins_causes_no_rebalance_whatever_its_metadata_says(play: Play) -> None:
    play.join("x").expect(generation=1, members=[])
    play.join("x", metadata=T0_T1).expect(generation=1, members=[])
    play.expect_records("replacement")
    play.failover()
    play.group_is(State.STABLE, generation=1, leader="a")
    assert standbys(play) == ["ix-x", "iy-y"]
    play.join("x", protocols=["other"]).expect(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


@scenario("PW-18")
@pytest.mark.parametrize("kind", ["expiry", "leave", "administrator"])
def test_the_removal_of_a_standby_causes_no_rebalance(play: Play, kind: str) -> None:
    remove(play, "x", kind)
    play.group_is(State.STABLE, generation=1, leader="a", members=["a", "b", "y"])
    play.expect_records("replacement", "seats")
    assert standbys(play) == ["iy-y"]
    play.failover()
    play.group_is(State.STABLE, generation=1, members=["a", "b", "y"])


@scenario("PW-19")
def test_a_standby_that_restarts_keeps_its_place(play: Play) -> None:
    play.join("x'").expect(generation=1, id="x'", members=[], leader="a")
    assert standbys(play) == ["ix-x'", "iy-y"]
    play.sync("x'", generation=1).expect(assignment=EMPTY_ASSIGNMENT)
    play.heartbeat("x", 1).expect(ErrorCode.FENCED_INSTANCE_ID)
    play.failover()
    assert standbys(play) == ["ix-x'", "iy-y"]


@scenario("PW-20")
def test_an_active_member_that_restarts_keeps_its_seat(play: Play) -> None:
    play.join("b'").expect(generation=1)
    play.sync("b'", generation=1).expect(assignment=2)
    assert standbys(play) == ["ix-x", "iy-y"]
    assert not taking(play)


@scenario("PW-21")
def test_a_newcomer_beyond_the_target_enters_while_assignments_are_awaited(play: Play) -> None:
    play.join("a")
    for name in "bxy":
        play.join(name)
    play.group_is(State.COMPLETING, generation=2)
    play.join("z", instance="iz").expect(generation=2, members=[])
    waiting = play.sync("z").expect_parked()
    play.expect_records()
    play.leave("y").expect()  # a standby that leaves does not disturb the rebalance either
    play.group_is(State.COMPLETING, generation=2)
    play.sync("a", {"a": 1, "b": 2, "z": 9}).expect(assignment=1)
    waiting.expect(assignment=EMPTY_ASSIGNMENT)
    play.group_is(State.STABLE, generation=2, members=["a", "b", "x", "z"])
    play.expect_records("assignments", "seats")


@scenario("PW-22")
def test_the_removal_of_an_active_member_while_assignments_are_awaited_causes_a_rebalance(play: Play) -> None:
    for name in "abxy":
        play.join(name)
    play.group_is(State.COMPLETING, generation=2)
    play.leave("x", "b").expect(NONE, NONE)
    play.group_is(State.PREPARING)
    play.join("a").expect_parked()
    play.join("y").expect(generation=3)
    play.expect("a", generation=3, members=["a", "y"])
    assert not standbys(play)


# Take-overs.


@scenario("PW-30")
@pytest.mark.parametrize("kind", ["expiry", "leave", "administrator"])
def test_the_seat_of_an_active_member_goes_to_the_longest_waiting_standby(play: Play, kind: str) -> None:
    remove(play, "b", kind)
    play.group_is(State.STABLE, generation=1, leader="a", members=["a", "x", "y"])
    assert (standbys(play), taking(play)) == (["iy-y"], ["ix-x"])
    assert status(play)["status.takeover"].startswith("ix for ib since ")
    play.expect_records("replacement", "seats")
    play.expect_note(NoteKind.STANDBY, member_id="x", step=StandbyStep.TAKES_OVER, from_member_id="b", from_instance_id="ib")
    play.heartbeat("b", 1).expect(UNKNOWN)
    play.commit("b", generation=1).expect(UNKNOWN)
    play.heartbeat("a", 1).expect()
    play.heartbeat("y", 1).expect()
    take_over(play, "x", 2)
    play.expect_records("seats")
    play.expect_note(NoteKind.STANDBY, member_id="x", step=StandbyStep.TOOK_OVER)
    assert (standbys(play), taking(play)) == (["iy-y"], [])
    play.after(60_000)
    play.group_is(State.STABLE, generation=1)
    assert not [note for note in play.notes if note.kind == NoteKind.STATE_CHANGE]


@scenario("PW-31")
def test_the_standby_is_asked_to_rejoin_only_when_the_removal_is_durable(play: Play) -> None:
    play.hold_appends()
    play.leave(("", "ib"))
    heartbeat = play.heartbeat("x", 1).expect_parked()
    play.confirm()
    heartbeat.expect(REBALANCE)
    play.failover()
    play.group_is(State.STABLE, generation=1, members=["a", "x", "y"])
    play.heartbeat("b", 1).expect(UNKNOWN)


@scenario("PW-32")
def test_a_take_over_whose_record_was_lost_has_not_happened(play: Play) -> None:
    play.hold_appends()
    play.leave(("", "ib"))
    heartbeat = play.heartbeat("x", 1).expect_parked()
    play.failover()
    heartbeat.expect_parked()
    play.heartbeat("b", 1).expect()
    play.heartbeat("x", 1).expect()
    assert (standbys(play), taking(play)) == (["ix-x", "iy-y"], [])


@scenario("PW-33")
def test_the_leaders_seat_brings_leadership(play: Play) -> None:
    play.leave("a").expect()
    play.group_is(State.STABLE, generation=1, leader="x", members=["b", "x", "y"])
    play.failover()
    play.group_is(State.STABLE, generation=1, leader="x")
    play.heartbeat("x", 1).expect(REBALANCE)
    play.join("x").expect(generation=1, leader="x", members=["b", "x"], skip=True)
    play.sync("x", {"x": 9, "b": 9}, generation=1).expect(assignment=1)
    play.join("x").expect_parked()  # as in Kafka, a rejoining leader causes a rebalance
    play.group_is(State.PREPARING)


@scenario("PW-34")
def test_the_reply_to_an_old_client_does_not_name_it_as_leader(play: Play) -> None:
    """A client before v9 that is named as leader computes assignments (no SkipAssignment), which the coordinator would ignore."""
    play.leave("a").expect()
    play.heartbeat("x", 1).expect(REBALANCE)
    play.join("x", version=5).expect(generation=1, leader="a", members=[])
    play.sync("x", generation=1).expect(assignment=1)


@scenario("PW-35")
@pytest.mark.parametrize("metadata", [T0[:-4] + b"\0\0\0\4mine", subscription("t0")[:1] + b"\1" + T0[2:] + b"\0\0\0\0"])
def test_owned_partitions_of_the_standby_change_nothing(play: Play, metadata: bytes) -> None:
    play.leave("b").expect()
    play.heartbeat("x", 1).expect(REBALANCE)
    play.join("x", metadata=metadata).expect(generation=1)
    play.sync("x", generation=1).expect(assignment=2)
    play.group_is(State.STABLE, generation=1)


@scenario("PW-36")
def test_a_standby_that_rejoins_with_other_topics_causes_a_rebalance(play: Play) -> None:
    play.leave("b").expect()
    play.join("x", metadata=T0_T1).expect_parked()
    play.group_is(State.PREPARING)


@scenario("PW-37")
def test_a_standby_whose_offer_changes_the_selected_protocol_causes_a_rebalance() -> None:
    play = Play().settled("a", "b", "c", static=True, protocols={"a": ["range", "sticky"], "b": ["range", "sticky"], "c": ["sticky", "range"]})
    play.set_policies({"target.group.size": "3"})
    add_standby(play, "x", protocols=["range", "sticky"])
    play.leave("b").expect()
    play.heartbeat("x", 1).expect(REBALANCE)
    play.join("x", protocols=["sticky", "range"]).expect_parked()
    play.group_is(State.PREPARING)


@scenario("PW-38")
def test_a_seat_goes_only_to_a_standby_with_the_same_topics() -> None:
    play = Play().two_static()
    play.set_policies(TWO)
    add_standby(play, "x", metadata=T0_T1)
    add_standby(play, "y", metadata=subscription("t0") + b"\0\0\0\0")
    play.leave("b").expect()
    assert taking(play) == ["iy-y"]
    take_over(play, "y", 2)
    play.leave("y").expect()  # the only standby left is x, which subscribes to other topics
    play.group_is(State.PREPARING, members=["a", "x"])
    play.join("x").expect_parked()
    play.join("a").expect(generation=2, members=["a", "x"])
    assert not standbys(play)


@scenario("PW-39")
def test_without_a_free_standby_a_removal_causes_a_rebalance(play: Play) -> None:
    play.leave("x", "y").expect(NONE, NONE)
    play.leave("b").expect()
    play.group_is(State.PREPARING, members=["a"])


@scenario("PW-40")
def test_two_seats_go_to_two_standbys_at_once(play: Play) -> None:
    play.leave("b", "a").expect(NONE, NONE)
    play.group_is(State.STABLE, generation=1, leader="y", members=["x", "y"])
    take_over(play, "x", 2)
    take_over(play, "y", 1, leads=True)


@scenario("PW-41")
def test_more_seats_than_standbys_cause_one_rebalance(play: Play) -> None:
    play.leave("y").expect()
    play.leave("b", "a").expect(NONE, NONE)
    play.group_is(State.PREPARING, members=["x"])
    play.join("x").expect(generation=2, members=["x"], leader="x")


@scenario("PW-42")
def test_the_departed_member_becomes_a_standby_when_it_returns(play: Play) -> None:
    play.leave(("", "ib")).expect()
    play.join("b'").expect(generation=1, members=[])
    play.sync("b'", generation=1).expect(assignment=EMPTY_ASSIGNMENT)
    assert standbys(play) == ["iy-y", "ib-b'"]
    take_over(play, "x", 2)
    play.heartbeat("b", 1).expect(ErrorCode.FENCED_INSTANCE_ID)


@scenario("PW-43")
def test_a_standby_that_does_not_sync_within_its_session_yields_to_the_next(play: Play) -> None:
    play.leave("b").expect()
    play.at(SESSION_MS - 1)
    assert taking(play) == ["ix-x"]
    play.join("x").expect(generation=1)
    play.at(SESSION_MS)
    assert (standbys(play), taking(play)) == (["ix-x"], ["iy-y"])
    play.expect_note(NoteKind.STANDBY, member_id="x", step=StandbyStep.TOO_LATE)
    play.expect_note(NoteKind.STANDBY, member_id="y", step=StandbyStep.TAKES_OVER, from_instance_id="ib")
    play.sync("x", generation=1).expect(assignment=EMPTY_ASSIGNMENT)
    take_over(play, "y", 2)
    play.group_is(State.STABLE, generation=1)


@scenario("PW-44")
def test_the_last_standby_that_does_not_sync_causes_a_rebalance(play: Play) -> None:
    play.leave("y", "b").expect(NONE, NONE)
    play.at(SESSION_MS - 1).group_is(State.STABLE, generation=1)
    play.at(SESSION_MS).group_is(State.PREPARING, members=["a", "x"])
    play.expect_note(NoteKind.STATE_CHANGE, reason=Cause.STANDBY_LATE, member="x")
    play.join("x").expect_parked()
    play.join("a").expect(generation=2, members=["a", "x"])


@scenario("PW-45")
@pytest.mark.parametrize("kind", ["expiry", "leave"])
def test_a_standby_that_is_removed_during_its_take_over_leaves_the_seat_to_the_next(play: Play, kind: str) -> None:
    play.leave("b").expect()
    remove(play, "x", kind)
    assert (standbys(play), taking(play)) == ([], ["iy-y"])
    play.expect_note(NoteKind.STANDBY, member_id="y", step=StandbyStep.TAKES_OVER, from_member_id="b", from_instance_id="ib")
    take_over(play, "y", 2)


@scenario("PW-46")
def test_a_standby_that_restarts_during_its_take_over_gets_the_seat(play: Play) -> None:
    play.leave("b").expect()
    play.join("x'").expect(generation=1, members=[])
    assert taking(play) == ["ix-x'"]
    play.sync("x'", generation=1).expect(assignment=2)
    assert not taking(play)
    play.heartbeat("x'", 1).expect()


@scenario("PW-47")
def test_a_rebalance_ends_take_overs_and_the_seats_stay(play: Play) -> None:
    play.leave("b").expect()
    play.join("a").expect_parked()
    assert not taking(play)
    play.join("y").expect_parked()
    play.join("x").expect(generation=2)
    play.expect("a", generation=2, members=["a", "x"])
    assert standbys(play) == ["iy-y"]


@scenario("PW-48")
def test_a_standby_that_syncs_without_rejoining_has_its_seat(play: Play) -> None:
    play.join("z", instance="iz").expect(generation=1)
    play.leave("x", "y", "b").expect(NONE, NONE, NONE)
    assert taking(play) == ["iz-z"]
    play.sync("z", generation=1).expect(assignment=2)
    play.heartbeat("z", 1).expect()


@scenario("PW-49")
@pytest.mark.parametrize("step", range(5))
def test_a_failover_at_every_step_finishes_the_take_over(play: Play, step: int) -> None:
    """Steps: the seat moved, the standby's heartbeat, its JoinGroup, its SyncGroup in flight to the log, its SyncGroup answered."""
    play.leave("b").expect()
    if step > 0:
        play.heartbeat("x", 1).expect(REBALANCE)
    if step > 1:
        play.join("x").expect(generation=1)
    if step == 3:
        play.hold_appends()
        play.sync("x", generation=1).expect_parked()
    if step == 4:
        play.sync("x", generation=1).expect(assignment=2)
    play.failover()
    play.group_is(State.STABLE, generation=1, leader="a", members=["a", "x", "y"])
    assert (standbys(play), taking(play)) == (["iy-y"], [] if step == 4 else ["ix-x"])
    play.heartbeat("b", 1).expect(UNKNOWN)
    if step == 4:
        play.heartbeat("x", 1).expect()
        play.sync("x", generation=1).expect(assignment=2)
    elif step == 0:
        began = play.now
        play.after(SESSION_MS - 1)
        assert taking(play) == ["ix-x"]
        take_over(play, "x", 2)
        assert play.now == began + SESSION_MS - 1
    else:
        take_over(play, "x", 2)
    play.after(60_000)
    play.group_is(State.STABLE, generation=1)


@scenario("PW-50")
@pytest.mark.parametrize("step", range(3))
def test_a_failover_at_every_step_of_a_yield_leaves_one_holder(play: Play, step: int) -> None:
    play.leave("b").expect()
    play.join("x").expect(generation=1)
    if step == 0:
        play.hold_appends()
    play.at(SESSION_MS)
    assert taking(play) == ["iy-y"]
    if step == 2:
        play.heartbeat("y", 1).expect(REBALANCE)
    play.failover()
    holder = "x" if step == 0 else "y"
    other_spare = "y" if step == 0 else "x"
    assert taking(play) == [play.id_of(holder)]
    play.sync(other_spare, generation=1).expect(assignment=EMPTY_ASSIGNMENT)
    take_over(play, holder, 2)


@scenario("PW-51")
def test_a_failover_during_a_rebalance_keeps_the_roles_that_were_stored(play: Play) -> None:
    play.leave("b").expect()
    for name in "axy":
        play.join(name)
    play.group_is(State.COMPLETING, generation=2)
    play.failover()
    play.group_is(State.STABLE, generation=1, leader="a")
    assert (standbys(play), taking(play)) == (["iy-y"], ["ix-x"])


@scenario("PW-52")
def test_the_record_of_another_generation_is_ignored(play: Play) -> None:
    """The record that lists the standbys belongs to an older generation: another writer, such as Kafka on this directory, stored a new one."""
    for name in "abxy":
        play.join(name)
    old = play.log[-1]
    assert old[0][:2] == b"\x75\x32"
    play.sync("a", {"a": 1, "b": 2}).expect()
    play.load(old)
    play.group_is(State.PREPARING)
    play.expect_note(NoteKind.STATE_CHANGE, reason=Cause.TARGET_CHANGED)
    for name in "yxab":
        play.join(name)
    assert standbys(play) == ["ix-x", "iy-y"]


@scenario("PW-53")
def test_a_slow_log_gives_the_standby_one_more_session(play: Play) -> None:
    play.leave("b").expect()
    assert play.shard is not None
    play.shard.deadlines.extends = True
    play.at(2 * SESSION_MS - 1)
    assert taking(play) == ["ix-x"]
    play.at(2 * SESSION_MS)
    assert taking(play) == ["iy-y"]


@scenario("PW-54")
def test_a_member_that_does_not_sync_in_time_leaves_its_seat_to_a_standby() -> None:
    play = Play().settled("a", "b", static=True, synced=["a"], session=60_000)
    play.set_policies(TWO)
    add_standby(play, "x", session=60_000)
    play.at(20_000)
    play.group_is(State.STABLE, generation=1, members=["a", "x"])
    play.expect_note(NoteKind.MEMBER_GONE, member_id="b", how=Removal.SYNC_TIMEOUT)
    take_over(play, "x", 2)


@scenario("PW-55")
def test_a_static_member_that_does_not_rejoin_gives_its_seat_to_a_standby_that_does(play: Play) -> None:
    play.join("a").expect_parked()
    play.join("x").expect_parked()
    play.join("y").expect_parked()
    play.at(20_000)
    play.group_is(State.COMPLETING, generation=2)
    play.expect("a", members=["a", "x"])
    assert standbys(play) == ["iy-y", "ib-b"]


# Setting the policy.


@scenario("PW-60")
def test_a_lower_target_makes_the_last_members_standbys_in_one_rebalance() -> None:
    play = Play().three_static()
    play.set_policies(TWO)
    play.group_is(State.PREPARING)
    play.expect_note(NoteKind.STATE_CHANGE, reason=Cause.TARGET_CHANGED)
    play.failover()
    play.group_is(State.PREPARING)  # again: the log has the target of two, and a generation with three seats
    for name in "cba":
        play.join(name)
    play.expect("a", generation=2, members=["a", "b"])
    assert standbys(play) == ["ic-c"]
    play.sync("a", {"a": 1, "b": 2}).expect()
    play.expect_records("assignments", "seats")
    play.set_policies({"target.group.size": "1"})
    for name in "cba":
        play.join(name)
    assert standbys(play) == ["ic-c", "ib-b"]


@scenario("PW-60")
def test_a_target_that_is_lowered_while_assignments_are_awaited_supersedes_the_rebalance() -> None:
    play = Play().joined("a", "b", "c", static=True)
    waiting = play.sync("c").expect_parked()
    play.set_policies(TWO)
    waiting.expect(REBALANCE)
    play.group_is(State.PREPARING)


@scenario("PW-61")
def test_without_the_policy_all_members_are_active_again(play: Play) -> None:
    play.set_policies({})
    play.group_is(State.PREPARING)
    play.failover()
    play.group_is(State.PREPARING)
    for name in "abxy":
        play.join(name)
    play.expect("a", generation=2, members=["a", "b", "x", "y"])
    play.sync("a", {"a": 1, "b": 2, "x": 3, "y": 4}).expect()
    play.expect_records("assignments", "no seats")
    play.failover()
    play.group_is(State.STABLE, generation=2)
    assert play.group().policies is None


@scenario("PW-62")
@pytest.mark.parametrize(("type", "protocol", "words"), [("connect", "range", "only groups of consumers"), ("consumer", "stream", "Kafka Streams")])
def test_a_target_is_refused_for_groups_other_than_of_consumers(type: str, protocol: str, words: str) -> None:
    play = Play().one_static(type=type, protocols=[protocol])
    (problem,) = play.set_policies(TWO)
    assert problem.startswith("target.group.size: ")
    assert words in problem
    assert not play.set_policies({"target.group.size": "none"})
    play.leave("a").expect()
    assert not play.set_policies(TWO)
    play.join("a'", instance="ia", type=type, protocols=[protocol]).expect(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    play.join("b", instance="ib", type="consumer", protocols=["range"]).expect_parked()


@scenario("PW-63")
@pytest.mark.parametrize(("type", "protocol"), [("connect", "range"), ("consumer", "stream")])
def test_a_default_does_not_concern_other_groups(type: str, protocol: str) -> None:
    play = Play()
    play.configure(default_policies=resolve({"target.group.size": "1"}))
    play.two_static(type=type, protocols=[protocol])
    assert not standbys(play)


@scenario("PW-64")
def test_an_emptied_group_deletes_its_standby_record(play: Play) -> None:
    play.leave("x", "y", "a", "b").expect(NONE, NONE, NONE, NONE)
    play.group_is(State.EMPTY, generation=2)
    play.expect_records("empty group", "no seats")
    play.delete().expect()
    play.failover()
    play.group_is_absent()


# With other policies.


@scenario("PW-70")
def test_with_registration_the_seat_moves_at_the_end_of_the_session(play: Play) -> None:
    play.set_policies({**TWO, "registration.timeout.ms": "60000"})
    play.stop_heartbeats("b").at(SESSION_MS)
    assert taking(play) == ["ix-x"]
    assert "status.away" not in status(play)
    take_over(play, "x", 2)
    play.stop_heartbeats("y").after(SESSION_MS)
    play.group_is(State.STABLE, generation=1, members=["a", "x"])  # a standby is never away


@scenario("PW-71")
def test_without_a_free_standby_the_member_is_away_until_one_comes(play: Play) -> None:
    play.set_policies({**TWO, "registration.timeout.ms": "60000"})
    play.leave("x", "y").expect(NONE, NONE)
    play.stop_heartbeats("b").at(SESSION_MS)
    assert status(play)["status.away"].startswith("ib since")
    play._newest.clear()
    play.at(30_000).join("z", instance="iz").expect(generation=1, members=[])
    play.group_is(State.STABLE, generation=1, members=["a", "z"])
    play.expect_note(NoteKind.MEMBER_GONE, member_id="b", how=Removal.SEAT_TAKEN)
    play.sync("z", generation=1).expect(assignment=2)
    play.heartbeat("z", 1).expect()
    play.expect_records("replacement", "seats", "back", "no seats")
    play.failover()
    play.group_is(State.STABLE, generation=1, members=["a", "z"])


@scenario("PW-72")
def test_a_member_that_is_away_gives_its_seat_to_a_standby_in_a_rebalance(play: Play) -> None:
    play.set_policies({**TWO, "registration.timeout.ms": "60000"})
    play.join("x", metadata=T0_T1).expect(generation=1)
    play.join("y", metadata=T0_T1).expect(generation=1)
    play.stop_heartbeats("b").at(SESSION_MS)
    assert status(play)["status.away"].startswith("ib since")  # the standbys subscribe to other topics, so neither can take the seat
    play.join("a").expect_parked()
    play.join("x").expect_parked()
    play.join("y").expect(generation=2)
    play.expect("a", members=["a", "x"])
    play.group_is(State.COMPLETING, members=["a", "x", "y"])
    play.expect_note(NoteKind.MEMBER_GONE, member_id="b", how=Removal.SEAT_TAKEN)


@scenario("PW-77")
def test_a_leader_that_is_away_gives_leadership_to_an_active_member() -> None:
    """x, the leader, is away and loses its place. b becomes a standby, so a leads."""
    play = Play().settled("x", "a", "b", static=True)
    play.set_policies({"registration.timeout.ms": "60000"})
    play.keep_alive("a", "b").at(SESSION_MS)
    play.set_policies({"registration.timeout.ms": "60000", "target.group.size": "1"})
    play.join("b").expect_parked()
    play.join("a").expect(generation=2, leader="a", members=["a"])
    play.group_is(State.COMPLETING, members=["a", "b"])
    play.failover()
    play.after(SESSION_MS)


@scenario("PW-73")
def test_a_newcomer_beyond_the_target_does_not_wait_for_an_expansion(play: Play) -> None:
    play.set_policies({**TWO, "expansion.timeout.ms": "5000"})
    add_standby(play, "z")
    play.set_policies({"target.group.size": "6", "expansion.timeout.ms": "5000"})
    for name in "abxyz":
        play.join(name)
    play.sync("a", {}).expect()
    play.join("v", instance="iv").expect_parked()
    assert play.newcomers() == ["iv"]


class Connection:
    closed = False


@pytest.fixture
def one_free_seat() -> Play:
    """Two active members of three, and newcomers that wait for five seconds."""
    play = Play().two_static()
    assert not play.set_policies({"target.group.size": "3", "expansion.timeout.ms": "5000"})
    return play.keep_alive("a", "b")


def test_of_three_newcomers_for_one_seat_two_become_standbys_at_once(one_free_seat: Play) -> None:
    play = one_free_seat
    play.join("x", instance="ix").expect_parked()
    for name in "yz":
        play.join(name, instance=f"i{name}").expect(generation=1, members=[])
        play.sync(name, generation=1).expect(assignment=EMPTY_ASSIGNMENT)
    assert play.newcomers() == ["ix"]
    assert standbys(play) == ["iy-y", "iz-z"]
    play.join("x'", instance="ix").expect_parked()  # it does not count itself
    play.group_is(State.STABLE, generation=1)
    play.keep_alive("y", "z").after(5_000)
    play.group_is(State.PREPARING)
    assert not play.newcomers()


@pytest.mark.parametrize("way", ["it leaves", "its connection is closed"])
def test_the_seat_of_a_newcomer_that_goes_is_a_standbys(one_free_seat: Play, way: str) -> None:
    play = one_free_seat
    connection = Connection()
    play.connection = connection
    play.join("x", instance="ix").expect_parked()
    play.connection = None
    play.join("y", instance="iy").expect(generation=1, members=[])
    play.sync("y", generation=1).expect(assignment=EMPTY_ASSIGNMENT)
    play.keep_alive("y")
    play.group_is(State.STABLE, generation=1)
    if way == "it leaves":
        play.leave(("", "ix"))
    else:
        play.set_policies({"target.group.size": "3", "expansion.timeout.ms": "600000"})
        connection.closed = True
        play.after(SESSION_MS + 2_000)
    play.group_is(State.PREPARING)
    play.expect_note(NoteKind.STATE_CHANGE, reason=Cause.TARGET_CHANGED)


@scenario("PW-74")
def test_a_newcomer_that_waited_is_a_standby_when_the_target_is_lowered() -> None:
    play = Play().two_static()
    play.set_policies({"expansion.timeout.ms": "5000"})
    waiting = play.join("x", instance="ix").expect_parked()
    play.set_policies({"expansion.timeout.ms": "5000", **TWO})
    retried = play.join("x'").expect(generation=1, members=[])
    assert isinstance(retried, SentJoin)
    waiting.expect(UNKNOWN)
    assert standbys(play) == ["ix-x'"]
    assert not play.newcomers()


@scenario("PW-75")
def test_seats_of_members_taken_off_a_strict_list_go_to_standbys(play: Play) -> None:
    roster = {**TWO, "instance.ids": "ia,ib,ix,iy", "roster.strict": "true"}
    assert not play.set_policies(roster)
    assert not play.set_policies({**roster, "instance.ids": "ia,ix,iy"})
    play.group_is(State.STABLE, generation=1, members=["a", "x", "y"])
    take_over(play, "x", 2)
    assert play.set_policies({**roster, "instance.ids": "ia", "target.group.size": "2"})


@scenario("PW-75")
def test_a_load_begins_one_rebalance_for_all_its_reasons() -> None:
    """A member is not in `instance.ids`, there are more members than the target, and the group is over its maximum size."""
    play = Play().three_static()
    play.set_policies({"instance.ids": "ia,ib", "roster.strict": "true", "target.group.size": "1"})
    play.config = play.config._replace(group_max_size=1)
    play.failover()
    play.group_is(State.PREPARING, members=["a", "b"])


@scenario("PW-76")
def test_a_returning_standby_with_other_topics_needs_no_rebalance(play: Play) -> None:
    play.set_policies({**TWO, "subscription.change": "rebalance"})
    play.join("x'", metadata=T0_T1).expect(generation=1)
    play.group_is(State.STABLE, generation=1)
    play.join("b'", metadata=T0_T1).expect_parked()
    play.group_is(State.PREPARING)
