"""An outage of the broker, after which all members return under other ids, is no restart of the clients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.avoidable import NO, UNKNOWN, YES
from pipeline.rows import Deploy, Episode, Gap
from pipeline.schema import rows_of
from pipeline.virtual import World
from tests.pipeline.advising import MINUTE_MS, advised, played
from tests.pipeline.building import analyzed
from tests.pipeline.scenarios import GROUP, TOPICS, pod, pods, write_script

pytestmark = pytest.mark.once  # no dependence on the Python version

AWAY_MS = 66_000  # for which no client reaches the broker


def outage(down_ms: int = 20_000, count: int = 3, orderly: bool = False, **settings: object) -> Callable[[World], None]:
    """The broker is away for `down_ms`, and the clients find it only after the sessions that it then began."""

    def script(world: World) -> None:
        for number, client in enumerate([pod(world, number, **settings) for number in range(count)]):  # type: ignore[arg-type]
            world.at(world.now + 10 * MINUTE_MS, client.freeze, AWAY_MS + 1_500 * number)
        world.run(10 * MINUTE_MS)
        (world.restart_coordinator if orderly else world.kill_coordinator)(down_ms)

    return script


@pytest.mark.parametrize("notes", [True, False])
@pytest.mark.parametrize(
    "script",
    [
        outage(),
        outage(orderly=True),
        outage(down_ms=500),
        outage(static=True),
        outage(count=1),
        outage(session_ms=45_000, rebalance_ms=MINUTE_MS),
        outage(assignors=("cooperative-sticky",)),
        outage(client_id="app"),
    ],
)
def test_members_that_return_after_an_outage_were_not_restarted(script: Callable[[World], None], notes: bool) -> None:
    tables = advised(played(script), notes=notes)
    assert len(tables.episodes) > 1
    for episode in tables.episodes[1:]:
        assert episode.avoidable == UNKNOWN
        assert episode.avoidable_by_ms is None
        assert "the coordinator had been away" in episode.evidence
        assert (episode.cause, episode.confidence) == ("coordinator_moved", "weak") or notes
    assert tables.episodes[0].avoidable == NO
    assert (tables.deploys, tables.gaps, tables.replacements) == ([], [], [])
    assert tables.advice[0].recommended_ms is None


@pytest.mark.parametrize("notes", [True, False])
def test_processes_that_end_in_an_outage_and_return_at_once_after_it_are_no_deploy(notes: bool) -> None:
    """They join while the coordinator still waits for their old ids."""

    def script(world: World) -> None:
        running = pods(world, 3, rebalance_ms=MINUTE_MS)
        world.kill_coordinator(AWAY_MS)
        for client in running:
            client.restart(AWAY_MS + 2_000, graceful=False)

    tables = advised(played(script), notes=notes)
    assert [episode.avoidable for episode in tables.episodes] == [NO, UNKNOWN]
    assert (tables.deploys, tables.gaps) == ([], [])


@pytest.mark.parametrize("notes", [True, False])
def test_a_member_that_does_not_come_back_with_the_others_was_restarted(notes: bool) -> None:
    def script(world: World) -> None:
        running = pods(world, 3, session_ms=45_000)
        world.restart_coordinator(4_000)
        running[1].restart(AWAY_MS, graceful=False)

    tables = advised(played(script), notes=notes)
    assert [episode.avoidable for episode in tables.episodes] == [NO, YES, YES]
    assert len(tables.gaps) == 1


def analyzed_rows(tmp_path: Path, script: Callable[[World], None], notes: bool, runs: int = 1) -> tuple[list[Episode], list[Deploy], list[Gap]]:
    write_script(script, tmp_path / "data", notes)
    made = analyzed(tmp_path / "out", tmp_path / "data", [{0: 20 * number} for number in range(1, runs)])
    return rows_of(Episode, made.read("rebalances")), rows_of(Deploy, made.read("deploys")), rows_of(Gap, made.read("gap_samples"))


@pytest.mark.parametrize("notes", [True, False])
@pytest.mark.parametrize("runs", [1, 9])
def test_an_outage_is_found_in_a_directory_in_any_number_of_runs(tmp_path: Path, notes: bool, runs: int) -> None:
    episodes, deploys, gaps = analyzed_rows(tmp_path, outage(), notes, runs)
    assert [episode.avoidable for episode in episodes] == [NO, UNKNOWN, UNKNOWN]
    assert (deploys, gaps) == ([], [])


@pytest.mark.parametrize("notes", [True, False])
@pytest.mark.parametrize("commits", [True, False])
def test_a_deploy_after_a_restart_of_the_broker_stays_a_deploy(tmp_path: Path, notes: bool, commits: bool) -> None:
    """Commits, of the group or only of another one, show that the coordinator had been back for long."""

    def script(world: World) -> None:
        running = [pod(world, number) if commits else world.client(GROUP, f"p{number}", topics=TOPICS, host=f"/10.0.0.{number}") for number in range(3)]
        other = world.client("other", "other", topics=TOPICS)
        for client in [other] if commits else [other, *running]:
            client.start()
        world.run(10 * MINUTE_MS)
        world.restart_coordinator(4_000)
        world.run(5_000)
        other.commit({"t": [(0, 1)]})
        world.run(10 * MINUTE_MS)
        for client in running:
            client.restart(20_000)

    episodes, deploys, gaps = analyzed_rows(tmp_path, script, notes)
    of_group = [episode for episode in episodes if episode.group == GROUP]
    assert len(of_group) > 1
    assert [episode.avoidable for episode in of_group[1:]] == [YES] * (len(of_group) - 1)
    assert (len(deploys), len(gaps)) == (1, 3)
