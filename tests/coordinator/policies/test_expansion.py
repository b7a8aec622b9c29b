"""expansion.timeout.ms: newcomers wait with their JoinGroup parked, and join in one rebalance."""

from __future__ import annotations

import pytest

from coordinator.notes import Cause
from coordinator.states import State
from protocol.errors import ErrorCode
from protocol.messages.kinds import NoteKind
from tests.coordinator.playbook import Play, scenario

TIMEOUT_MS = 5_000
EXPANSION = {"expansion.timeout.ms": str(TIMEOUT_MS)}


class Connection:
    closed = False


@pytest.fixture
def stable(play: Play) -> Play:
    """Two static members that stay alive, Stable in generation 1, with the policy."""
    play.two_static()
    assert not play.set_policies(EXPANSION)
    play.expect_records("policies")
    return play.keep_alive("a", "b")


@scenario("PX-01")
def test_the_table_of_arrivals(stable: Play) -> None:
    """x joins at 0:00 and y at 0:03: one rebalance at 0:05 admits both. z joins at 0:06: its rebalance begins at 0:11."""
    play = stable
    first = play.join("x", instance="ix").expect_parked()
    play.at(3_000)
    second = play.join("y", instance="iy").expect_parked()
    play.at(4_999)
    play.group_is(State.STABLE, generation=1, members=["a", "b"])
    play.heartbeat("a").expect()
    play.at(5_000)
    play.group_is(State.PREPARING, members=["a", "b", "x", "y"])
    play.expect_note(NoteKind.STATE_CHANGE, reason=Cause.EXPANSION)
    play.join("b").expect_parked()
    play.join("a").expect(generation=2, members=["a", "b", "x", "y"])
    first.expect(generation=2, at=5_000)
    second.expect(generation=2, at=5_000)
    play.sync("a", {"a": 1, "b": 2, "x": 3, "y": 4}).expect()
    play.keep_alive("x", "y").at(6_000)
    third = play.join("z", instance="iz").expect_parked()
    play.at(10_999)
    play.group_is(State.STABLE, generation=2, members=["a", "b", "x", "y"])
    play.at(11_000)
    play.group_is(State.PREPARING, members=["a", "b", "x", "y", "z"])
    assert play.group().phase_start_ms == play.began + 11_000
    for name in ("a", "b", "x", "y"):
        play.join(name)
    third.expect(generation=3, at=11_000)


@scenario("PX-02")
def test_a_dynamic_newcomer_waits_with_the_id_it_was_given(stable: Play) -> None:
    play = stable
    play.join("x", instance=None).expect(ErrorCode.MEMBER_ID_REQUIRED)
    waiting = play.join("x").expect_parked()
    play.group_is(State.STABLE, members=["a", "b"], pending=[])
    play.at(5_000)
    play.group_is(State.PREPARING, members=["a", "b", "x"])
    play.join("a")
    play.join("b").expect(generation=2)
    waiting.expect(generation=2, id="x")


@scenario("PX-03")
def test_a_newcomer_before_version_4_waits(stable: Play) -> None:
    stable.join("x", instance=None, version=3).expect_parked()
    stable.group_is(State.STABLE, members=["a", "b"])
    stable.at(5_000).group_is(State.PREPARING, members=["a", "b", "x"])


@scenario("PX-04")
def test_a_repeated_request_replaces_the_parked_one_and_keeps_its_clock(stable: Play) -> None:
    play = stable
    first = play.join("x", instance="ix").expect_parked()
    play.join("y", instance=None).expect(ErrorCode.MEMBER_ID_REQUIRED)
    second = play.join("y").expect_parked()
    play.at(3_000)
    rejoined = play.join("x'").expect_parked()
    first.expect(ErrorCode.FENCED_INSTANCE_ID)
    second_again = play.join("y").expect_parked()
    second.expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.at(4_999).group_is(State.STABLE)
    play.at(5_000).group_is(State.PREPARING, members=["a", "b", "x'", "y"])
    play.join("a")
    play.join("b").expect(generation=2)
    rejoined.expect(generation=2)
    second_again.expect(generation=2)


@scenario("PX-05")
def test_a_newcomer_waits_no_longer_than_its_own_rebalance_timeout(stable: Play) -> None:
    stable.set_policies({"expansion.timeout.ms": "60000"})
    stable.join("x", instance="ix", rebalance=20_000).expect_parked()
    stable.at(2_000).join("y", instance="iy", rebalance=7_000).expect_parked()
    stable.at(8_999).group_is(State.STABLE)
    stable.at(9_000).group_is(State.PREPARING, members=["a", "b", "x", "y"])


@scenario("PX-06")
def test_any_other_rebalance_takes_the_newcomers(stable: Play) -> None:
    play = stable
    waiting = play.join("x", instance="ix").expect_parked()
    play.join("a")  # the leader triggers a rebalance
    play.group_is(State.PREPARING, members=["a", "b", "x"])
    play.join("b").expect(generation=2)
    waiting.expect(generation=2, at=0)


@scenario("PX-07")
def test_newcomers_wait_while_assignments_are_awaited(play: Play) -> None:
    play.two_awaiting_assignment()
    play.set_policies(EXPANSION)
    play.join("x", instance="ix").expect_parked()
    play.group_is(State.COMPLETING, members=["a", "b"])
    play.sync("a", {"a": 1, "b": 2}).expect()
    play.group_is(State.STABLE, generation=1)
    play.at(5_000).group_is(State.PREPARING, members=["a", "b", "x"])


@scenario("PX-08")
def test_a_join_phase_takes_newcomers_at_once(play: Play) -> None:
    play.leader_rejoins()
    play.set_policies(EXPANSION)
    play.join("x", instance="ix").expect_parked()
    play.group_is(State.PREPARING, members=["a", "b", "x"])


@scenario("PX-09")
def test_newcomers_that_wait_count_towards_the_maximum_size(play: Play) -> None:
    play.configure(group_max_size=3)
    play.two_static()
    play.set_policies(EXPANSION)
    play.join("x", instance="ix").expect_parked()
    play.join("y", instance="iy").expect(ErrorCode.GROUP_MAX_SIZE_REACHED)
    play.join("x'").expect_parked()
    play.keep_alive("a", "b").at(5_000).group_is(State.PREPARING, members=["a", "b", "x'"])


@scenario("PX-10")
def test_a_newcomer_whose_connection_is_closed_is_forgotten_after_a_session(stable: Play) -> None:
    play = stable
    play.set_policies({"expansion.timeout.ms": "60000"})
    connection, second_connection = Connection(), Connection()
    play.connection = connection
    play.join("x", instance="ix", rebalance=90_000).expect_parked()
    play.connection = second_connection
    play.join("y", instance="iy", rebalance=90_000).expect_parked()
    play.at(8_500)
    connection.closed = True
    play.at(18_999)
    assert len(play.newcomers()) == 2
    play.at(19_000)
    assert play.newcomers() == ["iy"]
    play.at(60_000).group_is(State.PREPARING, members=["a", "b", "y"])


@scenario("PX-11")
def test_a_newcomer_that_leaves_or_is_removed_causes_no_rebalance(stable: Play) -> None:
    play = stable
    play.join("x", instance=None).expect(ErrorCode.MEMBER_ID_REQUIRED)
    fenced_join = play.join("x").expect_parked()
    removed = play.join("y", instance="iy").expect_parked()
    play.leave("x").expect()
    play.leave(("", "iy")).expect()
    fenced_join.expect(ErrorCode.UNKNOWN_MEMBER_ID)
    removed.expect(ErrorCode.UNKNOWN_MEMBER_ID)
    play.at(30_000).group_is(State.STABLE, generation=1, members=["a", "b"])


@scenario("PX-12")
def test_without_the_policy_the_newcomers_join_at_once(stable: Play) -> None:
    stable.join("x", instance="ix").expect_parked()
    stable.at(1_000).set_policies()
    stable.after(0).group_is(State.PREPARING, members=["a", "b", "x"])


@scenario("PX-13")
def test_after_a_failover_the_wait_begins_with_the_first_request(stable: Play) -> None:
    play = stable
    play.join("x", instance="ix").expect_parked()
    play.at(4_000).failover()
    assert not play.newcomers()
    play.at(6_000)
    play.group_is(State.STABLE, members=["a", "b"])
    play.join("x'").expect_parked()
    play.at(10_999).group_is(State.STABLE)
    play.at(11_000).group_is(State.PREPARING, members=["a", "b", "x'"])


@scenario("PX-14")
def test_a_suspended_shard_answers_the_newcomers(stable: Play) -> None:
    waiting = stable.join("x", instance="ix").expect_parked()
    stable.fail_log()
    waiting.expect(ErrorCode.NOT_COORDINATOR)


@scenario("PX-15")
def test_a_newcomer_whose_protocols_no_longer_fit_is_refused_at_the_rebalance(play: Play) -> None:
    play.two_static(protocols=["range", "roundrobin"])
    play.set_policies(EXPANSION)
    waiting = play.join("x", instance="ix", protocols=["range"]).expect_parked()
    play.join("a", protocols=["roundrobin"]).expect_parked()
    play.group_is(State.PREPARING, members=["a", "b"])
    waiting.expect(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


@scenario("PX-16")
def test_with_both_policies_a_crash_and_a_newcomer_are_handled_separately(stable: Play) -> None:
    """b goes away without a rebalance, so the newcomer waits its full time; the rebalance for the newcomer does not wait for b."""
    play = stable
    play.set_policies({**EXPANSION, "registration.timeout.ms": "60000"})
    play.stop_heartbeats("b").at(12_000)
    play.group_is(State.STABLE, generation=1, members=["a", "b"])
    waiting = play.join("x", instance="ix").expect_parked()
    play.at(17_000).group_is(State.PREPARING, members=["a", "b", "x"])
    play.join("a").expect(generation=2, members=["a", "b", "x"])
    waiting.expect(generation=2)
    play.expect_note(NoteKind.MEMBER_AWAY, instance_id="ib", back=False)
    assert not [note for note in play.notes if note.kind == NoteKind.MEMBER_GONE]


@scenario("PX-17")
def test_a_waiting_newcomer_that_joins_again_after_the_policy_is_unset_joins_once(stable: Play) -> None:
    waiting = stable.join("x", instance="ix").expect_parked()
    stable.at(1_000).set_policies()
    stable.join("x'").expect_parked()
    waiting.expect(ErrorCode.UNKNOWN_MEMBER_ID)
    stable.group_is(State.PREPARING, members=["a", "b", "x'"])
