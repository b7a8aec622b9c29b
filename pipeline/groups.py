"""Gold `groups`: each group in one row, from its other tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

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
    rates: pa.Table,
    lag: pa.Table,
    status: pa.Table,
    coverage: Sequence[Coverage],
) -> list[Group]:
    """`saved`: rebalances that static members avoided, by group; `noted`: groups of which there are notes. The tables are gold, of one bucket."""
    by_generation, by_episode = _by_group(generations), _by_group(episodes)
    totals, latest, worst = _totals(rates), _latest_lag(lag), _worst(status)
    share = _share(coverage)
    return [
        _row(cluster, name, by_generation[name], by_episode[name], saved.get(name, 0), name in noted, totals.get(name), latest.get(name), worst.get(name), share)
        for name in sorted({*by_generation, *by_episode, *totals})
    ]


def _row(
    cluster: str,
    group: str,
    generations: list[Generation],
    episodes: list[Episode],
    saved: int,
    noted: bool,
    totals: dict[str, int] | None,
    lag: dict[str, int | None] | None,
    worst: str | None,
    coverage: float,
) -> Group:
    known = [one for one in episodes if not one.missing]
    moments = [one.append_ms for one in generations] + [ms for one in episodes for ms in (one.start_lo_ms, one.end_ms) if ms is not None]
    if totals is not None:
        moments += [totals["first_ms"], totals["last_ms"]]
    first, last = min(moments, default=0), max(moments, default=0)
    newest = generations[-1] if generations else None
    costs = [one.partition_seconds_lost for one in known if one.partition_seconds_lost is not None]
    took = [one.end_ms - one.start_hi_ms for one in known if one.end_ms is not None and one.start_hi_ms is not None]
    exact = all(one.confidence == "exact" for one in known)
    return Group(
        cluster=cluster,
        group=group,
        protocol_type=next((one.protocol_type for one in reversed(generations) if one.protocol_type), None),
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
        commits_per_s=round(totals["commits"] * 1000 / max(totals["last_ms"] - totals["first_ms"], 60_000), 4) if totals is not None else 0.0,
        partitions=totals["partitions"] if totals is not None else 0,
        lag=lag["lag"] if lag is not None else None,
        time_lag_ms=lag["time_lag_ms"] if lag is not None else None,
        worst_status=worst,
        coverage=coverage,
        notes="none" if not noted else "exact" if exact else "partial",
        flags=_flags(newest, known, len(episodes) - len(known)),
    )


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


def _totals(rates: pa.Table) -> dict[str, dict[str, int]]:
    """From minutes: commits, when the first and the last one was, how many partitions."""
    summed = rates.group_by(["group"]).aggregate([("commits", "sum"), ("minute_ms", "min"), ("minute_ms", "max")])
    partitions = rates.group_by(["group", "topic", "topic_partition"]).aggregate([]).group_by(["group"]).aggregate([([], "count_all")])
    counted = dict(zip(partitions["group"].to_pylist(), partitions["count_all"].to_pylist(), strict=True))
    names = ("group", "commits_sum", "minute_ms_min", "minute_ms_max")
    return {
        group: {"commits": commits, "first_ms": first, "last_ms": last, "partitions": counted[group]}
        for group, commits, first, last in zip(*(summed[name].to_pylist() for name in names), strict=True)
    }


def _latest_lag(lag: pa.Table) -> dict[str, dict[str, int | None]]:
    """Of each partition the newest minute of which the lag is known, added up; and the longest time."""
    lag = lag.filter(pc.is_valid(lag["lag_last"]))
    keys = ["group", "topic", "topic_partition"]
    newest = lag.group_by(keys).aggregate([("minute_ms", "max")])
    rows = lag.join(newest.rename_columns([*keys, "minute_ms"]), [*keys, "minute_ms"], join_type="inner")
    found: dict[str, dict[str, int | None]] = {}
    for group, behind, late in zip(*(rows[name].to_pylist() for name in ("group", "lag_last", "time_lag_ms")), strict=True):
        mine = found.setdefault(group, {"lag": 0, "time_lag_ms": None})
        mine["lag"] = (mine["lag"] or 0) + behind
        if late is not None:
            mine["time_lag_ms"] = max(mine["time_lag_ms"] or 0, late)
    return found


def _worst(status: pa.Table) -> dict[str, str]:
    """Of what each partition is at the end, by our own rules."""
    last: dict[tuple[str, str, int], tuple[int, str]] = {}
    columns = (status[name].to_pylist() for name in ("ruleset", "group", "topic", "topic_partition", "to_ms", "status"))
    for ruleset, group, topic, partition, to_ms, now in zip(*columns, strict=True):
        key = (group, topic, partition)
        if ruleset == "tenure" and to_ms >= last.get(key, (-1, ""))[0]:
            last[key] = (to_ms, now)
    found: dict[str, str] = {}
    for (group, _, _), (_, now) in last.items():
        found[group] = min(found.get(group, now), now, key=WORST_FIRST.index)
    return found


def _share(coverage: Iterable[Coverage]) -> float:
    """Of the offsets of the bucket's __consumer_offsets, those of which every record is there."""
    rows = [one for one in coverage if one.log == OFFSETS]
    whole = sum(one.to_offset - one.from_offset + 1 for one in rows)
    complete = sum(one.to_offset - one.from_offset + 1 for one in rows if one.complete)
    return round(complete / whole, 4) if whole else 0.0


def _by_group(rows: Sequence[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        found[row.group].append(row)
    return found
