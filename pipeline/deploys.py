"""Deploys: most members of a group restarted within a short time. The cost of each, and its cost with static members."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from pipeline.avoidable import YES, follows
from pipeline.restarts import EXACT, Restarts, Return
from pipeline.rows import Deploy, Episode

APART_MS: Final = 600_000  # restarts further apart belong to different deploys


def deploys_of(cluster: str, group: str, restarts: Restarts, episodes: Sequence[Episode]) -> tuple[list[Deploy], list[Episode]]:
    """The deploys, and the rebalances with their deploy numbers."""
    found: list[Deploy] = []
    of_deploy: dict[int, int] = {}
    seconds = {one.episode: before.episode for before, one in pairwise(episodes) if follows(before, one)}
    by_number = {episode.episode: episode for episode in episodes}
    for some in _together(restarts.returns):
        begin, end = some[0].went_ms, max(one.back_ms for one in some)
        restarted = len({one.process for one in some})
        members = max(restarts.members_at(begin), restarted)
        if restarted * 2 < members:
            continue
        made = {episode for one in some for episode in one.episodes}
        for second, first in seconds.items():
            if first in made:
                made.add(second)
        made -= of_deploy.keys()
        of_deploy |= dict.fromkeys(made, len(found))
        costs = [cost for one in made if (cost := by_number[one].partition_seconds_lost) is not None]
        statics = sum(one.static for one in some)
        mode = "static" if statics == len(some) else "mixed" if statics else "dynamic"
        left = sum(by_number[one].avoidable != YES for one in made)
        cost = sum(costs) if costs or not made else None
        found.append(
            Deploy(cluster, group, len(found), begin, end, members, restarted, mode, len(made), left, cost, _least(some))
        )
    return found, [episode._replace(deploy=of_deploy.get(episode.episode)) for episode in episodes]


def _least(some: list[Return]) -> str:
    all = {one.confidence for one in some}
    return next((one for one in ("none", "weak", "strong") if one in all), EXACT)


def _together(returns: list[Return]) -> Iterator[list[Return]]:
    some: list[Return] = []
    until = 0
    for one in sorted(returns, key=lambda one: (one.went_ms, one.back_ms, one.new_id)):
        if some and one.went_ms - until >= APART_MS:
            yield some
            some = []
        until = max(until, one.back_ms) if some else one.back_ms
        some.append(one)
    if some:
        yield some
