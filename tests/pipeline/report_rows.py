"""Tables with hand-made rows: a group that needs a change, a stuck group, and a group with hostile names."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from pathlib import Path

from pipeline.rows import (
    TABLES,
    Advice,
    Coverage,
    CurvePoint,
    Deploy,
    Episode,
    Gap,
    Group,
    Hygiene,
    LagMinute,
    MemberSpell,
    Replaced,
    Segment,
    Status,
)
from pipeline.schema import table_of
from pipeline.tables import File, Part, Tables, parts_of

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
BEGAN = 1_790_000_000_000
NOW = BEGAN + 7 * DAY
HOSTILE = "</td><script>alert('x')</script>\x1b[31m\u202egnp.exe\n\"'&{{7*7}}" + "w" * 300


def episode(group: str, number: int, at: int, cause: str, **more: object) -> Episode:
    episode_row = Episode(
        cluster="c",
        group=group,
        episode=number,
        start_lo_ms=at,
        start_hi_ms=at,
        join_done_ms=at + 2_000,
        end_ms=at + 3_000,
        end="stable",
        from_generation=number,
        to_generation=number + 1,
        rounds=1,
        rounds_aborted=0,
        cause=cause,
        cause_detail=None,
        contributing=[],
        trigger_member=f"{group}-{number % 4}",
        trigger_client=f"app-{number % 4} @ /10.0.0.{number % 4}",
        evidence=f"{group}-{number % 4} left and came back 12.0 s later.",
        confidence="exact",
        members_before=4,
        members_after=4,
        joined=[],
        left=[],
        expired=[],
        rejoined=[],
        laggards=[],
        laggard_ms=None,
        protocol_change=False,
        subscription_change=False,
        moved_partitions=3,
        join_ms=2_000,
        sync_ms=1_000,
        stalled_lo_ms=36_000,
        stalled_hi_ms=36_000,
        partition_seconds_lost=36.0,
        cooperative=False,
        storm=None,
        avoidable="yes" if cause == "member_left" else "no",
        avoidable_by_ms=15_000 if cause == "member_left" else None,
        deploy=0,
        missing=0,
        final=True,
    )
    return episode_row._replace(**more)  # type: ignore[arg-type]


def group_row(group: str, **more: object) -> Group:
    new_group = Group(
        "c", group, "consumer", BEGAN, NOW, "stable", 4, 0, 40, 40, 5.7, 120_000, 1440.0, 30, 0, 90_000, 1.2, 12, 340, 4_000, "OK", 1.0, "exact", []
    )
    return new_group._replace(**more)  # type: ignore[arg-type]


def filled(folder: Path) -> Tables:
    chance = random.Random(7)
    causes = ["member_left", "new_member", "session_expired", "rebalance_timeout", "leader_rejoined", "coordinator_moved", "unknown"]
    rows: dict[str, list[tuple[object, ...]]] = {name: [] for name in TABLES}
    names = ["checkout", "billing", HOSTILE, *(f"quiet-{n}" for n in range(3))]
    for at, name in enumerate(names):
        status = "STOP" if name == "billing" else "OK"
        rows["groups"].append(
            group_row(name, partition_seconds_lost=1440.0 / (at + 1), worst_status=status, static_members=4 if name == "billing" else 0)
        )
        for number in range(40 // (at + 1)):
            began_ms = BEGAN + chance.randrange(7 * DAY)
            cause = "member_left" if name == "checkout" and number % 3 else chance.choice(causes)
            rows["rebalances"].append(episode(name, number, began_ms, cause, confidence=chance.choice(["exact", "strong", "weak"])))
    rows["rebalances"] = sorted(rows["rebalances"], key=lambda row: (row[1], row[3]))
    rows["rebalances"] = [row._replace(episode=at, from_generation=at, to_generation=at + 1) for at, row in enumerate(rows["rebalances"])]  # type: ignore[attr-defined]
    rows["deploys"] += [
        Deploy("c", "checkout", at, BEGAN + at * DAY + 9 * HOUR, BEGAN + at * DAY + 9 * HOUR + 20 * MINUTE, 4, 4, "dynamic", 8, 0, 288.0, "exact") for at in range(5)
    ]
    rows["gap_samples"] += [
        Gap("c", "checkout", f"checkout-{at}", BEGAN + at * HOUR, gap, gap, "dynamic_pair", True, 3, [at], "exact")
        for at, gap in enumerate(sorted(chance.randrange(4_000, 41_000) for _ in range(60)))
    ]
    rows["timeout_curve"] += [
        CurvePoint("c", "checkout", ms, min(ms // 700, 60), max(60 - ms // 700, 0), 0, min(ms // 1_400, 28), 2, (ms - 10_000) * 2, (ms - 10_000) * 6)
        for ms in (6_000, 10_000, 15_000, 20_000, 30_000, 45_000, 60_000, 120_000, 300_000, 1_800_000)
    ]
    text = "checkout: 28 of 40 rebalances in 7 days came from restarts of at most 41 s; group.instance.id and session.timeout.ms=60000 would have left 12."
    rows["timeout_advice"].append(
        Advice(
            "c", "checkout", 10_000, 10_000, 60_000, 0.95, 60, 28, 40, 600_000, 2, 9_000, 0.0, "strong",
            "group.instance.id=<the name of the pod>\nsession.timeout.ms=60000", text,
        )
    )
    rows["replacements"] += [
        Replaced("c", "billing", f"billing-{at}", f"o{at}", f"n{at}", BEGAN + at * HOUR, 5, False, 9_000, 9_000, 45_000, 3, "saved", 2, 2, "exact") for at in range(9)
    ]
    rows["member_spells"].append(
        MemberSpell("c", "checkout", "m", None, "m", "app", "/h", 10_000, BEGAN, BEGAN, None, None, "open", 1, None, 3, NOW, None, None, None, "exact", False)
    )
    for topic, partition in [("orders", 0), ("orders", 1), (HOSTILE[:40], 2)]:
        for minute in range(0, 7 * 1440, 20):
            lag = int(abs(chance.gauss(40, 30))) + (max(0, minute - 5_000) * 9 if partition == 1 else 0)
            at = BEGAN + minute * MINUTE
            rows["lag_1m"].append(LagMinute("c", "billing", topic, partition, at, 5, 5 + lag, lag, lag, lag, 1_000, False, 0.1, 0.1, -1, "notes"))
        rows["status"] += [
            Status("c", "billing", topic, partition, "tenure", BEGAN, BEGAN + 4 * DAY, "OK", "lag is zero in the window", 4, 1.0, "billing-1", True),
            Status("c", "billing", topic, partition, "tenure", BEGAN + 4 * DAY, NOW, "STOP" if partition == 1 else "OK", "no commit for long", 45_000, 1.0, "billing-1", False),
        ]
    rows["hygiene"] += [
        Hygiene("c", "quiet-1", None, None, "dead_group", "no member and no commit for 6 days", NOW),
        Hygiene("c", HOSTILE, HOSTILE[:50], 3, "offsets_about_to_expire", "in 5 hours", NOW),
    ]
    rows["coverage"] += [
        Coverage("c", "offsets", 4, 0, 900, BEGAN, BEGAN + DAY, False, "compacted"),
        Coverage("c", "offsets", 4, 901, 4_000, BEGAN + DAY, NOW, True, ""),
    ]
    rows["segments"].append(Segment("c", "offsets", 4, "x/0.log", 9_000, 0, 0, 4_000, BEGAN, NOW, 300, 4_001, 0, "none", 17, 1, 120, 0, 0))
    made = Tables.open(folder, create=True)
    publish(made, [made.store.write(name, part_of(name, "c"), table_of(name, rows_of_table)) for name, rows_of_table in rows.items() if rows_of_table], {"c": NOW})
    return made


def with_second_cluster(folder: Path) -> Tables:
    """Another cluster has a group `checkout` too."""
    made = filled(folder)
    other = [group_row("checkout")._replace(cluster="elsewhere")]
    gaps = [Coverage("elsewhere", "offsets", 4, 0, 900, BEGAN, NOW, True, "")]
    written = [("groups", table_of("groups", other)), ("coverage", table_of("coverage", gaps))]
    publish(made, [made.store.write(name, part_of(name, "elsewhere"), table) for name, table in written], {"elsewhere": NOW + 1})
    return made


def part_of(name: str, cluster: str, chunk: int = 0, settled: bool = False) -> Part:
    """The part of a table with the rows of a chunk of groups."""
    part = Part(cluster, chunk, settled)
    return Part(**{column: getattr(part, column) for column in parts_of(name)})


def publish(made: Tables, files: Iterable[File], now_ms: Mapping[str, int]) -> None:
    batch = made.begin()
    batch.commit(files)
    content = batch.before.content
    batch.publish({**content, "chunks": 1, "now_ms": {**content.get("now_ms", {}), **now_ms}})
