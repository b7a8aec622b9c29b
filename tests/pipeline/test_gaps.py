"""Absences of members, and deploys, in which most members restart together."""

from __future__ import annotations

import pytest

from pipeline.gaps import DEATH, HEARTBEAT_GAP
from pipeline.restarts import DYNAMIC_PAIR, EXPIRED_RETURNED, STATIC_REPLACEMENT
from pipeline.virtual import Client, World
from tests.pipeline.advising import MINUTE_MS, advised, played, random_restarts
from tests.pipeline.scenarios import play, pod, pods

pytestmark = pytest.mark.once  # no dependence on the Python version


@pytest.mark.parametrize(
    ("name", "sources"),
    [
        ("rolling restart of dynamic members", [DYNAMIC_PAIR] * 3),
        ("rolling restart of static members", [STATIC_REPLACEMENT] * 3),
        ("restarts longer than the session of static members", [EXPIRED_RETURNED] * 2),
        ("a member that crashes for good", [DEATH]),
        ("a member that crashes and is back before its session ends", [DYNAMIC_PAIR]),
        ("an administrator removes a static member", []),
    ],
)
def test_gap_samples_name_their_source(name: str, sources: list[str]) -> None:
    assert [gap.source for gap in advised(play(name).world).gaps] == sources


def test_a_sample_is_as_long_as_the_absence() -> None:
    world = play("rolling restart of dynamic members").world
    gaps = advised(world).gaps
    assert [(gap.gap_lo_ms, gap.gap_hi_ms) for gap in gaps] == [(restart.gap_ms, restart.gap_ms) for restart in world.restarts]
    assert [gap.at_ms for gap in gaps] == [restart.last_sign_ms for restart in world.restarts]
    assert [gap.episodes for gap in gaps] == [[1, 2], [3, 4], [5, 6]]
    assert {gap.partitions for gap in gaps} == {4}


@pytest.mark.parametrize("name", ["rolling restart of dynamic members", "rolling restart of static members", "a member that crashes and comes back later"])
def test_without_notes_the_absence_lies_in_an_interval(name: str) -> None:
    world = play(name).world
    exact, inferred = advised(world).gaps, advised(world, notes=False).gaps
    assert len(exact) == len(inferred)
    for exact_row, inferred_row in zip(exact, inferred, strict=True):
        assert exact_row.gap_hi_ms is not None
        assert inferred_row.gap_hi_ms is not None
        assert inferred_row.gap_lo_ms <= exact_row.gap_lo_ms <= exact_row.gap_hi_ms <= inferred_row.gap_hi_ms


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("notes", [True, False])
def test_no_member_returns_before_it_left(seed: int, notes: bool) -> None:
    for gap in advised(played(random_restarts(seed, [500, 3_000, 20_000, 10 * MINUTE_MS], steps=40)), notes=notes).gaps:
        assert gap.gap_lo_ms >= 0
        assert gap.gap_hi_ms is None or gap.gap_lo_ms <= gap.gap_hi_ms


def test_a_crash_loop_counts_once_with_its_longest_absence() -> None:
    def script(world: World) -> None:
        crashing = pods(world, 3)[2]
        for number in range(8):
            crashing.restart(30_000 if number == 3 else 5_000)
            world.run(MINUTE_MS)

    (gap,) = advised(played(script)).gaps
    assert gap.gap_lo_ms > 30_000
    assert gap.episodes == list(range(1, 17))


def test_five_restarts_are_no_loop_yet() -> None:
    def script(world: World) -> None:
        crashing = pods(world, 3)[2]
        for _ in range(5):
            crashing.restart(5_000)
            world.run(MINUTE_MS)

    assert len(advised(played(script)).gaps) == 5


def test_two_loops_with_a_pause_count_twice() -> None:
    def script(world: World) -> None:
        crashing = pods(world, 3, static=True)[2]
        for _ in range(2):
            for _ in range(7):
                crashing.restart(4_000)
                world.run(MINUTE_MS)
            world.run(30 * MINUTE_MS)

    assert [gap.source for gap in advised(played(script)).gaps] == [STATIC_REPLACEMENT] * 2


def test_late_heartbeats_are_counted_as_near_misses() -> None:
    def script(world: World) -> None:
        pods(world, 3)[0].freeze(8_000)

    (gap,) = [gap for gap in advised(played(script)).gaps if gap.source == HEARTBEAT_GAP]
    assert 8_000 <= gap.gap_lo_ms < 10_000


def deploy(world: World, static: bool, count: int = 4, away_ms: int = 20_000, session_ms: int = 10_000) -> None:
    running = pods(world, 4, static=static, session_ms=session_ms)
    for client in running[:count]:
        client.restart(away_ms)
        world.run(MINUTE_MS)


def test_a_deploy_of_dynamic_members() -> None:
    tables = advised(played(lambda world: deploy(world, False)))
    (deploy_row,) = tables.deploys
    assert (deploy_row.members, deploy_row.restarted, deploy_row.mode, deploy_row.rebalances, deploy_row.with_static) == (4, 4, "dynamic", 8, 0)
    assert (deploy_row.confidence, deploy_row.deploy) == ("exact", 0)
    assert [episode.deploy for episode in tables.episodes] == [None, *[0] * 8]
    assert deploy_row.partition_seconds_lost == sum(episode.partition_seconds_lost or 0 for episode in tables.episodes[1:])


def test_a_deploy_of_static_members() -> None:
    (deploy_row,) = advised(played(lambda world: deploy(world, True, session_ms=45_000))).deploys
    assert (deploy_row.mode, deploy_row.restarted, deploy_row.rebalances, deploy_row.with_static) == ("static", 4, 0, 0)
    (lost,) = advised(played(lambda world: deploy(world, True))).deploys
    assert (lost.mode, lost.restarted, lost.rebalances, lost.with_static) == ("static", 4, 8, 0)


@pytest.mark.parametrize(("count", "deploys"), [(1, 0), (2, 1)])
def test_half_of_the_members_make_a_deploy(count: int, deploys: int) -> None:
    assert len(advised(played(lambda world: deploy(world, False, count))).deploys) == deploys


def test_restarts_far_from_each_other_are_of_two_deploys() -> None:
    def script(world: World) -> None:
        running = pods(world, 2)
        for _ in range(2):
            for client in running:
                client.restart(20_000)
                world.run(MINUTE_MS)
            world.run(15 * MINUTE_MS)

    tables = advised(played(script))
    assert [(deploy_row.deploy, deploy_row.rebalances) for deploy_row in tables.deploys] == [(0, 4), (1, 4)]
    assert [episode.deploy for episode in tables.episodes] == [None, *[0] * 4, *[1] * 4]


POD_NAMES = ("x2c4z", "b5d6f", "g7h8j", "k9l2m", "n3p4q", "r5s6t", "v7w8x", "z9b2c", "d3f4g")


def pod_of_deployment(world: World, number: int) -> Client:
    return pod(world, number, client_id=f"app-7d9f8b6c5d-{POD_NAMES[number]}", host=f"/10.1.0.{number}")


@pytest.mark.parametrize("notes", [True, False])
@pytest.mark.parametrize("apart_ms", [20_000, 5 * MINUTE_MS, 9 * MINUTE_MS])
@pytest.mark.parametrize("stopped", ["the one that joined", "a restarted one"])
def test_an_unrelated_arrival_and_departure_do_not_hide_a_deploy_of_pods(stopped: str, apart_ms: int, notes: bool) -> None:
    """Pods get new names and addresses. One more pod joins shortly before the rolling restart, and one leaves shortly after it."""

    def script(world: World) -> None:
        running = [pod_of_deployment(world, number) for number in range(4)]
        world.run(30 * MINUTE_MS)
        extra = pod_of_deployment(world, 8)
        world.run(apart_ms)
        for number, client in enumerate(running):
            client.stop()
            world.run(20_000)
            running[number] = pod_of_deployment(world, 4 + number)
            world.run(MINUTE_MS)
        world.run(apart_ms)
        (extra if stopped == "the one that joined" else running[1]).stop()

    tables = advised(played(script), notes=notes)
    assert [episode.avoidable for episode in tables.episodes] == ["no", "no", *["yes"] * 8, "no"]
    assert [(row.restarted, row.mode, row.rebalances, row.with_static) for row in tables.deploys] == [(4, "dynamic", 8, 0)]
    assert tables.deploys[0].confidence == "weak"


@pytest.mark.parametrize("notes", [True, False])
@pytest.mark.parametrize("handover_ms", [1_000, 15_000, 2 * MINUTE_MS])
@pytest.mark.parametrize("startup_ms", [1_000, 2 * MINUTE_MS])
def test_a_surge_of_pods_is_no_deploy_of_restarts(handover_ms: int, startup_ms: int, notes: bool) -> None:
    """Each new pod joins `handover_ms` before an old one leaves, and the next one joins `startup_ms` later."""

    def script(world: World) -> None:
        running = [pod_of_deployment(world, number) for number in range(4)]
        world.run(30 * MINUTE_MS)
        for number, client in enumerate(running):
            pod_of_deployment(world, 4 + number)
            world.run(handover_ms)
            client.stop()
            world.run(startup_ms)

    tables = advised(played(script), notes=notes)
    assert not [episode for episode in tables.episodes if episode.avoidable == "yes"]
    assert tables.deploys == []
