"""Computes the intervals of status of partitions from commits, end offsets and members, for the tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute

from pipeline.commits import BEGINNING
from pipeline.rows import EndOffset, Generation, Member, Status
from pipeline.schema import in_order, joined, rows_of, schema_of, table_of
from pipeline.series import lag_views_of, series_and_samples
from pipeline.status import QUIET_BACK_MS, recompute_since, status_rows
from tests.pipeline.logs import DecodedRecord, commits_of, ends_table

Ranges = Mapping[str, Sequence[tuple[int, int]]]


def no_rows(name: str) -> pa.Table:
    return schema_of(name).empty_table()


def statuses(
    log: list[DecodedRecord],
    ends: list[EndOffset],
    now: int,
    generations: Sequence[Generation] = (),
    members: Sequence[Member] = (),
    graces: Ranges | None = None,
) -> list[Status]:
    tables = table_of("generations", generations), table_of("members", members)
    return rows_of(Status, updated(commits_of(log), ends_table(ends), *tables, graces or {}, no_rows("status"), BEGINNING, now))


def updated(
    commits: pa.Table, ends: pa.Table, generations: pa.Table, members: pa.Table, graces: Ranges, previous: pa.Table, since_ms: int, now_ms: int
) -> pa.Table:
    """The earlier rows that stay, and the new rows."""
    since_ms = recompute_since(previous, since_ms)
    until = previous["to_ms"].to_numpy()
    reaching = previous.filter(pa.array((until >= since_ms) & (previous["from_ms"].to_numpy() < since_ms)))
    views = lag_views_of(*series_and_samples(commits, ends), since_ms - QUIET_BACK_MS)
    new = pa.concat_tables(status_rows(view, generations, members, graces, reaching, since_ms, now_ms) for view in views)
    assert in_order("status", new).equals(new.cast(schema_of("status")))
    return in_order("status", joined("status", [previous.filter(pa.array(until < since_ms)), new.cast(schema_of("status"))]))
