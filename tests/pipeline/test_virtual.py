"""The virtual world: its logs match its events, and its members behave like real clients."""

from __future__ import annotations

import time

import pytest

from history import Entry, Rebalance, story_of
from pipeline.virtual import Client, MemoryRecorder, World
from protocol.messages.kinds import NoteKind

pytestmark = pytest.mark.once

BEGIN_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
GROUP = "checkout"


def new_world() -> World:
    return World(BEGIN_MS)


def pods(world: World, count: int = 4, *, static: bool = False, **settings: object) -> list[Client]:
    started = [
        world.client(
            GROUP, f"pod-{number}", topics={"orders": 12}, instance=f"pod-{number}" if static else None, host=f"/10.0.0.{number}", **settings
        )
        for number in range(count)
    ]
    for pod in started:
        pod.start()
    world.run(60_000)
    return started


def rebalances(world: World) -> list[Rebalance]:
    recorder = world.recorder
    assert isinstance(recorder, MemoryRecorder)
    entries: list[Entry] = list(story_of(GROUP, recorder.note_records(), recorder.group_records(GROUP)))
    return [entry for entry in entries if isinstance(entry, Rebalance)]


def cause_name(rebalance: Rebalance) -> str | None:
    return rebalance.cause.name.lower() if rebalance.cause is not None else None


def check_rebalances_found(world: World) -> None:
    """Check that the analysis of both logs finds each rebalance of the world, with its times, generations and cause."""
    reported = [(rebalance.began_ms, rebalance.ended_ms, rebalance.from_generation, rebalance.to_generation, cause_name(rebalance)) for rebalance in rebalances(world)]
    true = [(episode.start_ms, episode.end_ms, episode.from_generation, episode.to_generation, episode.cause) for episode in world.episodes(GROUP)]
    assert reported == true


def causes(world: World) -> list[str]:
    return [episode.cause for episode in world.episodes(GROUP)]


def test_members_that_start_together_form_one_generation() -> None:
    world = new_world()
    members = pods(world)
    (formed,) = world.episodes(GROUP)
    assert (formed.formation, formed.members_after, formed.to_generation, formed.end) == (True, 4, 1, "stable")
    assert sorted(place for pod in members for place in pod.owned) == [("orders", number) for number in range(12)]
    check_rebalances_found(world)


def test_an_orderly_restart_of_a_dynamic_member_makes_two_rebalances() -> None:
    world = new_world()
    pod = pods(world)[1]
    pod.restart(20_000)
    world.run(HOUR_MS)
    assert causes(world)[1:] == ["member_left", "new_member"]
    assert world.avoidable(GROUP) == world.episodes(GROUP)[1:]
    check_rebalances_found(world)


def test_a_restart_of_a_static_member_makes_no_rebalance() -> None:
    world = new_world()
    pod = pods(world, static=True)[1]
    before = pod.owned
    pod.restart(20_000)
    world.run(HOUR_MS)
    assert len(world.episodes(GROUP)) == 1
    assert pod.owned == before
    assert [change.what for change in world.coordinator_of(GROUP).history(GROUP).changes[-1:]] == ["replaced"]


def test_a_session_ends_its_timeout_after_the_last_heartbeat() -> None:
    world = new_world()
    pod = pods(world, session_ms=10_000, heartbeat_ms=3_000)[1]
    world.run(12_345)
    last = pod.last_beat()
    pod.crash()
    world.run(HOUR_MS)
    lost = world.episodes(GROUP)[1]
    assert (lost.start_ms, lost.cause, lost.trigger) == (last + 10_000, "session_expired", "pod-1")
    check_rebalances_found(world)


def test_a_static_member_away_for_longer_than_its_session_costs_two_rebalances() -> None:
    world = new_world()
    pods(world, static=True, session_ms=10_000)[2].restart(15_000)
    world.run(HOUR_MS)
    assert causes(world)[1:] == ["session_expired", "new_member"]
    check_rebalances_found(world)


def test_a_member_whose_poll_exceeds_its_limit_leaves_and_rejoins() -> None:
    world = new_world()
    pods(world, rebalance_ms=60_000)[3].busy(90_000)
    world.run(HOUR_MS)
    assert causes(world)[1:] == ["member_left", "new_member"]
    assert world.episodes(GROUP)[-1].members_after == 4
    check_rebalances_found(world)


def test_a_member_that_does_not_rejoin_in_time_is_evicted() -> None:
    world = new_world()
    members = pods(world, rebalance_ms=60_000)
    members[0].busy(59_000)
    world.run(20_000)
    members[0].rebalance_ms = 200_000  # longer than the rebalance timeout that the coordinator knows
    members[0].busy(180_000)
    members[1].restart(300_000)
    world.run(HOUR_MS)
    episode = world.episodes(GROUP)[1]
    assert [change.what for change in episode.changes] == ["left", "evicted"]
    check_rebalances_found(world)


def test_a_commit_of_a_resumed_zombie_is_refused() -> None:
    world = new_world()
    pod = pods(world, session_ms=10_000)[0]
    pod.freeze(30_000)
    world.at(world.now + 29_999, pod.commit, {"orders": [(0, 1)]})
    world.run(HOUR_MS)
    recorder = world.recorder
    assert isinstance(recorder, MemoryRecorder)
    assert [record.header.kind for record in recorder.note_records()].count(NoteKind.COMMIT_REFUSED) == 1
    assert causes(world)[1:] == ["session_expired", "new_member"]
    check_rebalances_found(world)


def test_cooperative_members_move_in_two_steps() -> None:
    world = new_world()
    members = pods(world, 3, assignors=["cooperative-sticky"])
    late = world.client(GROUP, "pod-3", topics={"orders": 12}, assignors=["cooperative-sticky"])
    late.start()
    world.run(HOUR_MS)
    assert causes(world)[1:] == ["new_member", "member_metadata_changed"] or causes(world)[1:] == ["new_member", "leader_rejoined"]
    assert sorted(len(pod.owned) for pod in [*members, late]) == [3, 3, 3, 3]
    check_rebalances_found(world)


def test_two_processes_of_one_instance_id_fence_each_other() -> None:
    world = new_world()
    first = pods(world, static=True)[0]
    second = world.client(GROUP, "twin", topics={"orders": 12}, instance="pod-0")
    second.start()
    world.run(HOUR_MS)
    assert (first.alive, second.alive) == (False, True)


def test_the_coordinator_after_a_kill_knows_its_groups() -> None:
    world = new_world()
    members = pods(world)
    world.kill_coordinator(5_000)
    world.run(HOUR_MS)
    assert all(pod.settled for pod in members)
    assert len(world.episodes(GROUP)) == 1
    members[0].restart(10_000)
    world.run(HOUR_MS)
    assert causes(world)[1:] == ["member_left", "new_member"]


def test_a_coordinator_that_stops_within_a_rebalance_interrupts_it() -> None:
    world = new_world()
    members = pods(world)
    world.at(world.now + 1_000, members[0].stop)
    world.at(world.now + 1_020, world.restart_coordinator, 3_000)
    world.run(HOUR_MS)
    assert [episode.end for episode in world.episodes(GROUP)][1] == "interrupted"
    assert sorted(place for pod in members[1:] for place in pod.owned) == [("orders", number) for number in range(12)]


def test_equal_scripts_make_equal_logs() -> None:
    def play() -> MemoryRecorder:
        world = new_world()
        for pod in pods(world):
            pod.restart(20_000)
            world.run(HOUR_MS)
        assert isinstance(world.recorder, MemoryRecorder)
        return world.recorder

    first, second = play(), play()
    assert first.records == second.records
    first_notes, second_notes = ([note.header.encode(1) + note.body.encode(0) for note in world.note_records()] for world in (first, second))
    assert first_notes == second_notes


def test_a_week_of_a_group_of_forty_runs_in_seconds() -> None:
    began = time.monotonic()
    world = new_world()
    members = pods(world, 40, session_ms=10_000)
    for day in range(7):
        for number, pod in enumerate(members):
            world.at(BEGIN_MS + day * 24 * HOUR_MS + 10 * HOUR_MS + number * 40_000, pod.restart, 20_000)
    world.run(7 * 24 * HOUR_MS)
    assert len(world.episodes(GROUP)) > 500
    assert time.monotonic() - began < 20
    check_rebalances_found(world)
