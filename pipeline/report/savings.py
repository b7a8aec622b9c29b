"""What the advised settings would have saved. The headline, the tables and the cards of the report all show these numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from history.confidence import EXACT, NONE, STRONG, WEAK
from history.inferred import MAX_POLL_INTERVAL
from pipeline.avoidable import YES
from pipeline.rows import Advice, Episode, Gap, Group

if TYPE_CHECKING:
    from pipeline.report.tables import ReportTables

POLLED_LATE: Final = "poll timeout"  # in the LeaveGroup reason of a client that exceeded its poll interval
SCALING_MIN: Final = 4  # rebalances; fewer are no habit of scaling
SUCCESSION_MS_MAX: Final = 60_000  # between arrivals that the policy can join: for so long a new member may wait


class Saving(NamedTuple):
    """Of rebalances and of partition time: at least and at most."""

    rebalances_min: int
    rebalances: int
    partition_s_min: float
    partition_s: float
    confidence: str


class Arrivals(NamedTuple):
    """Rebalances that began with new members in quick succession, which one rebalance could have admitted."""

    saved: int  # rebalances
    apart_ms: int  # the longest time between two of them


def static_savings(tables: ReportTables) -> dict[tuple[str, str], Saving]:
    """For each group that is advised static membership or another session timeout."""
    keys = [(group.cluster, group.group) for group in tables.groups]
    found = {key: static_saving(tables.episodes.get(key, []), tables.gaps.get(key, []), tables.advice.get(key)) for key in keys}
    return {key: saving for key, saving in found.items() if saving is not None}


def static_saving(episodes: Sequence[Episode], gaps: Sequence[Gap], advice: Advice | None) -> Saving | None:
    """What the advised session timeout would have saved, by replay; at least that without restarts and costs that are only likely."""
    if advice is None or advice.recommended_ms is None or not advice.avoided:
        return None
    bridged = [episode for episode in episodes if episode.avoidable == YES and (episode.avoidable_by_ms or 0) <= advice.recommended_ms]
    if 3 * sum(map(polled_late, bridged)) > len(bridged):
        return None  # slow members, which get their own advice
    guessed = {number for gap in gaps if gap.confidence == WEAK for number in gap.episodes}
    certain = [episode for episode in bridged if episode.confidence != WEAK and episode.episode not in guessed]
    return Saving(max(advice.avoided - len(bridged) + len(certain), 0), advice.avoided, lost_s(certain)[0], lost_s(bridged)[1], advice.confidence)


def total(savings: Iterable[Saving]) -> Saving:
    every = list(savings)
    return Saving(
        sum(saving.rebalances_min for saving in every),
        sum(saving.rebalances for saving in every),
        round(sum(saving.partition_s_min for saving in every), 1),
        round(sum(saving.partition_s for saving in every), 1),
        weakest(saving.confidence for saving in every),
    )


def lost_s(episodes: Sequence[Episode]) -> tuple[float, float]:
    """The partition time that the rebalances cost, at least and at most, without those whose time is unknown."""
    low = sum((episode.stalled_lo_ms or 0) / 1_000 for episode in episodes)
    high = sum(episode.partition_seconds_lost or 0.0 for episode in episodes)
    return round(min(low, high), 1), round(high, 1)


def scaling_of(episodes: Sequence[Episode]) -> list[Episode]:
    """The rebalances in which members came or went for good: no session timeout avoids them."""
    return [
        episode
        for episode in episodes
        if episode.avoidable == "no" and not episode.missing and (episode.joined or episode.left) and episode.members_before and episode.members_after
    ]


def cooperative_saving(group: Group, scaling: Sequence[Episode]) -> Saving | None:
    """What `cooperative-sticky` would have saved: only the partitions that move stop. At most all that the rebalances of eager protocols cost."""
    eager = [episode for episode in scaling if not episode.cooperative]
    if len(eager) < SCALING_MIN or not group.partitions:
        return None
    stay = [1 - min((episode.moved_partitions or 0) / group.partitions, 1) for episode in eager]
    low = sum(share * (episode.stalled_lo_ms or 0) / 1_000 for share, episode in zip(stay, eager, strict=True) if episode.moved_partitions is not None)
    high = lost_s(eager)[1]
    return Saving(0, 0, round(min(low, high), 1), high, STRONG) if high else None


def arrivals_in_succession(scaling: Sequence[Episode]) -> Arrivals:
    """Arrivals less than SUCCESSION_MS_MAX apart."""
    arrivals = [episode.start_lo_ms for episode in scaling if episode.joined and not episode.left and episode.start_lo_ms is not None]
    apart = [after - before for before, after in pairwise(arrivals) if after - before <= SUCCESSION_MS_MAX]
    return Arrivals(len(apart), max(apart, default=0))


def weakest(confidences: Iterable[str]) -> str:
    return min(confidences, key=(NONE, WEAK, STRONG, EXACT).index, default=NONE)


def polled_late(episode: Episode) -> bool:
    return POLLED_LATE in (episode.cause_detail or "") or (episode.confidence != EXACT and MAX_POLL_INTERVAL in episode.evidence)


def savings_rows(savings: dict[tuple[str, str], Saving]) -> list[dict[str, Any]]:
    return [{"cluster": cluster, "group": group, **saving._asdict()} for (cluster, group), saving in savings.items()]
