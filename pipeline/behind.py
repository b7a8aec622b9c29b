"""Third part of a build: what commits and end offsets say, of all groups of one bucket: rates, lag, status, what to tidy up, and the groups.

Rows of minutes that nothing new is about stay as they are. How far back something new reaches depends on what it is: a commit
changes its own minute and what follows, a sample of an end offset everything since the sample before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.bucket import Loaded
from pipeline.columns import MINUTE_MS, MISSING, ints
from pipeline.commits import State
from pipeline.coverage import merged
from pipeline.grace import excused
from pipeline.groups import groups
from pipeline.hygiene import hygiene
from pipeline.lag import lag_by_minute
from pipeline.minutes import commit_rate
from pipeline.rows import Coverage, Episode, Generation, Replaced
from pipeline.schema import in_order, joined, rows_of, table_of
from pipeline.series import LOOKBACK_MS, affected_since
from pipeline.status import begin, stretches
from pipeline.warehouse import File, Warehouse

MINUTES: Final = ("commit_rate_1m", "lag_1m")
BEHIND: Final = (*MINUTES, "status", "hygiene", "groups")
TOLD: Final = ("generations", "members", "notes", "rebalances", "member_spells", "replacements")
BEGINNING: Final = -(1 << 60)


class BehindTask(NamedTuple):
    warehouse: str
    run: int
    bucket: str
    cluster: str
    now_ms: int
    before_ms: int  # now_ms of the build before; -1: everything is made anew
    state: Mapping[str, File]
    files: Mapping[str, tuple[File, ...]]  # of this bucket, and end_offsets of all buckets of the cluster
    records: int


def build_behind(task: BehindTask) -> list[File]:
    warehouse = Warehouse(Path(task.warehouse))
    loaded = Loaded(warehouse, task.files)
    state = State.of({name: warehouse.load(file) for name, file in task.state.items()})
    ends = _of_topics(loaded.table("end_offsets"), state.tails)
    previous = {name: loaded.table(name) for name in (*MINUTES, "status")}
    since = BEGINNING
    if task.before_ms >= 0:
        since = since_ms(
            task.before_ms,
            loaded.table("commits", run=task.run),
            _of_topics(loaded.table("end_offsets", run=task.run), state.tails),
            _of_topics(loaded.table("end_offsets", before=task.run), state.tails),
            loaded.table("events", like="records", run=task.run),
            loaded.table("rebalances"),
        )
    tails = min(since, begin(previous["status"], since)) - LOOKBACK_MS >= state.kept_from_ms
    tables = measured(
        task.cluster,
        state.tails if tails else loaded.table("commits"),
        ends,
        {name: loaded.table(name) for name in TOLD},
        merged(rows_of(Coverage, loaded.table("coverage"))),
        previous,
        since,
        task.now_ms,
    )
    return [warehouse.write(name, task.run, task.bucket, in_order(name, table)) for name, table in tables.items()]


def since_ms(before_ms: int, commits: pa.Table, fresh: pa.Table, known: pa.Table, events: pa.Table, rebalances: pa.Table) -> int:
    """From when on something may be other than the build before saw it; `commits`, `fresh` (end offsets) and `events` are new, `known` end offsets are not."""
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


def _of_topics(ends: pa.Table, commits: pa.Table) -> pa.Table:
    return ends.filter(pc.is_in(ends["topic"], commits["topic"].unique().cast(pa.string())))


def measured(
    cluster: str,
    commits: pa.Table,
    ends: pa.Table,
    told: Mapping[str, pa.Table],
    coverage: Sequence[Coverage],
    before: Mapping[str, pa.Table],
    since_ms: int,
    now_ms: int,
) -> dict[str, pa.Table]:
    """All tables of BEHIND of one bucket; `before`: those of the build before. The sequential oracle calls this with none and everything."""
    minute = since_ms - since_ms % MINUTE_MS
    kept = {name: table.filter(pa.array(ints(table["minute_ms"]) < minute)) for name, table in before.items() if name in MINUTES}
    rates = joined("commit_rate_1m", [kept["commit_rate_1m"], commit_rate(commits, minute)])
    lag = joined("lag_1m", [kept["lag_1m"], lag_by_minute(commits, ends, minute)])
    names = sorted({*commits["group"].unique().to_pylist(), *told["generations"]["group"].unique().to_pylist()})
    status = stretches(
        commits, ends, told["generations"], told["members"], excused(names, told["rebalances"], told["notes"], now_ms), before["status"], since_ms, now_ms
    )
    replacements = rows_of(Replaced, told["replacements"])
    saved: dict[str, int] = {}
    for one in replacements:
        saved[one.group] = saved.get(one.group, 0) + (one.saved_rebalances if one.verdict == "saved" else 0)
    noted = set(told["notes"]["group"].unique().to_pylist())
    of_groups = groups(
        cluster, rows_of(Generation, told["generations"]), rows_of(Episode, told["rebalances"]), saved, noted, rates, lag, status, coverage
    )
    untidy = hygiene(cluster, told["generations"], told["members"], told["replacements"], commits, status, now_ms)
    made = {"hygiene": table_of("hygiene", untidy), "groups": table_of("groups", of_groups)}
    return {"commit_rate_1m": rates, "lag_1m": lag, "status": status, **made}
