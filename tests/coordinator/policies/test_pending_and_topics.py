"""pending.release: an unused member id dies with its connection. topics.watch: changed partitions cause a rebalance."""

from __future__ import annotations

import pytest

from coordinator.notes import Cause, Removal
from coordinator.states import State
from protocol.errors import ErrorCode
from protocol.messages.kinds import NoteKind
from tests.coordinator.playbook import T0_T1, Play, row, scenario

MEMBER_ID_REQUIRED = ErrorCode.MEMBER_ID_REQUIRED


class Connection:
    closed = False


@pytest.fixture
def connection(play: Play) -> Connection:
    """Two static members and a client whose JoinGroups come on this connection, with both policies."""
    play.two_static()
    assert not play.set_policies({"pending.release": "true", "topics.watch": "true"})
    play.keep_alive("a", "b")
    connection = Connection()
    play.connection = connection
    return connection


@scenario("PP-01")
def test_an_unused_member_id_ends_with_its_connection(play: Play, connection: Connection) -> None:
    play.join("x", instance=None).expect(MEMBER_ID_REQUIRED)
    play.at(2_500)
    connection.closed = True
    play.group_is(State.STABLE, pending=["x"])
    play.at(3_000).group_is(State.STABLE, pending=[])
    play.expect_note(NoteKind.MEMBER_GONE, member_id="x", how=Removal.PENDING_EXPIRED)


@scenario("PP-02")
def test_a_join_phase_ends_when_the_unused_member_id_is_released(play: Play, connection: Connection) -> None:
    play.join("x", instance=None).expect(MEMBER_ID_REQUIRED)
    play.connection = None
    play.join("a").expect_parked()
    last = play.join("b").expect_parked()
    connection.closed = True
    play.at(1_000)
    last.expect(generation=2, at=1_000)


@scenario("PP-03")
def test_a_second_request_on_the_connection_releases_the_id_before_it(play: Play, connection: Connection) -> None:
    play.join("x", instance=None).expect(MEMBER_ID_REQUIRED)
    play.join("y", instance=None).expect(MEMBER_ID_REQUIRED)
    play.group_is(State.STABLE, pending=["y"])
    play.connection = Connection()
    play.join("z", instance=None).expect(MEMBER_ID_REQUIRED)
    play.group_is(State.STABLE, pending=["y", "z"])
    play.join("x").expect(ErrorCode.UNKNOWN_MEMBER_ID)


@scenario("PP-04")
def test_an_unused_id_on_an_open_connection_lives_for_its_session(play: Play, connection: Connection) -> None:
    play.join("x", instance=None).expect(MEMBER_ID_REQUIRED)
    play.at(9_999).group_is(State.STABLE, pending=["x"])
    play.at(10_000).group_is(State.STABLE, pending=[])


@scenario("PP-05")
def test_a_used_id_no_longer_depends_on_its_connection(play: Play, connection: Connection) -> None:
    play.join("x", instance=None).expect(MEMBER_ID_REQUIRED)
    play.join("x").expect_parked()
    connection.closed = True
    play.at(5_000).group_is(State.PREPARING, members=["a", "b", "x"], pending=[])


@scenario("PP-06")
def test_without_the_policy_an_unused_id_outlives_its_connection(play: Play, connection: Connection) -> None:
    play.set_policies()
    play.join("x", instance=None).expect(MEMBER_ID_REQUIRED)
    play.join("y", instance=None).expect(MEMBER_ID_REQUIRED)
    connection.closed = True
    play.at(9_999).group_is(State.STABLE, pending=["x", "y"])


def changed(play: Play, *topics: str) -> None:
    assert play.shard is not None
    play.shard.policies.topics_changed(topics, play.now, play.wall)
    play.after(0)


@scenario("PT-01")
def test_new_partitions_of_a_listed_topic_cause_a_rebalance(play: Play, connection: Connection) -> None:
    changed(play, "t0", "other")
    play.group_is(State.PREPARING)
    play.expect_note(NoteKind.STATE_CHANGE, reason=Cause.TOPICS_CHANGED, text="topics: t0")
    play.heartbeat("a", 1).expect(ErrorCode.REBALANCE_IN_PROGRESS)


@scenario("PT-02")
def test_other_topics_cause_no_rebalance(play: Play, connection: Connection) -> None:
    changed(play, "t1")
    play.group_is(State.STABLE, generation=1)


@scenario("PT-03")
def test_a_change_while_assignments_are_awaited_restarts_the_rebalance(play: Play) -> None:
    waiting = play.follower_awaits_assignment(metadata=T0_T1)
    play.set_policies({"topics.watch": "true"})
    changed(play, "t1")
    waiting.expect(ErrorCode.REBALANCE_IN_PROGRESS)
    play.group_is(State.PREPARING)


@scenario("PT-04")
def test_a_join_phase_is_not_restarted_by_a_change(play: Play) -> None:
    play.leader_rejoins()
    play.set_policies({"topics.watch": "true"})
    changed(play, "t0")
    play.group_is(State.PREPARING)
    assert not [note for note in play.notes if note.kind == NoteKind.STATE_CHANGE]


@pytest.mark.parametrize(("type", "policy"), [row("PT-05", "connect", "topics.watch"), row("PT-05", "consumer", "pending.release")])
def test_a_changed_topic_does_not_concern_groups_of_other_types_or_policies(play: Play, type: str, policy: str) -> None:
    play.two_static(type=type)
    play.set_policies({policy: "true"})
    changed(play, "t0")
    play.group_is(State.STABLE, generation=1)


@scenario("PT-06")
def test_after_a_failover_topics_are_still_watched(play: Play, connection: Connection) -> None:
    play.failover()
    changed(play, "t0")
    play.group_is(State.PREPARING)
