"""Rebalances avoided by a session timeout: the computed number equals that of a replay through the coordinator."""

from __future__ import annotations

import pytest

from pipeline.avoidable import YES
from pipeline.virtual import World
from pipeline.whatif import FOREVER_MS, confirmed_avoidable
from tests.pipeline.advising import MINUTE_MS, advised, counted, played, random_restarts, script_of
from tests.pipeline.scenarios import SCENARIOS, play, pods

pytestmark = pytest.mark.once

TIMEOUTS = [6_000, 10_000, 30_000, 60_000, 180_000, FOREVER_MS]
QUIET = [10 * MINUTE_MS, 20 * MINUTE_MS]  # each restart is over before the next begins
DENSE = [3_000, 20_000, 90_000, 10 * MINUTE_MS]


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_replay_without_restarts_gives_the_coordinators_rebalances(seed: int, static: bool) -> None:
    world = played(random_restarts(seed, QUIET, steps=25, static=static))
    restarts, script, episodes = script_of(world)
    for timeout in TIMEOUTS[1:]:  # not with 6 s: some absences are hardly longer, and end within the rebalance that they cause
        replayed = script.as_static(timeout)
        longer = [restart for restart in restarts.returns if restart.away[1] >= timeout]
        assert replayed.rebalances == len(episodes) - counted(episodes, YES) + 2 * len(longer), timeout
        assert replayed.of_restarts(timeout) == []
        assert {member.new_id for member in replayed.expired()} == {member.new_id for member in longer}


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_no_replayed_session_ends_within_a_bridged_restart(seed: int, static: bool) -> None:
    """In these histories events coincide, so rebalances may merge or split, but no bridged restart may cause a rebalance."""
    world = played(random_restarts(seed, DENSE, steps=40, static=static))
    restarts, script, episodes = script_of(world)
    for timeout in TIMEOUTS:
        replayed = script.as_static(timeout)
        longer = {restart.new_id for restart in restarts.returns if restart.away[1] >= timeout}
        # The end of a join round renews the sessions of the members that waited in it, so some longer absences are bridged too.
        assert {member.new_id for member in replayed.expired()} <= longer
        assert replayed.of_restarts(timeout) == []
    assert confirmed_avoidable(script, episodes, FOREVER_MS) == counted(episodes, YES)


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_a_replay_with_the_actual_timeouts_gives_the_actual_rebalances(seed: int, static: bool) -> None:
    world = played(random_restarts(seed, QUIET, steps=25, static=static))
    _, script, episodes = script_of(world)
    replayed = script.as_it_was().episodes
    assert len(replayed) == len(episodes)
    assert [rebalance.cause for rebalance in replayed[1:]] == [episode.cause for episode in episodes[1:]]


def test_an_infinite_session_removes_all_rebalances_of_restarts() -> None:
    for name in ("rolling restart of dynamic members", "restarts longer than the session of static members", "a crash loop"):
        _, script, _ = script_of(play(name).world)
        assert script.as_static(FOREVER_MS).rebalances == 1, name


def test_a_too_short_session_keeps_both_rebalances_of_a_restart() -> None:
    _, script, episodes = script_of(play("rolling restart of dynamic members").world)
    assert script.as_static(10_000).rebalances == len(episodes) == 7


@pytest.mark.parametrize(("away_ms", "saved"), [(20_000, [2, 2, 2]), (200, [1, 1, 1])])
def test_a_kept_seat_saves_two_rebalances_or_one_merged(away_ms: int, saved: list[int]) -> None:
    def script(world: World) -> None:
        for client in pods(world, 3, static=True, session_ms=45_000):
            client.restart(away_ms)
            world.run(5 * MINUTE_MS)

    rows = advised(played(script)).replacements
    assert [(row.saved_at_least, row.saved_rebalances) for row in rows] == [(count, count) for count in saved]


def test_members_that_restart_together_save_together() -> None:
    def script(world: World) -> None:
        for client in pods(world, 3, static=True, session_ms=45_000):
            client.restart(20_000)

    assert sorted(replacement.saved_rebalances for replacement in advised(played(script)).replacements) == [0, 0, 2]


def test_saved_rebalances_equal_the_cost_without_instance_ids() -> None:
    def script(world: World, static: bool) -> None:
        for number, client in enumerate(pods(world, 4, static=static, session_ms=45_000)):
            client.restart(15_000 + 1_000 * number)
            world.run(2 * MINUTE_MS)

    without = played(lambda world: script(world, False))
    kept = played(lambda world: script(world, True))
    saved = sum(replacement.saved_rebalances for replacement in advised(kept).replacements)
    assert len(kept.episodes("g")) + saved == len(without.episodes("g"))


@pytest.mark.parametrize("name", [name for name, scenario in SCENARIOS.items() if scenario.saved])
def test_without_notes_saved_rebalances_have_bounds(name: str) -> None:
    world = play(name).world
    exact, inferred = advised(world).replacements, advised(world, notes=False).replacements
    least, most = sum(row.saved_at_least for row in inferred), sum(row.saved_rebalances for row in inferred)
    assert least <= sum(row.saved_rebalances for row in exact) <= most
