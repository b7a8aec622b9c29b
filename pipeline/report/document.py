"""The report as one JSON document: `report.json`, and the input of the page. All numbers come from the tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.coverage import COMPACTED
from pipeline.groups import not_understood
from pipeline.report.first import recommendations
from pipeline.report.moments import worst_moments
from pipeline.report.savings import Saving, lost_s, savings_rows, static_savings, total, weakest
from pipeline.report.stretches import GOOD_STATUSES, STALLED_STATUSES, highest
from pipeline.report.tables import ReportTables
from pipeline.report.words import counted, range_text
from pipeline.rows import Episode, Group, Status

FORMAT: Final = 1
DETAILED_GROUPS: Final = 20
STATUS_MAX: Final = 500
ROWS_MAX: Final = 2_000  # of one list of a group; the others are only counted
LAG_POINTS_MAX: Final = 140  # for each partition: the highest lag of each step
HEAT_PARTITIONS_MAX: Final = 24


def document(tables: ReportTables, *, version: str, per_group: bool = False) -> dict[str, Any]:
    ranked = sorted(tables.groups, key=_weight, reverse=True)
    detailed = ranked if per_group else ranked[:DETAILED_GROUPS]
    savings = static_savings(tables)
    first = recommendations(tables, savings)
    current = tables.published
    now_ms = {cluster: at for cluster, at in current.now_ms.items() if tables.cluster in (None, cluster)}
    return {
        "format": FORMAT,
        "tenure": version,
        "clusters": sorted({group.cluster for group in tables.groups} | set(now_ms)),
        "from_ms": min((group.first_ms for group in tables.groups), default=None),
        "to_ms": max(now_ms.values(), default=None),
        "run": current.batch,
        "summary": _summary(tables, total(savings.values()), first),
        "savings": savings_rows(savings),
        "first": first,
        "moments": worst_moments(tables),
        "coverage": [row._asdict() for row in tables.coverage],
        "not_understood": not_understood(tables.newer),
        "groups": [group._asdict() for group in ranked],
        "details": [_details(tables, group) for group in detailed],
        "hygiene": [row._asdict() for key in sorted(tables.hygiene) for row in tables.hygiene[key]],
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
    return (group.partition_seconds_lost or 0.0, group.rebalances or 0, group.lag or 0, group.group)


def _summary(tables: ReportTables, avoidable: Saving, first: list[dict[str, Any]]) -> dict[str, Any]:
    groups = tables.groups
    episodes = [episode for rows in tables.episodes.values() for episode in rows]
    known = [episode for episode in episodes if not episode.missing]
    lost_min, lost = lost_s(known)
    # Two processes with one instance id replace each other all the time, which saves no rebalances.
    duplicated = {key for key, findings in tables.hygiene.items() if any(finding.kind == "duplicate_instance" for finding in findings)}
    replacements = [replaced for key, rows in tables.replacements.items() if key not in duplicated for replaced in rows if replaced.verdict == "saved"]
    saved = sum(replaced.saved_rebalances for replaced in replacements)
    saved_min = sum(replaced.saved_at_least for replaced in replacements)
    stalled = [group for group in groups if group.worst_status in STALLED_STATUSES]
    complete = len(known) == len(episodes) and all(row.complete for row in tables.coverage) and not tables.newer
    return {
        "numbers": [
            _number("rebalances", len(known), "exact" if complete else "strong"),
            _number("avoidable with static membership", avoidable.rebalances, avoidable.confidence, low=avoidable.rebalances_min),
            _number("avoided by static members", saved, weakest(replaced.confidence for replaced in replacements), low=saved_min),
            _number("partition time lost", lost, weakest(episode.confidence for episode in known), low=lost_min, unit="s"),
            _number("groups with stalled partitions", len(stalled), "exact" if groups else "none"),
        ],
        "causes": dict(Counter(episode.cause for episode in known).most_common()),
        "sentences": _sentences(tables, known, avoidable, saved, stalled, first),
    }


def _number(label: str, value: float, confidence: str, *, low: float | None = None, unit: str = "") -> dict[str, Any]:
    return {"label": label, "low": value if low is None else low, "value": value, "unit": unit, "confidence": confidence}


def _sentences(
    tables: ReportTables, known: list[Episode], avoidable: Saving, saved: int, stalled: list[Group], first: list[dict[str, Any]]
) -> list[str]:
    groups = tables.groups
    if not groups:
        return ["These logs contain no consumer group."]
    understood = [group for group in groups if group.rebalances is not None]
    if not understood:
        return [f"The records about the members of {counted(len(groups), 'group')} are not understood: only commits and lag are known."]
    unknown = sum(episode.stalled_hi_ms is None for episode in known)
    without = f", and {unknown} of them for an unknown time" if unknown else ""
    sentences = [f"{counted(len(known), 'rebalance')} of {counted(len(understood), 'group')} stopped partitions for {range_text(*map(_time, lost_s(known)))} in total{without}."]
    if known:
        cause, times = Counter(episode.cause for episode in known).most_common(1)[0]
        sentences.append(f"The most frequent cause was: {cause.replace('_', ' ')} ({times} of {len(known)}).")
    if avoidable.rebalances:
        cost = range_text(_time(avoidable.partition_s_min), _time(avoidable.partition_s))
        sentences.append(
            f"{range_text(avoidable.rebalances_min, avoidable.rebalances)} of them were restarts that static membership with the advised session timeouts would have bridged ({cost})."
        )
    if saved:
        sentences.append(f"Static members avoided {counted(saved, 'rebalance')} when they were restarted.")
    if stalled:
        names = ", ".join(group.group for group in stalled[:3]) + (" and others" if len(stalled) > 3 else "")
        sentences.append(f"{counted(len(stalled), 'group')} {'has' if len(stalled) == 1 else 'have'} stalled partitions: {names}.")
    if not first:
        compacted = any(row.why == COMPACTED for row in tables.coverage)
        limited = "as far as these compacted logs show" if compacted else f"not counting {counted(len(groups) - len(understood), 'group')} of newer protocols"
        sentences.append(f"No change is needed, {limited}." if compacted or len(understood) < len(groups) else "No change is needed.")
    return sentences[:5]


def _details(tables: ReportTables, group: Group) -> dict[str, Any]:
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
        "curve": [point._asdict() for point in tables.curve.get(key, [])],
        "advice": advice._asdict() if advice is not None else None,
        "offenders": _offenders(tables.episodes.get(key, [])),
        "status": _status_rows(tables.status.get(key, [])),
        "lag": _lag(tables.lag, group),
    }


def _limited(rows: list[Any]) -> dict[str, Any]:
    """The newest rows, and the total number."""
    return {"count": len(rows), "rows": [row._asdict() for row in rows[-ROWS_MAX:]]}


def _status_rows(rows: list[Status]) -> dict[str, Any]:
    """The status rows; if there are too many, without partitions that were always OK."""
    shown = rows
    if len(rows) > STATUS_MAX:
        not_ok = {(row.topic, row.topic_partition) for row in rows if row.status not in GOOD_STATUSES}
        shown = sorted(rows, key=lambda row: ((row.topic, row.topic_partition) not in not_ok, row.topic, row.topic_partition, row.from_ms))
    return {"count": len(rows), "rows": [row._asdict() for row in shown[:STATUS_MAX]]}


def _offenders(episodes: list[Episode]) -> list[dict[str, Any]]:
    """The members that triggered rebalances, most expensive first."""
    episodes_by_trigger: dict[str, list[Episode]] = defaultdict(list)
    for episode in episodes:
        if episode.trigger_member is not None:
            # A dynamic member has a new id after each restart, but the same client id and host.
            episodes_by_trigger[episode.trigger_client or episode.trigger_member].append(episode)
    ranked = sorted(episodes_by_trigger.items(), key=lambda item: (-sum(episode.partition_seconds_lost or 0.0 for episode in item[1]), -len(item[1]), item[0]))
    return [
        {
            "who": trigger,
            "members": len({episode.trigger_member for episode in caused}),
            "rebalances": len(caused),
            "partition_seconds_lost": round(sum(episode.partition_seconds_lost or 0.0 for episode in caused), 1),
            "causes": dict(Counter(episode.cause for episode in caused).most_common()),
        }
        for trigger, caused in ranked[:10]
    ]


def _lag(table: pa.Table, group: Group) -> dict[str, Any]:
    """The highest lag of each partition in each time step, for the heat map. `table`: the rows of `lag_1m` whose lag is known."""
    table = table.filter(pc.and_(pc.equal(table["group"], group.group), pc.equal(table["cluster"], group.cluster)))
    if not table.num_rows:
        return {"partitions": [], "step_ms": None, "from_ms": None}
    first, last = pc.min(table["minute_ms"]).as_py(), pc.max(table["minute_ms"]).as_py()
    step = max(60_000, -(-(last - first + 60_000) // LAG_POINTS_MAX // 60_000) * 60_000)
    rows: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    for topic, partition, at, highest_lag in highest(table, first, step):
        rows[topic, partition][at] = highest_lag
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


def _time(seconds: float) -> str:
    for size, word in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {word}"
    return f"{seconds:.0f} seconds"
