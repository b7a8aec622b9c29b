"""When it was worst: rebalances of one group that come one upon another are one moment. Whoever is called at night looks for one of these."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from pipeline.rows import Deploy, Episode

if TYPE_CHECKING:
    from pipeline.report.document import Tables

APART_MS: Final = 10 * 60_000
SHOWN_MAX: Final = 10


def worst_moments(tables: Tables) -> list[dict[str, Any]]:
    """The most expensive first. That a group was formed without anybody waiting is none."""
    chains = [(key, one) for key, episodes in tables.episodes.items() for one in _chains([one for one in episodes if not one.missing and one.end_ms is not None])]
    found = [_moment(one, tables.deploys.get(key, [])) for key, one in chains if len(one) > 1 or one[0].partition_seconds_lost]
    found.sort(key=lambda one: (-one["partition_seconds_lost"], -one["rebalances"], one["from_ms"], one["group"]))
    return found[:SHOWN_MAX]


def _chains(episodes: list[Episode]) -> list[list[Episode]]:
    found: list[list[Episode]] = []
    for one in episodes:
        if found and _begin(one) - (found[-1][-1].end_ms or 0) <= APART_MS:
            found[-1].append(one)
        else:
            found.append([one])
    return found


def _begin(one: Episode) -> int:
    known = one.start_lo_ms if one.start_lo_ms is not None else one.end_ms
    return known or 0


def _moment(together: list[Episode], deploys: list[Deploy]) -> dict[str, Any]:
    first = together[0]
    begin, end = _begin(first), max(one.end_ms or 0 for one in together)
    who = Counter(one.trigger_client or one.trigger_member for one in together if one.trigger_member is not None)
    culprit, times = who.most_common(1)[0] if who else (None, 0)
    (cause, _), *_ = Counter(one.cause for one in together).most_common(1)
    typical = next((one for one in together if one.cause == cause and culprit in (None, one.trigger_client, one.trigger_member)), first)
    deploy = next((one for one in deploys if one.start_ms <= end and begin <= one.end_ms), None)
    return {
        "cluster": first.cluster,
        "group": first.group,
        "from_ms": begin,
        "to_ms": end,
        "rebalances": len(together),
        "partition_seconds_lost": round(sum(one.partition_seconds_lost or 0.0 for one in together), 1),
        "causes": dict(Counter(one.cause for one in together).most_common()),
        "who": culprit,
        "who_rebalances": times,
        "others": max(len(who) - 1, 0),
        "restarted": deploy.restarted if deploy is not None else None,
        "of_members": deploy.members if deploy is not None else None,
        "evidence": typical.evidence,
        "confidence": typical.confidence,
    }
