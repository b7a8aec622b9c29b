"""Deploys: restarts of at least half of a group's members within a short time. Their cost, and the rebalances that would remain with static members."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from pipeline.avoidable import YES, follows
from pipeline.restarts import EXACT, Restarts, Return
from pipeline.rows import Deploy, Episode

DISTANCE_MS_MAX: Final = 600_000  # the longest time between a member's return and the next restart of the same deploy


def deploys_of(cluster: str, group: str, restarts: Restarts, episodes: Sequence[Episode]) -> tuple[list[Deploy], list[Episode]]:
    """The deploys, and the rebalances with their deploy numbers."""
    deploys: list[Deploy] = []
    of_deploy: dict[int, int] = {}
    seconds = {second.episode: first.episode for first, second in pairwise(episodes) if follows(first, second)}
    by_number = {episode.episode: episode for episode in episodes}
    for run in _runs(restarts.returns):
        begin, end = run[0].went_ms, max(returned.back_ms for returned in run)
        restarted = len({returned.process for returned in run})
        members = max(restarts.members_at(begin), restarted)
        if restarted * 2 < members:
            continue
        rebalances = {episode for returned in run for episode in returned.episodes}
        for second, first in seconds.items():
            if first in rebalances:
                rebalances.add(second)
        rebalances -= of_deploy.keys()
        of_deploy |= dict.fromkeys(rebalances, len(deploys))
        costs = [cost for episode in rebalances if (cost := by_number[episode].partition_seconds_lost) is not None]
        statics = sum(returned.static for returned in run)
        mode = "static" if statics == len(run) else "mixed" if statics else "dynamic"
        remaining = sum(by_number[episode].avoidable != YES for episode in rebalances)
        cost = sum(costs) if costs or not rebalances else None
        deploys.append(
            Deploy(cluster, group, len(deploys), begin, end, members, restarted, mode, len(rebalances), remaining, cost, _lowest_confidence(run))
        )
    return deploys, [episode._replace(deploy=of_deploy.get(episode.episode)) for episode in episodes]


def _lowest_confidence(run: list[Return]) -> str:
    levels = {returned.confidence for returned in run}
    return next((level for level in ("none", "weak", "strong") if level in levels), EXACT)


def _runs(returns: list[Return]) -> Iterator[list[Return]]:
    run: list[Return] = []
    until = 0
    for returned in sorted(returns, key=lambda returned: (returned.went_ms, returned.back_ms, returned.new_id)):
        if run and returned.went_ms - until >= DISTANCE_MS_MAX:
            yield run
            run = []
        until = max(until, returned.back_ms) if run else returned.back_ms
        run.append(returned)
    if run:
        yield run
