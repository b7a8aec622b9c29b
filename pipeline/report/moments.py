"""The worst moments: rebalances of a group that follow each other closely are one moment."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from history.inferred import FORMATION
from pipeline.rows import Deploy, Episode

if TYPE_CHECKING:
    from pipeline.report.tables import Tables

APART_MS: Final = 10 * 60_000
MANY: Final = 5  # rebalances are a bad moment whatever their known cost
SHOWN_MAX: Final = 10


def worst_moments(tables: Tables) -> list[dict[str, Any]]:
    """The most expensive first. The formation or the end of a group without waiting members does not count."""
    chains = [(key, chain) for key, episodes in tables.episodes.items() for chain in _chains([episode for episode in episodes if not episode.missing and episode.end_ms is not None])]
    found = [_moment(one, tables.deploys.get(key, [])) for key, one in chains if len(one) >= MANY or any(each.partition_seconds_lost for each in one)]
    found.sort(key=lambda one: (-one["partition_seconds_lost"], -one["rebalances"], one["from_ms"], one["group"]))
    return found[:SHOWN_MAX]


def _chains(episodes: list[Episode]) -> list[list[Episode]]:
    found: list[list[Episode]] = []
    for episode in episodes:
        if found and _begin(episode) - (found[-1][-1].end_ms or 0) <= APART_MS:
            found[-1].append(episode)
        else:
            found.append([episode])
    return found


def _begin(one: Episode) -> int:
    known = one.start_lo_ms if one.start_lo_ms is not None else one.end_ms
    return known or 0


def _typical(together: list[Episode], culprit: str | None) -> Episode:
    """The most expensive rebalance of that trigger; for a deploy the first one."""
    if culprit is None:
        return next((one for one in together if one.cause != FORMATION), together[0])
    return max((one for one in together if _who(one) == culprit), key=lambda one: one.partition_seconds_lost or 0.0)


def _who(one: Episode) -> str | None:
    """A dynamic member has a new id after each restart; its client id and host stay."""
    return one.trigger_client or one.trigger_member


def _moment(together: list[Episode], deploys: list[Deploy]) -> dict[str, Any]:
    first = together[0]
    begin, end = _begin(first), max(one.end_ms or 0 for one in together)
    who = Counter(map(_who, together))
    del who[None]
    cost: Counter[str | None] = Counter()
    for one in together:
        cost[_who(one)] += round(1_000 * (one.partition_seconds_lost or 0.0))
    culprit = max(who, key=lambda name: (cost[name], who[name]), default=None)
    deploy = next((deploy for deploy in deploys if deploy.start_ms <= end and begin <= deploy.end_ms), None)
    typical = _typical(together, None if deploy is not None else culprit)
    return {
        "cluster": first.cluster,
        "group": first.group,
        "from_ms": begin,
        "to_ms": end,
        "rebalances": len(together),
        "partition_seconds_lost": round(sum(one.partition_seconds_lost or 0.0 for one in together), 1),
        "causes": dict(Counter(one.cause for one in together).most_common()),
        "who": culprit,
        "who_rebalances": who[culprit],
        "others": max(len(who) - 1, 0),
        "restarted": deploy.restarted if deploy is not None else None,
        "of_members": deploy.members if deploy is not None else None,
        "cause": typical.cause,
        "evidence": typical.evidence,
        "confidence": typical.confidence,
    }
