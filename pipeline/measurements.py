"""Third part of a build: commit rates, lag, status, hygiene and the `groups` table for all groups of one bucket.

Only rows that new input may change are recomputed: a commit changes its own minute and later ones, a sample of an end offset everything
since the previous sample. Settled rows are not even read; `series_totals.py` has their totals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.bucket import BucketTables, dictionary_coded
from pipeline.columns import MINUTE_MS, MISSING, ints
from pipeline.commits import KEPT_MS, CommitState
from pipeline.coverage import merged
from pipeline.grace import REBALANCE_MS_MAX, excused_intervals
from pipeline.groups import group_rows
from pipeline.hygiene import Thresholds, hygiene
from pipeline.lag import current_time_lag, lag_by_minute
from pipeline.minutes import commit_rate
from pipeline.rows import Coverage, Episode, Generation, NewerGroup, Replaced
from pipeline.schema import in_order, joined, rows_of, schema_of, table_of
from pipeline.series import LOOKBACK_MS, Samples, Series, affected_since, lag_views_of, series_and_samples
from pipeline.series_totals import SERIES_TOTALS, updated_totals
from pipeline.status import QUIET_BACK_MS, recompute_since, status_rows
from pipeline.warehouse import File, Warehouse

TIME_COLUMNS: Final = {"commit_rate_1m": "minute_ms", "lag_1m": "minute_ms", "status": "to_ms"}  # time series tables, with the column that has the end time of a row
TOTALS_TABLE: Final = "standing"  # the table with the totals of `series_totals.py`: its name in existing warehouses
MEASURED: Final = (*TIME_COLUMNS, TOTALS_TABLE, "hygiene", "groups")
FOLDED_TABLES: Final = ("generations", "members", "newer_groups", "notes", "rebalances", "member_spells", "replacements")
BEGINNING: Final = -(1 << 60)
AGE_FACTOR: Final = 4  # between the ages of consecutive settling times


class MeasureTask(NamedTuple):
    warehouse: str
    run: int
    bucket: str
    cluster: str
    now_ms: int
    before_ms: int  # now_ms of the previous build; -1: rebuild everything
    tails: File | None  # from the previous build
    files: Mapping[str, tuple[File, ...]]  # by table: of this bucket; end_offsets of all buckets of the cluster
    records: int
    retention_ms: int | None  # see `retention.py`


class PreviousBuild(NamedTuple):
    """The output of the previous build, as far as this build needs it."""

    rows: Mapping[str, pa.Table]  # of TIME_COLUMNS, from `settled_ms` on
    series_totals: pa.Table  # of all rows before that
    settled_ms: int
    files: tuple[File, ...]  # the files with the rows that `series_totals` sums up; they stay


class Settled(NamedTuple):
    """Rows that only late input can change. After late input a build recomputes all rows since an earlier settling time."""

    until_ms: int
    rows: Mapping[str, pa.Table]  # of TIME_COLUMNS, since the previous settling time
    series_totals: pa.Table  # of all rows before `until_ms`


class MeasuredTables(NamedTuple):
    settled: Sequence[Settled]
    recent: Mapping[str, pa.Table]  # of TIME_COLUMNS, since the last settling time
    groups: Mapping[str, pa.Table]  # hygiene and groups, in any order


NO_ROWS: Final = PreviousBuild({name: schema_of(name).empty_table() for name in TIME_COLUMNS}, SERIES_TOTALS.empty_table(), BEGINNING, ())


def measure_bucket(task: MeasureTask) -> list[File]:
    """Build the tables of MEASURED for one bucket; return all of their files."""
    warehouse = Warehouse(Path(task.warehouse))
    loaded = BucketTables(warehouse, task.files)
    fresh = loaded.dictionary_coded("commits", task.run)
    tails = CommitState.of_tails(warehouse.load(task.tails)) if task.tails is not None else None
    topics = {*fresh["topic"].unique().to_pylist(), *(tails.tails["topic"].unique().to_pylist() if tails is not None else ())}
    fresh_ends, known_ends = loaded.new_and_older_rows("end_offsets", topics, task.run)
    since = BEGINNING
    if task.before_ms >= 0:
        since = earliest_change_ms(
            task.before_ms,
            fresh,
            fresh_ends,
            known_ends,
            loaded.table("events", like="records", run=task.run),
            loaded.table("rebalances"),
        )
    previous = _load_previous(warehouse, loaded, since) if task.before_ms >= 0 else NO_ROWS
    since = recompute_since(previous.rows["status"], since)
    tails_suffice = tails is not None and since - LOOKBACK_MS >= tails.kept_from_ms
    commits = pa.concat_tables([dictionary_coded(tails.tails), fresh]) if tails is not None and tails_suffice else loaded.dictionary_coded("commits")
    measured_tables = measure(
        task.cluster,
        *series_and_samples(commits, pa.concat_tables([known_ends, fresh_ends])),
        {name: loaded.table(name) for name in FOLDED_TABLES},
        merged(rows_of(Coverage, loaded.table("coverage"))),
        previous,
        since,
        task.now_ms,
        task.retention_ms,
    )
    return [*previous.files, *_write(warehouse, task, measured_tables)]


def _load_previous(warehouse: Warehouse, loaded: BucketTables, since_ms: int) -> PreviousBuild:
    """Load the previous build: its totals, and the rows that new input may change."""
    totals_files = loaded.settled(TOTALS_TABLE, since_ms - since_ms % MINUTE_MS)
    newest = max(totals_files, key=lambda file: file.until_ms or BEGINNING, default=None)
    settled_ms = BEGINNING if newest is None or newest.until_ms is None else newest.until_ms
    files = tuple(file for name in (*TIME_COLUMNS, TOTALS_TABLE) for file in loaded.settled(name, settled_ms))
    series_totals = warehouse.load(newest) if newest is not None else SERIES_TOTALS.empty_table()
    return PreviousBuild({name: loaded.since(name, settled_ms) for name in TIME_COLUMNS}, series_totals, settled_ms, files)


def _write(warehouse: Warehouse, task: MeasureTask, made: MeasuredTables) -> list[File]:
    """Write the tables. Rows that may still change go to their own files, which the next build replaces."""
    files = []
    for settled in made.settled:
        files += [warehouse.write(name, task.run, task.bucket, table, settled.until_ms) for name, table in settled.rows.items() if len(table)]
        files.append(warehouse.write(TOTALS_TABLE, task.run, task.bucket, settled.series_totals, settled.until_ms))
    files += [warehouse.write(name, task.run, task.bucket, table) for name, table in made.recent.items()]
    return files + [warehouse.write(name, task.run, task.bucket, in_order(name, table)) for name, table in made.groups.items()]


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
    coverage: Sequence[Coverage],
    before: PreviousBuild,
    since_ms: int,
    now_ms: int,
    retention_ms: int | None,
) -> MeasuredTables:
    """Compute the tables of MEASURED for one bucket."""
    names = sorted({*series.names.groups.to_pylist(), *tables["generations"]["group"].unique().to_pylist()})
    newer = rows_of(NewerGroup, tables["newer_groups"])
    status = before.rows["status"]
    reaching_status = status.filter(pa.array((ints(status["to_ms"]) >= since_ms) & (ints(status["from_ms"]) < since_ms)))
    excused_times = excused_intervals(names, tables["rebalances"], tables["notes"], now_ms)
    new: dict[str, list[pa.Table]] = {name: [] for name in TIME_COLUMNS}
    time_lag = []
    for view in lag_views_of(series, samples, since_ms - QUIET_BACK_MS):
        new["commit_rate_1m"].append(commit_rate(view.series, since_ms))
        new["lag_1m"].append(lag_by_minute(view, since_ms))
        time_lag.append(current_time_lag(view, now_ms))
        new["status"].append(status_rows(view, tables["generations"], tables["members"], excused_times, reaching_status, since_ms, now_ms))
    recent = {name: _merged(name, before.rows[name], [table for table in new.pop(name) if len(table)], since_ms) for name in TIME_COLUMNS}
    settled = []
    series_totals = before.series_totals
    for until_ms in _settling_times(before, recent, now_ms):
        before_settling = {name: pa.array(ints(table[TIME_COLUMNS[name]]) < until_ms) for name, table in recent.items()}
        rows = {name: table.filter(before_settling[name]) for name, table in recent.items()}
        recent = {name: table.filter(pc.invert(before_settling[name])) for name, table in recent.items()}
        series_totals = updated_totals(series_totals, rows)
        settled.append(Settled(until_ms, rows, series_totals))
    series_totals = updated_totals(series_totals, recent, pa.concat_tables(time_lag).unify_dictionaries() if time_lag else None)
    replacements = rows_of(Replaced, tables["replacements"])
    saved: dict[str, int] = {}
    for replacement in replacements:
        saved[replacement.group] = saved.get(replacement.group, 0) + (replacement.saved_rebalances if replacement.verdict == "saved" else 0)
    groups_with_notes = set(tables["notes"]["group"].unique().to_pylist())
    group_table = group_rows(cluster, rows_of(Generation, tables["generations"]), rows_of(Episode, tables["rebalances"]), saved, groups_with_notes, series_totals, coverage, newer)
    findings = hygiene(
        cluster, tables["generations"], tables["members"], tables["replacements"], series, series_totals, now_ms, Thresholds(retention_ms=retention_ms), newer=newer
    )
    return MeasuredTables(settled, recent, {"hygiene": table_of("hygiene", findings), "groups": table_of("groups", group_table)})


def _settling_times(before: PreviousBuild, rows: Mapping[str, pa.Table], now_ms: int) -> Iterator[int]:
    """The times up to which rows settle; the older, the larger the distance between them."""
    first = min((int(ints(table[TIME_COLUMNS[name]]).min()) for name, table in rows.items() if len(table)), default=now_ms)
    back = KEPT_MS
    while now_ms - back * AGE_FACTOR > max(before.settled_ms, first):
        back *= AGE_FACTOR
    while back >= KEPT_MS:
        moment = (now_ms - back) // MINUTE_MS * MINUTE_MS
        if moment > before.settled_ms:
            yield moment
        back //= AGE_FACTOR


def _merged(name: str, before: pa.Table, new: Sequence[pa.Table], since_ms: int) -> pa.Table:
    """The old rows that ended before `since_ms` and the new rows, in table order."""
    old = before.filter(pa.array(ints(before[TIME_COLUMNS[name]]) < since_ms))
    if len(old) or not new:
        return in_order(name, joined(name, [old, *(table.cast(schema_of(name)) for table in new)]))
    return pa.concat_tables(new)
