"""The worst moments: series of rebalances of one group in short succession."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from pipeline.avoidable import FORMATION
from pipeline.grace import assumed_begin_ms
from pipeline.rows import Deploy, Episode

if TYPE_CHECKING:
    from pipeline.report.tables import ReportTables

PAUSE_MS_MAX: Final = 10 * 60_000
REBALANCES_MANY: Final = 5  # a series of this length is a bad moment even without a known cost
SHOWN_MAX: Final = 10


def worst_moments(tables: ReportTables) -> list[dict[str, Any]]:
    """The worst moments, most expensive first. A short series without cost, such as the formation of a group, does not count."""
    moments = [
        _moment(chain, tables.deploys.get(key, []))
        for key, episodes in tables.episodes.items()
        for chain in _series([episode for episode in episodes if not episode.missing and episode.end_ms is not None])
        if len(chain) >= REBALANCES_MANY or any(episode.partition_seconds_lost for episode in chain)
    ]
    moments.sort(key=lambda moment: (-moment["partition_seconds_lost"], -moment["rebalances"], moment["from_ms"], moment["group"]))
    return moments[:SHOWN_MAX]


def _series(episodes: list[Episode]) -> list[list[Episode]]:
    series: list[list[Episode]] = []
    for episode in episodes:
        if series and _begin(episode) - (series[-1][-1].end_ms or 0) <= PAUSE_MS_MAX:
            series[-1].append(episode)
        else:
            series.append([episode])
    return series


def _begin(episode: Episode) -> int:
    known = assumed_begin_ms(episode.start_lo_ms, episode.start_hi_ms)
    return known if known is not None else episode.end_ms or 0


def _typical_rebalance(chain: list[Episode], culprit: str | None) -> Episode:
    """The most expensive rebalance that `culprit` triggered; in a deploy (`culprit` None) the first one that is not the formation of the group."""
    if culprit is None:
        return next((episode for episode in chain if episode.cause != FORMATION), chain[0])
    return max((episode for episode in chain if _trigger(episode) == culprit), key=lambda episode: episode.partition_seconds_lost or 0.0)


def _trigger(episode: Episode) -> str | None:
    """Client id and host, which a dynamic member keeps after a restart; else the member key."""
    return episode.trigger_client or episode.trigger_member


def _moment(chain: list[Episode], deploys: list[Deploy]) -> dict[str, Any]:
    first = chain[0]
    begin, end = _begin(first), max(episode.end_ms or 0 for episode in chain)
    triggers = Counter(map(_trigger, chain))
    del triggers[None]
    cost: Counter[str | None] = Counter()
    for episode in chain:
        cost[_trigger(episode)] += round(1_000 * (episode.partition_seconds_lost or 0.0))
    culprit = max(triggers, key=lambda name: (cost[name], triggers[name]), default=None)
    deploy = next((deploy for deploy in deploys if deploy.start_ms <= end and begin <= deploy.end_ms), None)
    typical = _typical_rebalance(chain, None if deploy is not None else culprit)
    return {
        "cluster": first.cluster,
        "group": first.group,
        "from_ms": begin,
        "to_ms": end,
        "rebalances": len(chain),
        "partition_seconds_lost": round(sum(episode.partition_seconds_lost or 0.0 for episode in chain), 1),
        "causes": dict(Counter(episode.cause for episode in chain).most_common()),
        "who": culprit,
        "who_rebalances": triggers[culprit],
        "others": max(len(triggers) - 1, 0),
        "restarted": deploy.restarted if deploy is not None else None,
        "of_members": deploy.members if deploy is not None else None,
        "cause": typical.cause,
        "evidence": typical.evidence,
        "confidence": typical.confidence,
    }
