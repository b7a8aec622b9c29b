"""Gold `groups`: each group in one row, from its other tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from pipeline.columns import MINUTE_MS
from pipeline.rows import Coverage, Episode, Generation, Group

DAY_MS: Final = 86_400_000
WORST_FIRST: Final = ("LOST", "STOP", "STALL", "REWIND", "WARN", "UNOWNED", "UNKNOWN", "OK")
OFFSETS: Final = "offsets"


def groups(
    cluster: str,
    generations: Sequence[Generation],
    episodes: Sequence[Episode],
    saved: Mapping[str, int],
    noted: set[str],
    standing: pa.Table,
    coverage: Sequence[Coverage],
) -> list[Group]:
    """`saved`: rebalances that static members avoided, by group; `noted`: groups of which there are notes; `standing`: see `standing.py`."""
    by_generation, by_episode = _by_group(generations), _by_group(episodes)
    totals = _totals(standing, by_generation)
    share = _share(coverage)
    return [
        _row(cluster, name, by_generation[name], by_episode[name], saved.get(name, 0), name in noted, totals.get(name), share)
        for name in sorted({*by_generation, *by_episode, *totals})
    ]


def _row(
    cluster: str,
    group: str,
    generations: list[Generation],
    episodes: list[Episode],
    saved: int,
    noted: bool,
    totals: dict[str, Any] | None,
    coverage: float,
) -> Group:
    known = [episode for episode in episodes if not episode.missing]
    moments = [generation.append_ms for generation in generations] + [ms for episode in episodes for ms in (episode.start_lo_ms, episode.end_ms) if ms is not None]
    if totals is not None and totals["first_ms"] is not None:
        moments += [totals["first_ms"], totals["last_ms"]]
    first, last = min(moments, default=0), max(moments, default=0)
    newest = generations[-1] if generations else None
    costs = [one.partition_seconds_lost for one in known if one.partition_seconds_lost is not None]
    took = [one.end_ms - one.start_hi_ms for one in known if one.end_ms is not None and one.start_hi_ms is not None]
    exact = all(one.confidence == "exact" for one in known)
    return Group(
        cluster=cluster,
        group=group,
        protocol_type=next((generation.protocol_type for generation in reversed(generations) if generation.protocol_type), None),
        first_ms=first,
        last_ms=last,
        state=_state(newest, episodes),
        members=newest.members if newest is not None else 0,
        static_members=newest.static_members if newest is not None else 0,
        generation=None if newest is None or newest.tombstone else newest.generation,
        rebalances=len(known),
        rebalances_per_day=round(len(known) * DAY_MS / max(last - first, DAY_MS), 3),
        unstable_ms=sum(max(ms, 0) for ms in took) if len(took) == len(known) else None,
        partition_seconds_lost=round(sum(costs), 3) if len(costs) == len(known) or costs else (0.0 if not known else None),
        avoidable=sum(one.avoidable == "yes" for one in known),
        saved=saved,
        commits=totals["commits"] if totals is not None else 0,
        commits_per_s=_rate(totals),
        partitions=totals["partitions"] if totals is not None else 0,
        lag=totals["lag"] if totals is not None else None,
        time_lag_ms=totals["time_lag_ms"] if totals is not None else None,
        worst_status=totals["worst"] if totals is not None else None,
        coverage=coverage,
        notes="none" if not noted else "exact" if exact else "partial",
        flags=_flags(newest, known, len(episodes) - len(known)),
    )


def _rate(totals: dict[str, Any] | None) -> float:
    if totals is None or totals["first_ms"] is None:
        return 0.0
    return float(round(totals["commits"] * 1000 / max(totals["last_ms"] - totals["first_ms"], 60_000), 4))


def _state(newest: Generation | None, episodes: Sequence[Episode]) -> str:
    if episodes and episodes[-1].end == "open":
        return "rebalancing"
    if newest is None:
        return "unknown"
    return "deleted" if newest.tombstone else "empty" if newest.empty else "stable"


def _flags(newest: Generation | None, known: Sequence[Episode], missing: int) -> list[str]:
    flags = []
    if any(one.storm is not None for one in known):
        flags.append("storm")
    if newest is not None and 0 < newest.static_members < newest.members:
        flags.append("mixed_membership")
    if missing:
        flags.append("rebalances_missing")
    return flags


def _totals(standing: pa.Table, generations: Mapping[str, Sequence[Generation]]) -> dict[str, dict[str, Any]]:
    """Sum up the partitions of each group: commits, partitions with commits, lag, longest time lag, worst status.

    Deleting a group removes its offsets: partitions without a later commit have no lag any more.
    """
    found: dict[str, dict[str, Any]] = {}
    live_from = {group: _live_from(rows) for group, rows in generations.items()}
    names = ("group", "commits", "first_ms", "last_ms", "lag", "time_lag_ms", "status")
    for group, commits, first, last, lag, late, status in zip(*(standing[name].to_pylist() for name in names), strict=True):
        mine = found.setdefault(group, {"commits": 0, "partitions": 0, "first_ms": first, "last_ms": last, "lag": None, "time_lag_ms": None, "worst": None})
        if first is not None:
            mine["commits"] += commits
            mine["partitions"] += 1
            mine["first_ms"] = min(first, first if mine["first_ms"] is None else mine["first_ms"])
            mine["last_ms"] = max(last, last if mine["last_ms"] is None else mine["last_ms"])
        if last is not None and last < live_from.get(group, last):
            lag = late = None
        if lag is not None:
            mine["lag"] = lag + (mine["lag"] or 0)
        if late is not None:
            mine["time_lag_ms"] = max(late, mine["time_lag_ms"] or 0)
        if status is not None:
            mine["worst"] = min(status, mine["worst"] or status, key=WORST_FIRST.index)
    return found


def _live_from(generations: Sequence[Generation]) -> int:
    """The first minute whose commits count as made after the last deletion of the group.

    Commit times are known by the minute. In the minute of the deletion, the newest group record decides.
    """
    deleted_ms = max((generation.append_ms for generation in generations if generation.tombstone), default=None)
    if deleted_ms is None:
        return 0
    minute_ms = deleted_ms - deleted_ms % MINUTE_MS
    return minute_ms + MINUTE_MS if generations[-1].tombstone else minute_ms


def _share(coverage: Iterable[Coverage]) -> float:
    """The share of the offsets of the bucket's __consumer_offsets that are complete."""
    rows = [one for one in coverage if one.log == OFFSETS]
    whole = sum(row.to_offset - row.from_offset + 1 for row in rows)
    complete = sum(row.to_offset - row.from_offset + 1 for row in rows if row.complete)
    return round(complete / whole, 4) if whole else 0.0


def _by_group(rows: Sequence[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        found[row.group].append(row)
    return found
