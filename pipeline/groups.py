"""Gold `groups`: one row for each group, from the other tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from pipeline.columns import MINUTE_MS
from pipeline.rows import Coverage, Episode, Generation, Group, NewerGroup

DAY_MS: Final = 86_400_000
WORST_FIRST: Final = ("LOST", "STOP", "STALL", "REWIND", "WARN", "UNOWNED", "UNKNOWN", "OK")
OFFSETS: Final = "offsets"
UNKNOWN: Final = "unknown"
NEWER: Final = "newer_protocol"
NOT_UNDERSTOOD: Final = "its members use a newer protocol, whose records are not understood: their restarts are unknown"
MIXED: Final = "mixed_membership"


def group_rows(
    cluster: str,
    generations: Sequence[Generation],
    episodes: Sequence[Episode],
    saved: Mapping[str, int],
    noted: set[str],
    series_totals: pa.Table,
    coverage: Mapping[str, float],
    newer: Sequence[NewerGroup] = (),
) -> list[Group]:
    """`coverage`: the complete share of each group's log; `saved`: rebalances that static members avoided, by group; `noted`: groups with notes; `series_totals`: see `series_totals.py`."""
    by_generation, by_episode, by_newer = _by_group(generations), _by_group(episodes), _by_group(newer)
    # Kafka keeps the offsets of a group that changes its protocol, and removes those of a deleted group.
    totals = _totals(series_totals, {name: rows for name, rows in by_generation.items() if name not in by_newer})
    rows = []
    for name in sorted({*by_generation, *by_episode, *by_newer, *totals}):
        row = _row(cluster, name, by_generation[name], by_episode[name], saved.get(name, 0), name in noted, totals.get(name), coverage.get(name, 0.0))
        rows.append(_without_unknown(row, by_generation[name], by_newer[name]) if name in by_newer else row)
    return rows


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
    costs = [episode.partition_seconds_lost for episode in known if episode.partition_seconds_lost is not None]
    durations = [
        episode.end_ms - episode.start_hi_ms
        for episode in known
        if episode.end_ms is not None and episode.start_hi_ms is not None and episode.start_lo_ms == episode.start_hi_ms
    ]
    exact = all(episode.confidence == "exact" for episode in known)
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
        unstable_ms=sum(max(ms, 0) for ms in durations) if len(durations) == len(known) else None,
        partition_seconds_lost=round(sum(costs), 3) if len(costs) == len(known) or costs else (0.0 if not known else None),
        avoidable=sum(episode.avoidable == "yes" for episode in known),
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


def _without_unknown(row: Group, generations: list[Generation], newer: list[NewerGroup]) -> Group:
    """The row without the numbers that depend on records of a newer protocol."""
    row = row._replace(
        first_ms=min([*([row.first_ms] if row.last_ms else []), *(records.first_ms for records in newer)]),
        last_ms=max(row.last_ms, *(records.last_ms for records in newer)),
        rebalances=None,
        rebalances_per_day=None,
        unstable_ms=None,
        partition_seconds_lost=None,
        avoidable=None,
        saved=None,
        coverage=None,
        flags=[*row.flags, NEWER],
    )
    if not in_newer_protocol(generations, newer):
        return row
    return row._replace(state=UNKNOWN, members=None, static_members=None, generation=None, flags=[flag for flag in row.flags if flag != MIXED])


def in_newer_protocol(generations: Sequence[Generation], newer: Sequence[NewerGroup]) -> bool:
    """Whether a group's newest record is of a newer protocol."""
    return max((row.last_offset for row in newer), default=-1) > max((row.offset for row in generations), default=-1)


def not_understood(newer: Sequence[NewerGroup]) -> dict[str, dict[str, int]]:
    """The number of groups, and of their records, in each newer protocol."""
    of_kind: dict[str, list[NewerGroup]] = defaultdict(list)
    for row in newer:
        of_kind[row.kind].append(row)
    return {kind: {"groups": len(rows), "records": sum(row.records for row in rows)} for kind, rows in sorted(of_kind.items())}


def _rate(totals: dict[str, Any] | None) -> float:
    if totals is None or totals["first_ms"] is None:
        return 0.0
    return float(round(totals["commits"] * 1000 / max(totals["last_ms"] - totals["first_ms"], 60_000), 4))


def _state(newest: Generation | None, episodes: Sequence[Episode]) -> str:
    if episodes and episodes[-1].end == "open":
        return "rebalancing"
    if newest is None:
        return UNKNOWN
    return "deleted" if newest.tombstone else "empty" if newest.empty else "stable"


def _flags(newest: Generation | None, known: Sequence[Episode], missing: int) -> list[str]:
    flags = []
    if any(episode.storm is not None for episode in known):
        flags.append("storm")
    if newest is not None and 0 < newest.static_members < newest.members:
        flags.append(MIXED)
    if missing:
        flags.append("rebalances_missing")
    return flags


def _totals(series_totals: pa.Table, generations: Mapping[str, Sequence[Generation]]) -> dict[str, dict[str, Any]]:
    """The totals of each group: commits, partitions with commits, lag, longest time lag, worst status.

    A partition has no lag and no status if its offset was removed, or if the group was deleted after its last commit.
    """
    totals: dict[str, dict[str, Any]] = {}
    live_from = {group: _live_from(rows) for group, rows in generations.items()}
    names = ("group", "commits", "first_ms", "last_ms", "lag", "time_lag_ms", "status")
    for group, commits, first, last, lag, time_lag, status in zip(*(series_totals[name].to_pylist() for name in names), strict=True):
        total = totals.setdefault(group, {"commits": 0, "partitions": 0, "first_ms": first, "last_ms": last, "lag": None, "time_lag_ms": None, "worst": None})
        if first is not None:
            total["commits"] += commits
            total["partitions"] += 1
            total["first_ms"] = min(first, first if total["first_ms"] is None else total["first_ms"])
            total["last_ms"] = max(last, last if total["last_ms"] is None else total["last_ms"])
        if status is None or (last is not None and last < live_from.get(group, last)):
            lag = time_lag = status = None
        if lag is not None:
            total["lag"] = lag + (total["lag"] or 0)
        if time_lag is not None:
            total["time_lag_ms"] = max(time_lag, total["time_lag_ms"] or 0)
        if status is not None:
            total["worst"] = min(status, total["worst"] or status, key=WORST_FIRST.index)
    return totals


def _live_from(generations: Sequence[Generation]) -> int:
    """The first minute whose commits are after the last deletion of the group.

    Commit times are rounded down to minutes. If the newest record is no tombstone, the group was created again, perhaps in the minute of its
    deletion, so that minute counts too.
    """
    deleted_ms = max((generation.append_ms for generation in generations if generation.tombstone), default=None)
    if deleted_ms is None:
        return 0
    minute_ms = deleted_ms - deleted_ms % MINUTE_MS
    return minute_ms + MINUTE_MS if generations[-1].tombstone else minute_ms


def complete_share(coverage: Iterable[Coverage]) -> float:
    """The share of the offsets of a partition of __consumer_offsets that are complete."""
    rows = [row for row in coverage if row.log == OFFSETS]
    total = sum(row.to_offset - row.from_offset + 1 for row in rows)
    complete = sum(row.to_offset - row.from_offset + 1 for row in rows if row.complete)
    return round(complete / total, 4) if total else 0.0


def _by_group(rows: Sequence[Any]) -> dict[str, list[Any]]:
    rows_by_group: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        rows_by_group[row.group].append(row)
    return rows_by_group
