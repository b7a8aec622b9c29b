"""The worst moments of a group, which an operator on call needs first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.report.moments import PAUSE_MS_MAX, SHOWN_MAX, worst_moments
from pipeline.rows import Deploy, Episode
from tests.pipeline.report_rows import BEGAN, HOUR, MINUTE, episode

pytestmark = pytest.mark.once  # no dependence on the Python version


def moments(*episodes: Episode, deploys: tuple[Deploy, ...] = ()) -> list[dict[str, Any]]:
    by_group: dict[tuple[str, str], list[Episode]] = {}
    for made_episode in episodes:
        by_group.setdefault((made_episode.cluster, made_episode.group), []).append(made_episode)
    tables: Any = SimpleNamespace(episodes=by_group, deploys={("c", deploy.group): [deploy] for deploy in deploys})
    return worst_moments(tables)


def test_successive_rebalances_are_one_moment_with_the_most_frequent_trigger() -> None:
    bad = [episode("g", at, BEGAN + at * MINUTE, "member_left", trigger_member=f"m{at % 3 // 2}", trigger_client=f"app-{at % 3 // 2}") for at in range(6)]
    separate = episode("g", 6, BEGAN + 5 * MINUTE + 3_000 + PAUSE_MS_MAX + 1, "new_member", partition_seconds_lost=1.0)
    first, second = moments(*bad, separate)
    assert (first["from_ms"], first["to_ms"], first["rebalances"], first["partition_seconds_lost"]) == (BEGAN, BEGAN + 5 * MINUTE + 3_000, 6, 216.0)
    assert (first["who"], first["who_rebalances"], first["others"], first["causes"]) == ("app-0", 4, 1, {"member_left": 6})
    assert first["evidence"] == bad[0].evidence
    assert second["rebalances"] == 1


def test_the_most_expensive_moments_of_all_groups_are_first() -> None:
    listed_moments = moments(*(episode(f"g{at}", 0, BEGAN + at * HOUR, "member_left", partition_seconds_lost=float(at)) for at in range(20)))
    assert [moment["partition_seconds_lost"] for moment in listed_moments] == [float(at) for at in range(19, 19 - SHOWN_MAX, -1)]


def test_a_group_that_was_only_formed_had_no_bad_moment() -> None:
    formed = [episode("g", 0, BEGAN, "formation", partition_seconds_lost=0.0), episode("g", 1, BEGAN + MINUTE, "group_emptied", partition_seconds_lost=None)]
    assert moments(*formed, episode("h", 0, BEGAN, "unknown", missing=-1)) == []


def test_many_rebalances_are_a_bad_moment_even_at_unknown_cost() -> None:
    (moment,) = moments(*(episode("g", at, BEGAN + at * MINUTE, "unknown", partition_seconds_lost=None) for at in range(5)))
    assert (moment["rebalances"], moment["partition_seconds_lost"]) == (5, 0.0)


def test_the_most_expensive_trigger_is_named_not_the_most_frequent_one() -> None:
    cheap = [episode("g", at, BEGAN + at * MINUTE, "new_member", trigger_client="often", partition_seconds_lost=0.5) for at in range(3)]
    dear = episode("g", 3, BEGAN + 3 * MINUTE, "session_expired", trigger_client="once", evidence="once was not heard of", partition_seconds_lost=90.0)
    (moment,) = moments(*cheap, dear)
    assert (moment["who"], moment["who_rebalances"], moment["others"], moment["evidence"]) == ("once", 1, 1, "once was not heard of")


def test_a_deploy_is_named_as_one() -> None:
    deploy = Deploy("c", "g", 0, BEGAN, BEGAN + MINUTE, 4, 3, "dynamic", 2, 0, 1.0, "exact")
    began = episode("g", 1, BEGAN + 2_000, "session_expired", evidence="a was not heard of")
    (moment,) = moments(episode("g", 0, BEGAN + 1_000, "formation"), began, episode("g", 2, BEGAN + 9_000, "new_member"), deploys=(deploy,))
    assert (moment["restarted"], moment["of_members"], moment["cause"], moment["evidence"]) == (3, 4, "session_expired", "a was not heard of")
    (moment,) = moments(episode("g", 0, BEGAN + HOUR, "member_left"), deploys=(deploy,))
    assert moment["restarted"] is None


def test_without_a_known_trigger_none_is_named() -> None:
    (moment,) = moments(episode("g", 0, BEGAN, "unknown", trigger_member=None, trigger_client=None))
    assert (moment["who"], moment["who_rebalances"], moment["others"]) == (None, 0, 0)
