"""Which rebalances static membership would have avoided, in scripted histories with known results and in random histories."""

from __future__ import annotations

import pytest

from pipeline.avoidable import NO, SETTLED_AFTER_MS, UNKNOWN, YES
from pipeline.rows import Episode
from pipeline.virtual import World
from tests.pipeline.advising import MINUTE_MS, advised, counted, played, random_restarts
from tests.pipeline.scenarios import HOUR_MS, SCENARIOS, play, pod, pods

pytestmark = pytest.mark.once  # no dependence on the Python version

# Members that were evicted and rejoined without a restart: with an instance id and a longer session, they too would have kept their seats.
NOT_RESTARTED = {"a poll that takes too long": 2, "a member that stands still, and wakes": 2, "a member that does not rejoin in time": 1}
WITH_ALL_NOTES = [name for name in SCENARIOS if "notes are lost" not in name]


def expected(name: str) -> int:
    return NOT_RESTARTED.get(name, SCENARIOS[name].avoidable)


@pytest.mark.parametrize("name", WITH_ALL_NOTES)
def test_with_notes_avoidable_rebalances_are_exact(name: str) -> None:
    tables = advised(play(name).world)
    assert counted(tables.episodes, YES) == expected(name)
    assert counted(tables.episodes, UNKNOWN) == 0
    assert sum(replacement.verdict == "saved" for replacement in tables.replacements) == SCENARIOS[name].saved


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_without_notes_avoidable_rebalances_have_bounds(name: str) -> None:
    tables = advised(play(name).world, notes=False)
    sure = counted(tables.episodes, YES)
    assert sure <= expected(name) <= sure + counted(tables.episodes, UNKNOWN)
    assert sum(replacement.verdict == "saved" for replacement in tables.replacements) == SCENARIOS[name].saved


@pytest.mark.parametrize("name", [name for name in SCENARIOS if "notes are lost" in name])
def test_with_lost_notes_avoidable_rebalances_have_bounds(name: str) -> None:
    tables = advised(play(name).world)
    sure = counted(tables.episodes, YES)
    assert sure <= expected(name) <= sure + counted(tables.episodes, UNKNOWN)


@pytest.mark.parametrize("seed", range(8))
def test_claims_without_notes_are_not_contradicted_by_notes(seed: int) -> None:
    """In these scenarios notes and group records show the same rebalances."""
    world = played(random_restarts(seed, [3_000, 20_000, 10 * MINUTE_MS]))
    exact, inferred = advised(world).episodes, advised(world, notes=False).episodes
    truth = counted(exact, YES)
    assert counted(exact, UNKNOWN) == 0
    assert counted(inferred, YES) <= truth <= counted(inferred, YES) + counted(inferred, UNKNOWN)
    for episode in exact:
        assert (episode.avoidable_by_ms is not None) == (episode.avoidable == YES)


@pytest.mark.parametrize("seed", range(8))
def test_only_restarts_are_avoidable(seed: int) -> None:
    """The virtual world that created the logs knows which rebalances a restart caused."""
    world = played(random_restarts(seed, [3_000, 20_000, 10 * MINUTE_MS]))
    truth = {episode.start_ms for episode in world.avoidable("g")}
    episodes = {episode.start_lo_ms for episode in advised(world).episodes if episode.avoidable == YES}
    changed = {episode.start_lo_ms for episode in advised(world).episodes if episode.subscription_change}
    assert episodes == truth - changed


def test_the_sufficient_timeout_is_just_above_the_absence() -> None:
    def script(world: World) -> None:
        pods(world, 3)[1].restart(20_000)

    world = played(script)
    gaps = {restart.gap_ms for restart in world.restarts}
    episodes = advised(world).episodes[1:]
    assert [episode.avoidable for episode in episodes] == [YES, YES]
    assert {episode.avoidable_by_ms for episode in episodes} == {gap + 1 for gap in gaps}


def test_a_restart_together_with_newcomers_is_not_avoidable() -> None:
    def script(world: World) -> None:
        pods(world, 3)[1].restart(20_000)
        world.run(20_000)
        pod(world, 7)

    assert [episode.avoidable for episode in advised(played(script)).episodes] == [NO, YES, NO]


def test_the_second_step_of_a_cooperative_rebalance_has_the_verdict_of_the_first() -> None:
    def script(world: World) -> None:
        pods(world, 3, assignors=("cooperative-sticky",))[1].restart(20_000)
        world.run(5 * MINUTE_MS)
        pod(world, 3, assignors=("cooperative-sticky",))

    episodes = advised(played(script)).episodes
    causes = [(episode.cause, episode.avoidable) for episode in episodes[1:]]
    assert causes[:3] == [("member_left", YES), ("new_member", YES), ("member_metadata_changed", YES)]
    assert causes[3:] == [("new_member", NO), ("member_metadata_changed", NO)]


def test_a_departure_is_not_judged_while_the_member_may_return() -> None:
    def script(world: World) -> None:
        pods(world, 3)[1].stop()

    world = played(script)
    (early,) = advised(world, until_ms=world.start_ms + 20 * MINUTE_MS).episodes[1:]
    assert (early.avoidable, early.final) == (UNKNOWN, False)
    assert advised(world).episodes[1].avoidable == NO


def test_a_return_lost_by_the_coordinator_counts_once() -> None:
    """The coordinator was killed before it had stored the member's return, and the member rejoined."""

    def script(world: World) -> None:
        pods(world, 3)[1].restart(20_000)
        world.at(world.now + 20_300, world.kill_coordinator, 4_000)  # after its note is written, before its record is

    world = played(script)
    tables = advised(world)
    assert [(episode.cause, episode.end, episode.avoidable) for episode in tables.episodes[1:]] == [
        ("member_left", "stable", YES),
        ("new_member", "interrupted", YES),
        ("new_member", "stable", YES),
    ]
    (gap,) = tables.gaps
    assert gap.gap_hi_ms == world.restarts[0].gap_ms
    assert gap.episodes == [1, 2, 3]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("notes", [True, False])
def test_final_verdicts_do_not_change(seed: int, notes: bool) -> None:
    world = played(random_restarts(seed, [3_000, 20_000, 25 * MINUTE_MS], steps=40), SETTLED_AFTER_MS)
    unlimited = {episode.episode: episode for episode in advised(world, notes=notes).episodes}
    final: dict[int, Episode] = {}
    for until in range(world.start_ms + 2 * HOUR_MS, world.now, 37 * MINUTE_MS):
        final |= {episode.episode: episode for episode in advised(world, notes=notes, until_ms=until).episodes if episode.final}
    assert final
    for number, row in final.items():
        assert (row.avoidable, row.avoidable_by_ms, row.deploy) == (unlimited[number].avoidable, unlimited[number].avoidable_by_ms, unlimited[number].deploy)
