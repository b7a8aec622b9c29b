"""The two tables of docs/policies.md, run by the real broker in virtual time, whose coordinator is killed after every event of a table.

A rebalance must begin within one second after the later of two moments: that of the table, and one session after the load.
"""

from __future__ import annotations

import pytest

from coordinator.notes import Cause
from tests.simulator.table_stage import BEAT_MS, SESSION_MS, Player, Stage

pytestmark = pytest.mark.once

LATE_MS = 1_000
EXACT_MS = 3  # the delay of the network
LEADER_BEATS_AT_MS = 250  # between the rows: if it heard of a rebalance before the kill, it would rejoin after the load and cause another
REGISTRATION_MS = 15_000
EXPANSION_MS = 5_000

# The events after which the coordinator is killed.
ABSENCE_KILLS = {
    "the last heartbeat of A": -SESSION_MS + 50,
    "A is away": 50,
    "the last heartbeat of B": 10_000 - SESSION_MS + 50,
    "B's session is about to end": 9_950,
    "B is away": 10_050,
    "both are away": 12_000,
    "the JoinGroup of A returns": 14_001,
    "A is back": 14_300,
    "the rebalance is about to begin": 24_950,
    "the rebalance has begun": 25_100,
    "the rebalance is over": 26_500,
}
ARRIVAL_KILLS = {
    "A arrives": 1,
    "A waits": 1_000,
    "B arrives": 3_001,
    "A and B wait": 4_950,
    "the rebalance has begun": 5_100,
    "the rebalance is over": 5_700,
    "C arrives": 6_001,
    "C waits": 10_950,
    "the second rebalance has begun": 11_100,
    "the second rebalance is over": 12_000,
}


def settled(leader: Player, *others: Player) -> None:
    stage = leader.stage
    players = (leader, *others)
    leader.start()
    stage.advance_to(stage.now_ms + 100)  # the first member leads
    for player in others:
        player.start()
    stage.advance_to(stage.now_ms + 5_000)
    assert all(player.has_assignment for player in players)
    assert len({player.generation for player in players}) == 1


def begin_on_heartbeat(stage: Stage, in_ms: int) -> None:
    """Begin a table at a moment when members heartbeat, the first one after at least `in_ms` milliseconds."""
    now = stage.world.now // 1_000_000
    stage.begin(in_ms + BEAT_MS - now % BEAT_MS)


def begin_absences() -> tuple[Player, Player, Player]:
    """The leader, A and B: A away 0:00, B away 0:10."""
    stage = Stage()
    leader, first, second = Player(stage, "leader", LEADER_BEATS_AT_MS), Player(stage, "a"), Player(stage, "b")
    settled(leader, first, second)
    stage.set_policy("registration.timeout.ms", str(REGISTRATION_MS))
    begin_on_heartbeat(stage, SESSION_MS + 1_000)
    # Kill each member just after the heartbeat that begins its last session.
    stage.schedule(-SESSION_MS + 10, first.kill)
    stage.schedule(10_000 - SESSION_MS + 10, second.kill)
    return leader, first, second


def play_absences(killed_at: int | None, power_fails: bool = False) -> tuple[Stage, Player, Player]:
    """A away 0:00, B away 0:10, A back 0:14, one rebalance 0:25."""
    leader, first, second = begin_absences()
    stage, seat = leader.stage, first.assignment
    stage.schedule(14_000, first.start)
    if killed_at is not None:
        stage.schedule(killed_at, stage.kill, power_fails)
    stage.advance_to(24_990)
    assert not stage.rebalances
    assert first.has_assignment
    assert first.assignment == seat
    assert first.generation == leader.generation == second.generation
    stage.advance_to(60_000)
    return stage, leader, first


def play_absences_without_return(killed_at: int | None) -> tuple[Stage, Player]:
    """A away 0:00, B away 0:10, one rebalance 0:15 without both."""
    leader, _, _ = begin_absences()
    stage = leader.stage
    if killed_at is not None:
        stage.schedule(killed_at, stage.kill, True)
    stage.advance_to(14_990)
    assert not stage.rebalances
    stage.advance_to(60_000)
    return stage, leader


def test_the_table_of_absences_to_the_millisecond() -> None:
    stage, leader, first = play_absences(None)
    assert len(stage.rebalances) == 1
    assert 0 <= stage.rebalances[0].at_ms - 25_000 <= EXACT_MS
    assert stage.rebalances[0].cause == Cause.ABSENCES_ENDED
    assert stage.listed == ["a", "leader"]
    assert first.generation == leader.generation


@pytest.mark.parametrize("power_fails", [False, True], ids=["kill -9", "power failure"])
@pytest.mark.parametrize("event", ABSENCE_KILLS)
def test_the_table_of_absences_with_the_coordinator_killed(event: str, power_fails: bool) -> None:
    killed_at = ABSENCE_KILLS[event]
    stage, leader, first = play_absences(killed_at, power_fails)
    assert len(stage.loads) == 1
    loaded = stage.loads[0]
    silent = 10_000 - SESSION_MS
    away_at = loaded + SESSION_MS if silent < killed_at < 10_000 else 10_000  # a session that has not ended at the kill begins again with the load
    due = away_at + REGISTRATION_MS
    if killed_at < due:
        due = max(due, loaded + SESSION_MS)
    moments = [rebalance.at_ms for rebalance in stage.rebalances]
    if event == "the rebalance has begun":  # nothing of this rebalance was stored, so after the load the absence of B ends once more
        assert len(moments) == 2
        assert loaded + SESSION_MS <= moments[1] <= loaded + SESSION_MS + LATE_MS
    else:
        assert len(moments) == 1
    assert due <= moments[0] <= due + LATE_MS
    assert {rebalance.cause for rebalance in stage.rebalances} == {Cause.ABSENCES_ENDED}
    assert stage.listed == ["a", "leader"]
    assert first.has_assignment
    assert leader.has_assignment
    assert first.generation == leader.generation


def test_all_absent_members_are_removed_with_the_earliest_absence_to_the_millisecond() -> None:
    stage, _ = play_absences_without_return(None)
    (rebalance,) = stage.rebalances
    assert 0 <= rebalance.at_ms - 15_000 <= EXACT_MS
    assert stage.listed == ["leader"]


@pytest.mark.parametrize("killed_at", [50, 5_000, 10_050, 12_000, 14_900], ids=lambda moment: f"killed at {moment} ms")
def test_all_absent_members_are_removed_with_the_earliest_absence_after_a_load(killed_at: int) -> None:
    stage, leader = play_absences_without_return(killed_at)
    (loaded,) = stage.loads
    due = max(15_000, loaded + SESSION_MS)
    (rebalance,) = stage.rebalances
    assert due <= rebalance.at_ms <= due + LATE_MS
    assert stage.listed == ["leader"]
    assert leader.has_assignment


def play_arrivals(killed_at: int | None, power_fails: bool = False) -> tuple[Stage, Player, list[Player]]:
    """A 0:00, B 0:03, a rebalance 0:05 with both; C 0:06, a rebalance 0:11."""
    stage = Stage()
    leader = Player(stage, "leader", LEADER_BEATS_AT_MS)
    settled(leader)
    stage.set_policy("expansion.timeout.ms", str(EXPANSION_MS))
    begin_on_heartbeat(stage, 1_000)
    newcomers = [Player(stage, name) for name in "abc"]
    for newcomer, moment in zip(newcomers, (0, 3_000, 6_000), strict=True):
        stage.schedule(moment, newcomer.start)
    if killed_at is not None:
        stage.schedule(killed_at, stage.kill, power_fails)
    stage.advance_to(4_990)
    assert not stage.rebalances
    stage.advance_to(40_000)
    return stage, leader, newcomers


def test_the_table_of_arrivals_to_the_millisecond() -> None:
    stage, leader, newcomers = play_arrivals(None)
    assert [rebalance.cause for rebalance in stage.rebalances] == [Cause.EXPANSION, Cause.EXPANSION]
    first, second = (rebalance.at_ms for rebalance in stage.rebalances)
    assert 0 <= first - 5_000 <= EXACT_MS
    assert 0 <= second - 11_000 <= EXACT_MS
    assert stage.listed == ["a", "b", "c", "leader"]
    assert {player.generation for player in (leader, *newcomers)} == {leader.generation}


@pytest.mark.parametrize("power_fails", [False, True], ids=["kill -9", "power failure"])
@pytest.mark.parametrize("event", ARRIVAL_KILLS)
def test_the_table_of_arrivals_with_the_coordinator_killed(event: str, power_fails: bool) -> None:
    """After the load the wait starts again with the first JoinGroup; newcomers that arrive during the wait join in the same rebalance."""
    stage, leader, newcomers = play_arrivals(ARRIVAL_KILLS[event], power_fails)
    (loaded,) = stage.loads
    assert {rebalance.cause for rebalance in stage.rebalances} == {Cause.EXPANSION}
    began = -1
    for rebalance in stage.rebalances:
        since = max(began, loaded) if loaded < rebalance.at_ms else began
        first = min(sent for sent, _ in stage.joins if since <= sent < rebalance.at_ms)
        assert first + EXPANSION_MS <= rebalance.at_ms <= first + EXPANSION_MS + LATE_MS
        began = rebalance.at_ms
    begun = event in ("the rebalance has begun", "the second rebalance has begun")
    alone = event in ("the rebalance has begun", "A and B wait", "B arrives", "A waits")
    assert len(stage.rebalances) == 2 + begun - alone
    assert stage.listed == ["a", "b", "c", "leader"]
    assert all(player.has_assignment for player in (leader, *newcomers))
    assert {player.generation for player in newcomers} == {leader.generation}
