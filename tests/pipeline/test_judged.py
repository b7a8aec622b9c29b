"""Unavoidable and unjudged rebalances; and the bounds of a gap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pipeline.avoidable import NO, UNKNOWN, YES, with_verdicts
from pipeline.restarts import STATIC_REPLACEMENT, Restarts
from pipeline.rows import Episode
from pipeline.virtual import World
from pipeline.whatif import FOREVER_MS, confirmed_avoidable
from tests.pipeline.advising import MINUTE_MS, advised, counted, folded, played, script_of
from tests.pipeline.scenarios import play, pod, pods

pytestmark = pytest.mark.once  # no dependence on the Python version


def verdicts(world: World, changed: dict[int, dict[str, Any]], *, notes: bool = True) -> list[str]:
    """The verdicts on all rebalances of a world; `changed` replaces columns of some rows."""
    tables = folded(world, notes=notes)
    episodes: Sequence[Episode] = [episode._replace(**changed.get(episode.episode, {})) for episode in tables.episodes]
    restarts = Restarts(tables._replace(episodes=list(episodes)), world.now)
    return [verdict.avoidable for verdict in with_verdicts(list(episodes), restarts)]


def test_a_changed_protocol_makes_a_rebalance_necessary() -> None:
    world = play("rolling restart of dynamic members").world
    assert verdicts(world, {}) == [NO, *[YES] * 6]
    assert verdicts(world, {3: {"protocol_change": True}}) == [NO, YES, YES, NO, YES, YES, YES]


def test_a_changed_subscription_makes_a_rebalance_necessary() -> None:
    world = play("rolling restart of dynamic members").world
    assert verdicts(world, {3: {"subscription_change": True}}) == [NO, YES, YES, NO, YES, YES, YES]


@pytest.mark.parametrize(("cooperative", "verdict"), [(True, UNKNOWN), (False, YES)])
def test_a_possible_second_step_of_a_needed_rebalance_is_not_judged(cooperative: bool, verdict: str) -> None:
    world = play("rolling restart of dynamic members").world
    first = folded(world, notes=False).episodes[0]
    begins = {"start_lo_ms": first.end_ms, "cooperative": cooperative}
    assert verdicts(world, {1: begins}, notes=False)[1] == verdict


def test_a_changed_subscription_is_no_second_step() -> None:
    def script(world: World) -> None:
        pods(world, 3, assignors=("cooperative-sticky",))[1].restart(20_000)

    world = played(script)
    tables = advised(world)
    second = next(episode.episode for episode in tables.episodes if episode.cause == "member_metadata_changed")
    assert tables.episodes[second].avoidable == YES
    assert verdicts(world, {second: {"subscription_change": True}})[second] == NO


def test_without_notes_it_is_unknown_whether_a_static_return_was_avoidable() -> None:
    """The member's session may have ended, or something else began the rebalance: group records do not show which."""

    def script(world: World) -> None:
        running = pods(world, 3, static=True)
        running[0].restart(10_500)  # back just after the end of its session, while the join phase of the rebalance still waits for the others

    world = played(script)
    assert [episode.avoidable for episode in advised(world).episodes[1:]] == [YES]
    assert [episode.avoidable for episode in advised(world, notes=False).episodes[1:]] == [UNKNOWN]


def test_a_seat_is_kept_for_no_longer_than_a_session() -> None:
    gaps = [gap for gap in advised(play("rolling restart of static members").world, notes=False).gaps if gap.source == STATIC_REPLACEMENT]
    assert [gap.gap_hi_ms for gap in gaps] == [10_000] * 3


def test_a_member_was_alive_when_it_joined_for_its_last_generation() -> None:
    """Without commits, its last JoinGroup is the last evidence that it was alive, whatever its session timeout."""

    def script(world: World) -> None:
        running = [pod(world, number, session_ms=45_000) for number in range(3)]
        world.run(10 * MINUTE_MS)
        pod(world, 3, session_ms=45_000)
        world.run(10_000)
        running[1].restart(5_000)

    world = played(script)
    (gap,) = advised(world, notes=False).gaps
    assert gap.gap_hi_ms is not None
    assert world.restarts[0].gap_ms <= gap.gap_hi_ms <= 20_000


def test_a_restart_longer_than_the_session_timeout_stays_unavoidable() -> None:
    def script(world: World) -> None:
        running = [pod(world, number, static=True, session_ms=120_000 if number == 2 else 10_000) for number in range(3)]
        world.run(10 * MINUTE_MS)
        for client, away_ms in zip(running, (20_000, 20_000, 100_000), strict=True):
            client.restart(away_ms)
            world.run(5 * MINUTE_MS)

    _, with_verdicts, episodes = script_of(played(script))
    assert counted(episodes, YES) == 4
    assert confirmed_avoidable(with_verdicts, episodes, 120_000) == 4
    assert confirmed_avoidable(with_verdicts, episodes, 30_000) == 4 - 2  # member 2, away for longer than 30 s, causes two: it leaves and joins


def test_a_member_that_the_coordinator_forgot_is_not_replayed() -> None:
    def script(world: World) -> None:
        pods(world, 3)[1].restart(20_000)
        world.at(world.now + 20_300, world.kill_coordinator, 4_000)

    restarts, with_verdicts, _ = script_of(played(script))
    assert len(restarts.never_stored) == 1
    assert with_verdicts.as_static(FOREVER_MS).rebalances == 1


def test_a_new_coordinator_that_restarts_a_session_does_not_count_as_a_heartbeat() -> None:
    """A process crashes and returns while the coordinator is down: the session that the next coordinator begins does not show that the member was alive."""

    def script(world: World) -> None:
        running = pods(world, 3, rebalance_ms=MINUTE_MS)
        running[1].restart(6_000, graceful=False)
        world.at(world.now + 3_000, world.restart_coordinator, 1_000)

    world = played(script)
    tables = advised(world)
    assert [episode.avoidable for episode in tables.episodes[1:]] == [YES] * (len(tables.episodes) - 1)
    (gap,) = tables.gaps
    assert gap.gap_hi_ms is not None
    assert gap.gap_lo_ms <= world.restarts[0].gap_ms <= gap.gap_hi_ms


def test_a_surge_deploy_restarts_no_member() -> None:
    """Each new process joins before the old process leaves, and client ids do not distinguish them."""

    def script(world: World) -> None:
        running = [pod(world, number, client_id="app") for number in range(3)]
        world.run(10 * MINUTE_MS)
        for number, client in enumerate(running):
            pod(world, 10 + number, client_id="app")
            world.run(20_000)
            client.stop()
            world.run(20_000)

    for notes in (True, False):
        tables = advised(played(script), notes=notes)
        assert counted(tables.episodes, YES) == 0
        assert tables.deploys == []


def test_a_departure_and_an_ambiguous_arrival_are_not_judged() -> None:
    """One member that reappears on another host is not judged as a restart; a deploy of all members is."""

    def script(world: World, member_count: int) -> None:
        running = [pod(world, number, client_id="app") for number in range(3)]
        world.run(10 * MINUTE_MS)
        for number, client in enumerate(running[:member_count]):
            client.restart(20_000, host=f"/10.9.0.{number}")
            world.run(2 * MINUTE_MS)

    assert [episode.avoidable for episode in advised(played(lambda world: script(world, 1))).episodes[1:]] == [UNKNOWN] * 2
    assert [episode.avoidable for episode in advised(played(lambda world: script(world, 3))).episodes[1:]] == [YES] * 6


@pytest.mark.parametrize(("after_ms", "confidence"), [(1_500, "weak"), (5_000, "strong")])
def test_a_new_member_is_no_certain_cause_with_a_second_step(after_ms: int, confidence: str) -> None:
    """A cooperative group assigns revoked partitions in a second rebalance: a member that joins then is perhaps not its cause."""

    def script(world: World) -> None:
        pods(world, 6, assignors=("cooperative-sticky",))[0].stop()
        world.run(MINUTE_MS)
        pod(world, 6, assignors=("cooperative-sticky",))
        world.run(after_ms)
        pod(world, 7, assignors=("cooperative-sticky",))

    with_verdicts = [episode for episode in folded(played(script), notes=False).episodes if len(episode.joined) == 1]
    assert [(verdict.cause, verdict.confidence) for verdict in with_verdicts] == [("new_member", "strong"), ("new_member", confidence)]
