from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from pipeline.hygiene import DAY_MS, Thresholds, hygiene
from pipeline.rows import EndOffset, Generation, Hygiene, Member, Replaced
from pipeline.schema import in_order, schema_of, table_of
from pipeline.series import Series, series_and_samples
from pipeline.series_totals import SERIES_TOTALS, updated_totals
from tests.pipeline.logs import DecodedRecord, commits_of
from tests.pipeline.statuses import no_rows, statuses

pytestmark = pytest.mark.once  # no dependence on the Python version

NOW = 1_800_000_000_000
MINUTE = 60_000


def generation(offset: int, at: int, members: int = 0, protocol_type: str = "consumer") -> Generation:
    return Generation("c", "g", offset, offset, at, None, None, protocol_type, "range", None, members, 0, None, not members, False, False)


def member(offset: int, name: str, *assigned: str, host: str = "/h", session: int = 45_000, instance: bool = True) -> Member:
    return Member("c", "g", 1, offset, f"{name}-{offset}", name if instance else None, name, host, session, 300_000, ["t"], list(assigned), 0, 0)


def findings(
    log: Sequence[DecodedRecord] = (),
    generations: Sequence[Generation] = (),
    members: Sequence[Member] = (),
    replaced: Sequence[Replaced] = (),
    status: pa.Table | None = None,
    commits: pa.Table | None = None,
) -> list[Hygiene]:
    rows = hygiene(
        "c",
        table_of("generations", generations),
        table_of("members", members),
        table_of("replacements", replaced),
        series_of(commits_of(list(log))) if commits is None else series_of(commits),
        totals_of(status if status is not None else no_rows("status")),
        NOW,
    )
    assert len(table_of("hygiene", rows)) == len(rows)
    return rows


def series_of(commits: pa.Table) -> Series:
    return series_and_samples(commits, no_rows("end_offsets"))[0]


def totals_of(status: pa.Table) -> pa.Table:
    return updated_totals(SERIES_TOTALS.empty_table(), {name: no_rows(name) for name in ("commit_rate_1m", "lag_1m")} | {"status": status})


def kinds(rows: Sequence[Hygiene]) -> list[tuple[str, int | None]]:
    return [(row.kind, row.topic_partition) for row in rows]


def test_an_unused_group_is_reported() -> None:
    old = NOW - 8 * DAY_MS
    rows = findings([DecodedRecord(old, "g", "t", 0, 5), DecodedRecord(old, "g", "t", 1, 5)], [generation(9, old + MINUTE)])
    assert kinds(rows) == [("dead_group", None), ("offsets_about_to_expire", 0), ("offsets_about_to_expire", 1)]
    assert rows[0].at_ms == old + MINUTE
    assert kinds(findings([DecodedRecord(NOW - 6 * DAY_MS + MINUTE, "g", "t", 0, 5)])) == []
    assert kinds(findings([DecodedRecord(NOW - 6 * DAY_MS, "g", "t", 0, 5)])) == [("offsets_about_to_expire", 0)]
    assert kinds(findings([DecodedRecord(old, "g", "t", 0, 5), DecodedRecord(old, "g", "t", 0, None)])) == []


def test_a_group_with_members_is_neither_dead_nor_do_its_offsets_expire() -> None:
    old = NOW - 8 * DAY_MS
    assert findings([DecodedRecord(old, "g", "t", 0, 5)], [generation(9, old, 1)], [member(9, "a", "t-0")]) == []


def test_commits_of_a_non_member_are_reported() -> None:
    log = [DecodedRecord(NOW - MINUTE, "g", "t", 0, 5)]
    assert kinds(findings(log)) == kinds(findings(log, [generation(9, NOW - 2 * MINUTE)])) == [("commits_without_members", None)]
    assert findings(log, [generation(9, NOW)]) == []  # the last members left after the commit


def test_idle_members_and_unassigned_partitions_are_reported() -> None:
    log = [DecodedRecord(NOW, "g", "t", 0, 5), DecodedRecord(NOW, "g", "t", 1, 5), DecodedRecord(NOW, "g", "other", 0, 5)]
    members = [member(9, "a", "t-0"), member(9, "b"), member(9, "x", instance=False), member(9, "x", instance=False)]
    rows = findings(log, [generation(9, NOW, 4)], members)
    assert [(row.kind, row.topic, row.detail) for row in rows] == [
        ("idle_member", None, "b has no partition: 4 members for 1 partitions"),
        ("idle_member", None, "x at /h has no partition: 4 members for 1 partitions"),
        ("unowned_partition", "other", "no member subscribes to its topic any more"),
        ("unowned_partition", "t", "no member is assigned to it"),
    ]
    assert findings(log, [generation(9, NOW, 4, "connect")], members) == []


def test_session_timeouts_out_of_policy_are_reported() -> None:
    members = [member(9, "a", "t-0", session=6_000), member(9, "b", "t-1", session=600_000), member(9, "c", "t-2", session=600_001)]
    rows = findings([], [generation(9, NOW, 3)], members)
    assert [(row.kind, row.detail.split(" of ")[1].split()[0]) for row in rows] == [("session_out_of_policy", "a"), ("session_out_of_policy", "c")]


def test_an_instance_id_of_two_processes_is_reported() -> None:
    hosts = ["/1", "/1", "/2", "/3", "/2"]
    generations = [generation(offset, NOW + offset, 2) for offset in range(5)]
    members = [member(offset, "moves", "t-0", host=f"/{offset}") for offset in range(5)]
    members += [member(offset, "both", "t-1", host=host) for offset, host in enumerate(hosts)]
    (row,) = findings([], generations, members)
    assert (row.kind, row.detail, row.at_ms) == ("host_shared_instance", "both is on /1, /2, /3 alternately", NOW + 4)
    times = [0, 20 * MINUTE, 25 * MINUTE, 29 * MINUTE]
    replaced = [Replaced("c", "g", "i", "o", "n", NOW + at, 1, False, None, None, None, None, "saved", 2, 2, "exact") for at in times]
    (row,) = findings([], generations[:1], members[:1], replaced)
    assert (row.kind, row.at_ms) == ("duplicate_instance", NOW + 29 * MINUTE)
    assert row.detail == "i came back 4 times, 3 of them within 10 minutes"
    (row,) = findings([], generations[:1], members[:1], [one._replace(at_ms=NOW + number) for number, one in enumerate(replaced)])
    assert row.detail == "i came back 4 times within 10 minutes"
    assert findings([], generations[:1], members[:1], replaced[:3]) == []


def test_lost_data_is_reported_once_a_partition() -> None:
    log = [DecodedRecord(NOW - 90_000, "g", "t", 0, 5), DecodedRecord(NOW - 50_000, "g", "t", 0, 20)]
    ends = [EndOffset("c", "t", 0, NOW - at, 50, start, "notes", None) for at, start in ((95_000, 0), (60_000, 9), (40_000, 21))]
    rows = findings(log, status=table_of("status", statuses(log, ends, NOW)))
    assert [(row.kind, row.topic_partition, row.at_ms) for row in rows if row.kind == "data_lost"] == [("data_lost", 0, NOW - 40_000)]


def test_data_lost_before_the_offset_was_removed_is_not_reported() -> None:
    log = [DecodedRecord(NOW - 90_000, "g", "t", 0, 5), DecodedRecord(NOW - 20_000, "g", "t", 0, None)]
    rows = findings(log, status=table_of("status", statuses(log, [EndOffset("c", "t", 0, NOW - 95_000, 50, 9, "notes", None)], NOW)))
    assert [row.kind for row in rows] == []


def test_too_large_metadata_is_reported() -> None:
    limit = Thresholds().metadata_bytes
    commits = commits_of([DecodedRecord(NOW, "g", "t", 0, 5), DecodedRecord(NOW, "g", "t", 1, 5)])
    commits = commits.set_column(commits.schema.get_field_index("metadata"), "metadata", pa.array(["é" * (limit // 2 + 1), "x" * limit]))
    assert [(row.kind, row.topic_partition) for row in findings(commits=commits) if row.kind == "metadata_bloat"] == [("metadata_bloat", 0)]


def test_rows_are_in_the_order_of_the_table() -> None:
    log = [DecodedRecord(NOW - 8 * DAY_MS, group, "t", partition, 5) for group in ("b", "a", "") for partition in (11, 2)]
    table = table_of("hygiene", findings(log))
    assert len(table) == 9
    assert in_order("hygiene", table).schema == schema_of("hygiene")
