"""The virtual world plays each scenario with the expected events, and the analysis of its logs finds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from history import Rebalance, story_of
from pipeline.virtual import TrueRebalance, World
from tests.cli.log_folders import Command
from tests.pipeline.scenarios import BEGIN_MS, GROUP, HOUR_MS, SCENARIOS, Expected, play, random_script, write, write_transactions

pytestmark = pytest.mark.once  # no dependence on the Python version


def as_expected(episode: TrueRebalance) -> Expected:
    def clients_that(kind: str) -> tuple[str, ...]:
        return tuple(sorted(change.client for change in episode.changes if change.what == kind))

    return Expected(
        episode.cause,
        episode.members_before,
        episode.members_after,
        clients_that("joined"),
        clients_that("left"),
        clients_that("expired"),
        clients_that("evicted"),
        clients_that("removed"),
        clients_that("replaced"),
        tuple(episode.also),
        episode.rounds,
        episode.end,
    )


def cause_name(rebalance: Rebalance) -> str | None:
    return rebalance.cause.name.lower() if rebalance.cause is not None else None


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_has_its_expected_rebalances(name: str) -> None:
    played = play(name)
    world = played.world
    assert [as_expected(episode) for episode in world.episodes(GROUP)] == list(played.scenario.episodes)
    assert len(world.avoidable(GROUP)) == played.scenario.avoidable
    assert len(world.saved(GROUP)) == played.scenario.saved


@pytest.mark.parametrize("name", [name for name in SCENARIOS if "notes are lost" not in name])
def test_a_scenario_is_found_in_its_logs(name: str) -> None:
    played = play(name)
    rebalances = [entry for entry in story_of(GROUP, played.note_records, played.group_records) if isinstance(entry, Rebalance)]
    assert [(rebalance.began_ms, rebalance.ended_ms if rebalance.end.value != "interrupted" else -1, cause_name(rebalance)) for rebalance in rebalances] == [
        (episode.start_ms, episode.end_ms if episode.end != "interrupted" else -1, episode.cause) for episode in played.world.episodes(GROUP)
    ]


@pytest.mark.parametrize("name", ["rolling restart of static members", "the coordinator is killed within a rebalance"])
def test_a_scenario_can_be_written_to_a_directory(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = Command(tmp_path, capsys)
    write(name, tmp_path / "data")
    code, problems, _ = command.verify()
    assert (code, problems) == (0, [])


def test_transactions_can_be_written_to_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = Command(tmp_path, capsys)
    write_transactions(tmp_path / "data")
    code, problems, summary = command.verify()
    assert (code, problems, summary["batches"], summary["records"]) == (0, [], 8, 10)


@pytest.mark.parametrize("seed", range(10))
def test_after_a_random_history_each_partition_has_one_owner(seed: int) -> None:
    """Every running process is a member at the end, and every partition has one owner."""
    world = World(BEGIN_MS)
    random_script(seed)(world)
    world.run(HOUR_MS)
    alive = [client for client in world.clients[GROUP] if client.alive]
    group = world.group(GROUP)
    assert {client.member_id for client in alive} == (set(group.members) if group is not None else set())
    owned = [place for client in alive for place in client.owned]
    assert len(owned) == len(set(owned))
    if alive:
        assert {("t", number) for number in range(12)} <= set(owned)
