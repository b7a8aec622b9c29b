"""How long partitions were not consumed in a rebalance: the sum over partitions, in milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from history.commits import NEVER, NearbyCommits
from history.consumer import is_cooperative
from history.moves import Move, Owners

# A partition is idle, and ignored, if its last commit before the record of the rebalance and its first one after it are further apart.
IDLE_MS: Final = 600_000
# Partitions whose usual gap between commits is more than this many times the shortest usual gap are ignored.
RARE: Final = 4


class Stall(NamedTuple):
    """`hi_ms` None: no upper bound is known."""

    lo_ms: int
    hi_ms: int | None


def stalled_partitions(before: Owners, moved: Sequence[Move] | None, protocol: str | None) -> list[str] | None:
    """The partitions that are not consumed in a rebalance: all assigned ones; with a cooperative protocol only those that move. None: unknown."""
    if not is_cooperative(protocol):
        return [f"{topic}-{number}" for topic, number in before]
    if moved is None:
        return None
    return [f"{topic}-{number}" for (topic, number), old, _ in moved if old is not None]


def exact_stall(partitions: Sequence[str], took_ms: int) -> Stall:
    return Stall(took_ms * len(partitions), took_ms * len(partitions))


def stall_bounds(partitions: Sequence[str], sync_ms: int, longest_ms: int | None, since_stable_ms: int | None, around: NearbyCommits) -> Stall:
    """Bounds of the stall. The lower bound is the sync phase, in which no member consumes these partitions. The upper bound is the longest time of
    a partition without a commit, plus its usual gap: as consumers commit, this time contains the join phase.

    `longest_ms`: the longest possible duration of the rebalance, if its members' timeouts limit it. `since_stable_ms`: the time from the previous
    rebalance to the end of this one. It limits a silence, which may contain several rebalances, but is no bound without one: it may be days.
    """
    silences = []
    usual_ms = min((gap for gap in (around.usual_gap.get(partition, NEVER) for partition in partitions) if gap >= 0), default=0)
    for partition in partitions:
        last, first, usual = (commits.get(partition, NEVER) for commits in around)
        if 0 <= last <= first <= last + IDLE_MS and usual <= usual_ms * RARE:
            silences.append(first - last + max(usual, 0))
    limits = [limit for limit in (max(silences, default=None), longest_ms, since_stable_ms if silences else None) if limit is not None]
    if not limits:
        return Stall(sync_ms * len(partitions), None if partitions else 0)
    return Stall(sync_ms * len(partitions), max(min(limits), sync_ms) * len(partitions))
