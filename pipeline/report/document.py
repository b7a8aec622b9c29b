"""The report as one JSON document: `report.json`, and the input of the page.

Every number comes from a table of the warehouse; nothing is computed for the page alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.coverage import COMPACTED
from pipeline.report.first import recommendations
from pipeline.report.moments import worst_moments
from pipeline.report.stretches import WELL, highest
from pipeline.report.tables import Tables
from pipeline.rows import Episode, Group, Status

FORMAT: Final = 1
GROUPS_IN_FULL: Final = 20
STATUS_MAX: Final = 500
ROWS_MAX: Final = 2_000  # of one group's list; the rest is counted
LAG_POINTS_MAX: Final = 140  # per partition: the highest of each stretch stays
HEAT_PARTITIONS_MAX: Final = 24


def document(tables: Tables, *, version: str, per_group: bool = False) -> dict[str, Any]:
    ranked = sorted(tables.groups, key=_weight, reverse=True)
    full = ranked if per_group else ranked[:GROUPS_IN_FULL]
    first = recommendations(tables)
    current = tables.warehouse.current()
    return {
        "format": FORMAT,
        "tenure": version,
        "clusters": sorted({group.cluster for group in tables.groups} | set(current.now_ms)),
        "from_ms": min((group.first_ms for group in tables.groups), default=None),
        "to_ms": max(current.now_ms.values(), default=None),
        "run": current.run,
        "summary": _summary(tables, first),
        "first": first,
        "moments": worst_moments(tables),
        "coverage": [one._asdict() for one in tables.coverage],
        "groups": [one._asdict() for one in ranked],
        "details": [_details(tables, one) for one in full],
        "hygiene": [one._asdict() for key in sorted(tables.hygiene) for one in tables.hygiene[key]],
        "inputs": {
            "segments": len(tables.segments),
            "bytes": sum(segment.size for segment in tables.segments),
            "records": sum(segment.records for segment in tables.segments),
            "batches": sum(segment.batches for segment in tables.segments),
            "torn_bytes": sum(segment.torn_bytes for segment in tables.segments),
            "damaged_batches": sum(segment.damaged_batches for segment in tables.segments),
            "quarantined_bytes": sum(segment.quarantined_bytes for segment in tables.segments),
        },
    }


def _weight(group: Group) -> tuple[float, int, int, str]:
    return (group.partition_seconds_lost or 0.0, group.rebalances, group.lag or 0, group.group)


def _summary(tables: Tables, first: list[dict[str, Any]]) -> dict[str, Any]:
    groups = tables.groups
    episodes = [one for some in tables.episodes.values() for one in some]
    known = [episode for episode in episodes if not episode.missing]
    avoidable = [one for one in known if one.avoidable == "yes"]
    lost = sum(one.partition_seconds_lost or 0.0 for one in known)
    # Two processes with one instance id replace each other all the time: these are no saved rebalances.
    fights = {key for key, some in tables.hygiene.items() if any(one.kind == "duplicate_instance" for one in some)}
    kept = [one for key, some in tables.replacements.items() if key not in fights for one in some]
    kept = [one for one in kept if one.verdict == "saved"]
    saved = sum(one.saved_rebalances for one in kept)
    behind = [group for group in groups if group.worst_status in ("STOP", "STALL", "REWIND", "LOST")]
    weakest = _weakest(one.confidence for one in known)
    whole = len(known) == len(episodes) and all(one.complete for one in tables.coverage)
    return {
        "numbers": [
            {"label": "rebalances", "value": len(known), "unit": "", "confidence": "exact" if whole else "strong"},
            {"label": "avoidable with static membership", "value": len(avoidable), "unit": "", "confidence": _weakest(one.confidence for one in avoidable)},
            {"label": "avoided by static members", "value": saved, "unit": "", "confidence": _weakest(one.confidence for one in kept)},
            {"label": "partition time lost", "value": round(lost, 1), "unit": "s", "confidence": weakest},
            {"label": "groups with partitions that stand still", "value": len(behind), "unit": "", "confidence": "exact" if groups else "none"},
        ],
        "causes": dict(Counter(one.cause for one in known).most_common()),
        "sentences": _sentences(tables, known, avoidable, lost, saved, behind, first),
    }


def _sentences(
    tables: Tables, known: list[Episode], avoidable: list[Episode], lost: float, saved: int, behind: list[Group], first: list[dict[str, Any]]
) -> list[str]:
    groups = tables.groups
    if not groups:
        return ["No consumer group is in these logs."]
    said = [f"{_count(len(known), 'rebalance')} of {_count(len(groups), 'group')} stopped partitions for {_time(lost)} in all."]
    if known:
        cause, times = Counter(one.cause for one in known).most_common(1)[0]
        said.append(f"Most often the cause was: {cause.replace('_', ' ')} ({times} of {len(known)}).")
    if avoidable:
        spared = sum(one.partition_seconds_lost or 0.0 for one in avoidable)
        said.append(f"{len(avoidable)} of them were restarts that static membership with a fitting session timeout would have bridged ({_time(spared)}).")
    if saved:
        said.append(f"Static members avoided {_count(saved, 'rebalance')} when they were restarted.")
    if behind:
        names = ", ".join(one.group for one in behind[:3]) + (" and others" if len(behind) > 3 else "")
        said.append(f"{_count(len(behind), 'group')} {'has' if len(behind) == 1 else 'have'} partitions that stand still: {names}.")
    if not first:
        compacted = any(one.why == COMPACTED for one in tables.coverage)
        said.append("Nothing has to be changed, as far as these logs still say." if compacted else "Nothing has to be changed.")
    return said[:5]


def _details(tables: Tables, group: Group) -> dict[str, Any]:
    key = (group.cluster, group.group)
    advice = tables.advice.get(key)
    return {
        "cluster": group.cluster,
        "group": group.group,
        "about": group._asdict(),
        "episodes": _limited(tables.episodes.get(key, [])),
        "deploys": _limited(tables.deploys.get(key, [])),
        "replacements": _limited(tables.replacements.get(key, [])),
        "spells": _limited(tables.spells.get(key, [])),
        "gaps": _limited(tables.gaps.get(key, [])),
        "curve": [one._asdict() for one in tables.curve.get(key, [])],
        "advice": advice._asdict() if advice is not None else None,
        "offenders": _offenders(tables.episodes.get(key, [])),
        "status": _stretches(tables.status.get(key, [])),
        "lag": _lag(tables.lag, group),
    }


def _limited(rows: list[Any], most: int = ROWS_MAX) -> dict[str, Any]:
    """The newest items, and the total number."""
    return {"count": len(rows), "rows": [row._asdict() for row in rows[-most:]]}


def _stretches(rows: list[Status]) -> dict[str, Any]:
    """Where there are too many, partitions that were always well are left out first."""
    found = rows
    if len(rows) > STATUS_MAX:
        bad = {(row.topic, row.topic_partition) for row in rows if row.status not in WELL}
        found = sorted(rows, key=lambda one: ((one.topic, one.topic_partition) not in bad, one.topic, one.topic_partition, one.from_ms))
    return {"count": len(rows), "rows": [one._asdict() for one in found[:STATUS_MAX]]}


def _offenders(episodes: list[Episode]) -> list[dict[str, Any]]:
    """Members whose doing it was, most expensive first."""
    found: dict[str, list[Episode]] = defaultdict(list)
    for episode in episodes:
        if episode.trigger_member is not None:
            # A dynamic member has a new id after each restart; its client id and host stay.
            found[episode.trigger_client or episode.trigger_member].append(episode)
    ranked = sorted(found.items(), key=lambda item: (-sum(one.partition_seconds_lost or 0.0 for one in item[1]), -len(item[1]), item[0]))
    return [
        {
            "who": who,
            "members": len({one.trigger_member for one in some}),
            "rebalances": len(some),
            "partition_seconds_lost": round(sum(one.partition_seconds_lost or 0.0 for one in some), 1),
            "causes": dict(Counter(one.cause for one in some).most_common()),
        }
        for who, some in ranked[:10]
    ]


def _lag(table: pa.Table, group: Group) -> dict[str, Any]:
    """Per partition its highest lag in each stretch, for the heat map. `table`: all of `lag_1m` that is known."""
    table = table.filter(pc.and_(pc.equal(table["group"], group.group), pc.equal(table["cluster"], group.cluster)))
    if not table.num_rows:
        return {"partitions": [], "step_ms": None, "from_ms": None}
    first, last = pc.min(table["minute_ms"]).as_py(), pc.max(table["minute_ms"]).as_py()
    step = max(60_000, -(-(last - first + 60_000) // LAG_POINTS_MAX // 60_000) * 60_000)
    rows: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    for topic, partition, at, most in highest(table, first, step):
        rows[topic, partition][at] = most
    worst = sorted(rows, key=lambda key: (-max(rows[key].values()), key))[:HEAT_PARTITIONS_MAX]
    count = (last - first) // step + 1
    return {
        "from_ms": first,
        "step_ms": step,
        "partitions": [
            {"topic": topic, "partition": partition, "lag": [rows[topic, partition].get(at) for at in range(count)]} for topic, partition in sorted(worst)
        ],
        "left_out": len(rows) - len(worst),
    }


def _weakest(confidences: Iterable[str]) -> str:
    order = ("none", "weak", "strong", "exact")
    return min(confidences, key=lambda one: order.index(one) if one in order else 0, default="none")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _time(seconds: float) -> str:
    for size, word in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {word}"
    return f"{seconds:.0f} seconds"
