"""Commit rates, lag, status, hygiene and the `groups` table of some groups.

Only rows that new input may change are recomputed: a commit changes its own minute and later ones, a sample of an end offset everything
since the previous sample. Settled rows are not even read; `series_totals.py` has their totals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns import MINUTE_MS, MISSING, ints
from pipeline.commits import KEPT_MS
from pipeline.grace import REBALANCE_MS_MAX, excused_intervals
from pipeline.groups import group_rows
from pipeline.hygiene import Thresholds, hygiene
from pipeline.lag import current_time_lag, lag_by_minute
from pipeline.minutes import commit_rate
from pipeline.rows import Episode, Generation, NewerGroup, Replaced
from pipeline.schema import in_order, joined, rows_of, schema_of, table_of
from pipeline.series import Samples, Series, affected_since, lag_views_of
from pipeline.series_totals import SERIES_TOTALS, updated_totals
from pipeline.status import QUIET_BACK_MS, status_rows

TIME_COLUMNS: Final = {"commit_rate_1m": "minute_ms", "lag_1m": "minute_ms", "status": "to_ms"}  # time series tables, with the column that has the end time of a row
FOLDED_TABLES: Final = ("generations", "members", "newer_groups", "notes", "rebalances", "member_spells", "replacements")
BEGINNING: Final = -(1 << 60)
SETTLE_MS: Final = 3_600_000  # rows settle an hour at a time


class PreviousBuild(NamedTuple):
    """The output of the previous build, as far as this build needs it."""

    rows: Mapping[str, pa.Table]  # of TIME_COLUMNS, from `settled_ms` on
    series_totals: pa.Table  # of all rows before that
    settled_ms: int


class Homes(NamedTuple):
    """What the groups' partitions of __consumer_offsets have in common."""

    partitions: Mapping[str, int]  # of each group
    shares: Mapping[int, float]  # by partition: the complete share of its log
    notes: pa.Table  # rows of `notes` about coordinators

    @property
    def coverage(self) -> dict[str, float]:
        return {group: self.shares.get(partition, 0.0) for group, partition in self.partitions.items()}


class MeasuredTables(NamedTuple):
    settled: Mapping[str, pa.Table]  # of TIME_COLUMNS: rows that only late input can change
    series_totals: pa.Table  # of all settled rows
    recent: Mapping[str, pa.Table]  # of TIME_COLUMNS, since then
    groups: Mapping[str, pa.Table]  # hygiene and groups


NO_ROWS: Final = PreviousBuild({name: schema_of(name).empty_table() for name in TIME_COLUMNS}, SERIES_TOTALS.empty_table(), BEGINNING)


def settling_ms(before_ms: int, now_ms: int) -> int:
    """The time up to which rows settle."""
    moment = now_ms - KEPT_MS
    return max(before_ms, moment - moment % SETTLE_MS)


def settled_before(rows: Mapping[str, pa.Table], settled_rows: Mapping[str, pa.Table], since_ms: int) -> tuple[PreviousBuild, dict[str, pa.Table]]:
    """The previous build for late input, which changes settled rows; and the rows that stay settled."""
    until = since_ms - since_ms % MINUTE_MS
    earlier = {name: pa.array(ints(table[TIME_COLUMNS[name]]) < until) for name, table in settled_rows.items()}
    stay = {name: table.filter(earlier[name]) for name, table in settled_rows.items()}
    reopened = {name: joined(name, [table.filter(pc.invert(earlier[name])), rows[name]]) for name, table in settled_rows.items()}
    return PreviousBuild(reopened, updated_totals(SERIES_TOTALS.empty_table(), stay), until), stay


def earliest_change_ms(before_ms: int, commits: pa.Table, fresh: pa.Table, known: pa.Table, events: pa.Table, rebalances: pa.Table) -> int:
    """The earliest time whose rows may change. New in this run: `commits`, `events` and the end offsets `fresh`; `known` end offsets are from earlier runs."""
    moments = [before_ms]
    first_affected = affected_since(commits, fresh, known)
    if first_affected is not None:
        moments.append(first_affected)
    if len(events):
        moments.append(int(ints(events["append_ms"]).min()))
    since = min(moments)
    # A rebalance excuses missing commits from its start on.
    latest = np.maximum(ints(rebalances["start_hi_ms"]), MISSING + REBALANCE_MS_MAX)
    starts, ends = np.maximum(ints(rebalances["start_lo_ms"]), latest - REBALANCE_MS_MAX), ints(rebalances["end_ms"])
    affected_starts = starts[(starts != MISSING) & ((ends == MISSING) | (ends >= since))]
    return min(since, int(affected_starts.min())) if len(affected_starts) else since


def measure(
    cluster: str,
    series: Series,
    samples: Samples,
    tables: Mapping[str, pa.Table],
    homes: Homes,
    before: PreviousBuild,
    since_ms: int,
    settle_ms: int,
    now_ms: int,
    retention_ms: int | None,
) -> MeasuredTables:
    """Compute the tables. Rows before `settle_ms` settle."""
    newer = rows_of(NewerGroup, tables["newer_groups"])
    status = before.rows["status"]
    reaching_status = status.filter(pa.array((ints(status["to_ms"]) >= since_ms) & (ints(status["from_ms"]) < since_ms)))
    excused_times = excused_intervals(homes.partitions, tables["rebalances"], homes.notes, now_ms)
    new: dict[str, list[pa.Table]] = {name: [] for name in TIME_COLUMNS}
    time_lag = []
    for view in lag_views_of(series, samples, since_ms - QUIET_BACK_MS):
        new["commit_rate_1m"].append(commit_rate(view.series, since_ms))
        new["lag_1m"].append(lag_by_minute(view, since_ms))
        time_lag.append(current_time_lag(view, now_ms))
        new["status"].append(status_rows(view, tables["generations"], tables["members"], excused_times, reaching_status, since_ms, now_ms))
    rows = {name: _merged(name, before.rows[name], [table for table in new.pop(name) if len(table)], since_ms) for name in TIME_COLUMNS}
    settles = {name: pa.array(ints(table[TIME_COLUMNS[name]]) < settle_ms) for name, table in rows.items()}
    settled = {name: table.filter(settles[name]) for name, table in rows.items()}
    recent = {name: table.filter(pc.invert(settles[name])) for name, table in rows.items()}
    of_settled = updated_totals(before.series_totals, settled)
    series_totals = updated_totals(of_settled, recent, pa.concat_tables(time_lag).unify_dictionaries() if time_lag else None)
    replacements = rows_of(Replaced, tables["replacements"])
    saved: dict[str, int] = {}
    for replacement in replacements:
        saved[replacement.group] = saved.get(replacement.group, 0) + (replacement.saved_rebalances if replacement.verdict == "saved" else 0)
    groups_with_notes = set(tables["notes"]["group"].unique().to_pylist())
    group_table = group_rows(cluster, rows_of(Generation, tables["generations"]), rows_of(Episode, tables["rebalances"]), saved, groups_with_notes, series_totals, homes.coverage, newer)
    findings = hygiene(
        cluster, tables["generations"], tables["members"], tables["replacements"], series, series_totals, now_ms, Thresholds(retention_ms=retention_ms), newer=newer
    )
    return MeasuredTables(settled, of_settled, recent, {"hygiene": table_of("hygiene", findings), "groups": table_of("groups", group_table)})


def _merged(name: str, before: pa.Table, new: Sequence[pa.Table], since_ms: int) -> pa.Table:
    """The old rows that ended before `since_ms` and the new rows, in table order."""
    old = before.filter(pa.array(ints(before[TIME_COLUMNS[name]]) < since_ms))
    if len(old) or not new:
        return in_order(name, joined(name, [old, *(table.cast(schema_of(name)) for table in new)]))
    return pa.concat_tables(new)
