"""Third part of a build: commit rates, lag, status, hygiene and the `groups` table for all groups of one bucket.

Rows of minutes without new input stay as they are. Settled rows are not even read, only their sum (`standing.py`).
How far back new input reaches depends on its kind: a commit changes its own minute and later ones, a sample of an end offset
everything since the sample before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.bucket import Loaded, coded
from pipeline.columns import MINUTE_MS, MISSING, ints
from pipeline.commits import KEPT_MS, State
from pipeline.coverage import merged
from pipeline.grace import excused
from pipeline.groups import groups
from pipeline.hygiene import hygiene
from pipeline.lag import lag_by_minute
from pipeline.minutes import commit_rate
from pipeline.rows import Coverage, Episode, Generation, Replaced
from pipeline.schema import in_order, joined, rows_of, schema_of, table_of
from pipeline.series import LOOKBACK_MS, Samples, Series, affected_since, connect, views_of
from pipeline.standing import STANDING, standing_of
from pipeline.status import QUIET_BACK_MS, begin, stretches
from pipeline.warehouse import File, Warehouse

CLOCKS: Final = {"commit_rate_1m": "minute_ms", "lag_1m": "minute_ms", "status": "to_ms"}  # time series tables, with the column for the end of a row
STATE: Final = "standing"
BEHIND: Final = (*CLOCKS, STATE, "hygiene", "groups")
TOLD: Final = ("generations", "members", "notes", "rebalances", "member_spells", "replacements")
BEGINNING: Final = -(1 << 60)
APART: Final = 4  # factor between the ages of consecutive settling times


class BehindTask(NamedTuple):
    warehouse: str
    run: int
    bucket: str
    cluster: str
    now_ms: int
    before_ms: int  # now_ms of the previous build; -1: rebuild everything
    tails: File | None  # from the previous build
    files: Mapping[str, tuple[File, ...]]  # of this bucket, and end_offsets of all buckets of the cluster
    records: int


class Before(NamedTuple):
    """The output of the previous build, as far as it is needed."""

    rows: Mapping[str, pa.Table]  # of CLOCKS, from `settled_ms` on
    standing: pa.Table  # all rows before that
    settled_ms: int
    files: tuple[File, ...]  # the files of those rows, which are kept


class Settled(NamedTuple):
    """Rows that only late input can change; then all rows since an earlier settling time are computed again."""

    until_ms: int
    rows: Mapping[str, pa.Table]  # of CLOCKS, since the previous one
    standing: pa.Table  # all rows before `until_ms`


class Made(NamedTuple):
    settled: Sequence[Settled]
    recent: Mapping[str, pa.Table]  # of CLOCKS, from then on
    groups: Mapping[str, pa.Table]  # hygiene and groups, in any order


NOTHING: Final = Before({name: schema_of(name).empty_table() for name in CLOCKS}, STANDING.empty_table(), BEGINNING, ())


def build_behind(task: BehindTask) -> list[File]:
    """The new list of files of these tables in the bucket."""
    warehouse = Warehouse(Path(task.warehouse))
    loaded = Loaded(warehouse, task.files)
    fresh = loaded.coded("commits", task.run)
    tails = State.of_tails(warehouse.load(task.tails)) if task.tails is not None else None
    topics = {*fresh["topic"].unique().to_pylist(), *(tails.tails["topic"].unique().to_pylist() if tails is not None else ())}
    fresh_ends, known_ends = loaded.of_topics("end_offsets", topics, task.run)
    since = BEGINNING
    if task.before_ms >= 0:
        since = since_ms(
            task.before_ms,
            fresh,
            fresh_ends,
            known_ends,
            loaded.table("events", like="records", run=task.run),
            loaded.table("rebalances"),
        )
    before = _before(warehouse, loaded, since) if task.before_ms >= 0 else NOTHING
    since = begin(before.rows["status"], since)
    enough = tails is not None and since - LOOKBACK_MS >= tails.kept_from_ms
    commits = pa.concat_tables([coded(tails.tails), fresh]) if tails is not None and enough else loaded.coded("commits")
    made = measured(
        task.cluster,
        *connect(commits, pa.concat_tables([known_ends, fresh_ends])),
        {name: loaded.table(name) for name in TOLD},
        merged(rows_of(Coverage, loaded.table("coverage"))),
        before,
        since,
        task.now_ms,
    )
    return [*before.files, *_written(warehouse, task, made)]


def _before(warehouse: Warehouse, loaded: Loaded, since_ms: int) -> Before:
    """Load the newest rows only, unless new input reaches farther back."""
    standings = loaded.settled(STATE, since_ms - since_ms % MINUTE_MS)
    newest = max(standings, key=lambda file: file.until_ms or BEGINNING, default=None)
    settled_ms = BEGINNING if newest is None or newest.until_ms is None else newest.until_ms
    files = tuple(file for name in (*CLOCKS, STATE) for file in loaded.settled(name, settled_ms))
    standing = warehouse.load(newest) if newest is not None else STANDING.empty_table()
    return Before({name: loaded.since(name, settled_ms) for name in CLOCKS}, standing, settled_ms, files)


def _written(warehouse: Warehouse, task: BehindTask, made: Made) -> list[File]:
    """Write the tables. Rows that may still change go to separate files, which the next build replaces."""
    files = []
    for settled in made.settled:
        files += [warehouse.write(name, task.run, task.bucket, table, settled.until_ms) for name, table in settled.rows.items() if len(table)]
        files.append(warehouse.write(STATE, task.run, task.bucket, settled.standing, settled.until_ms))
    files += [warehouse.write(name, task.run, task.bucket, table) for name, table in made.recent.items()]
    return files + [warehouse.write(name, task.run, task.bucket, in_order(name, table)) for name, table in made.groups.items()]


def since_ms(before_ms: int, commits: pa.Table, fresh: pa.Table, known: pa.Table, events: pa.Table, rebalances: pa.Table) -> int:
    """The earliest time whose rows may change; `commits`, `fresh` (end offsets) and `events` are new, `known` end offsets are not."""
    moments = [before_ms]
    affected = affected_since(commits, fresh, known)
    if affected is not None:
        moments.append(affected)
    if len(events):
        moments.append(int(ints(events["append_ms"]).min()))
    since = min(moments)
    # A rebalance excuses silence from its beginning on.
    starts, until = ints(rebalances["start_lo_ms"]), ints(rebalances["end_ms"])
    touched = starts[(starts != MISSING) & ((until == MISSING) | (until >= since))]
    return min(since, int(touched.min())) if len(touched) else since


def measured(
    cluster: str,
    series: Series,
    samples: Samples,
    tables: Mapping[str, pa.Table],
    coverage: Sequence[Coverage],
    before: Before,
    since_ms: int,
    now_ms: int,
) -> Made:
    """Compute the tables of one bucket."""
    names = sorted({*series.names.groups.to_pylist(), *tables["generations"]["group"].unique().to_pylist()})
    status = before.rows["status"]
    reaching = status.filter(pa.array((ints(status["to_ms"]) >= since_ms) & (ints(status["from_ms"]) < since_ms)))
    pardoned = excused(names, tables["rebalances"], tables["notes"], now_ms)
    new: dict[str, list[pa.Table]] = {name: [] for name in CLOCKS}
    for view in views_of(series, samples, since_ms - QUIET_BACK_MS):
        new["commit_rate_1m"].append(commit_rate(view.series, since_ms))
        new["lag_1m"].append(lag_by_minute(view, since_ms))
        new["status"].append(stretches(view, tables["generations"], tables["members"], pardoned, reaching, since_ms, now_ms))
    recent = {name: _behind(name, before.rows[name], [table for table in new.pop(name) if len(table)], since_ms) for name in CLOCKS}
    settled = []
    standing = before.standing
    for until_ms in _settling(before, recent, now_ms):
        begun = {name: pa.array(ints(table[CLOCKS[name]]) < until_ms) for name, table in recent.items()}
        rows = {name: table.filter(begun[name]) for name, table in recent.items()}
        recent = {name: table.filter(pc.invert(begun[name])) for name, table in recent.items()}
        standing = standing_of(standing, rows)
        settled.append(Settled(until_ms, rows, standing))
    standing = standing_of(standing, recent)
    replacements = rows_of(Replaced, tables["replacements"])
    saved: dict[str, int] = {}
    for replacement in replacements:
        saved[replacement.group] = saved.get(replacement.group, 0) + (replacement.saved_rebalances if replacement.verdict == "saved" else 0)
    noted = set(tables["notes"]["group"].unique().to_pylist())
    of_groups = groups(cluster, rows_of(Generation, tables["generations"]), rows_of(Episode, tables["rebalances"]), saved, noted, standing, coverage)
    untidy = hygiene(cluster, tables["generations"], tables["members"], tables["replacements"], series, standing, now_ms)
    return Made(settled, recent, {"hygiene": table_of("hygiene", untidy), "groups": table_of("groups", of_groups)})


def _settling(before: Before, rows: Mapping[str, pa.Table], now_ms: int) -> Iterator[int]:
    """Times up to which rows settle: for many rows, farther apart the older they are."""
    first = min((int(ints(table[CLOCKS[name]]).min()) for name, table in rows.items() if len(table)), default=now_ms)
    back = KEPT_MS
    while now_ms - back * APART > max(before.settled_ms, first):
        back *= APART
    while back >= KEPT_MS:
        moment = (now_ms - back) // MINUTE_MS * MINUTE_MS
        if moment > before.settled_ms:
            yield moment
        back //= APART


def _behind(name: str, before: pa.Table, new: Sequence[pa.Table], since_ms: int) -> pa.Table:
    """Rows that ended before the new input begins, followed by the new rows, in table order."""
    kept = before.filter(pa.array(ints(before[CLOCKS[name]]) < since_ms))
    if len(kept) or not new:
        return in_order(name, joined(name, [kept, *(table.cast(schema_of(name)) for table in new)]))
    return pa.concat_tables(new)
