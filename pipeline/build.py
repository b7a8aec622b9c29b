"""Builds silver and gold tables from the records ingested since the last build, in two passes over the buckets (log partitions).

The first pass decodes new records (`digest.py`). The second computes each bucket's tables in one task (`bucket.py`, then `measurements.py`); it
follows the first, because it needs the end offsets of all buckets. An interrupted build leaves the tables of the previous build.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from pipeline.bucket import BY_GROUP, FoldTask, build_bucket
from pipeline.digest import REPLACED, STATE, Digested, DigestTask, digest_records
from pipeline.live_ends import with_live_ends
from pipeline.measurements import FOLDED_TABLES, MEASURED, MeasureTask, measure_bucket
from pipeline.retention import retention_by_cluster
from pipeline.rows import NewerGroup
from pipeline.runner import Runner
from pipeline.samples import with_samples
from pipeline.schema import joined, rows_of
from pipeline.warehouse import File, PublishedState, Warehouse

APPENDED = ("commits", "edges", "events", "end_offsets")
LATE = "late"  # buckets with new records that precede records of earlier runs: those of transactions that have ended since
BUILT = (*APPENDED, *REPLACED, *BY_GROUP, *MEASURED)


class GoldTask(NamedTuple):
    """The work on one bucket: fold its groups, then compute commit rates, lag and status. Either part may be None."""

    fold: FoldTask | None
    measure: MeasureTask | None

    @property
    def records(self) -> int:
        return sum(task.records for task in self if task is not None)


def build_gold(task: GoldTask) -> list[File]:
    folded = build_bucket(task.fold) if task.fold is not None else []
    if task.measure is None:
        return folded
    files_by_table: dict[str, tuple[File, ...]] = {}
    for file in folded:
        files_by_table[file.table] = (*files_by_table.get(file.table, ()), file)
    return folded + measure_bucket(task.measure._replace(files={**task.measure.files, **files_by_table}))


def build(warehouse: Warehouse, runner: Runner, *, full: bool = False) -> dict[str, object]:
    """Build all tables; return a summary. The caller holds the lock."""
    current = warehouse.current()
    late = set(current.build.get(LATE, ()))
    current = replace(current, build={name: left for name, left in current.build.items() if name != LATE})
    if full:
        current = replace(current, files=tuple(file for file in current.files if file.table not in BUILT), built=0, now_ms={})
    current = replace(current, files=tuple(file for file in current.files if file.table not in BUILT or file.bucket not in late))
    new = by_bucket(file for file in current.files_of("records") if file.run > current.built or file.bucket in late)
    if not new and not full and current.built == current.run:
        return {"built": "no new records"}
    run = current.run + 1
    tails = {file.bucket: file for file in current.files_of("tails")}
    digest_tasks = [_digest_task(warehouse, current, run, bucket, files) for bucket, files in new.items()]
    digested = runner.run("digesting", digest_records, digest_tasks, _records)
    current = _with_digested(replace(current, run=run), digested)
    current = with_live_ends(warehouse, with_samples(warehouse, current))
    before = current.now_ms
    now = dict(before)
    for digested_bucket in digested:
        cluster = cluster_of(digested_bucket.bucket)
        now[cluster] = max(now.get(cluster, -1), digested_bucket.newest_ms)
    digested_by_bucket = {digested_bucket.bucket: digested_bucket for digested_bucket in digested}
    folds = [_bucket_task(warehouse, current, run, bucket, digested_by_bucket.get(bucket), before, now) for bucket in by_bucket(current.files_of("events"))]
    fold_tasks = {task.bucket: task for task in folds if task.bucket in digested_by_bucket or now[task.cluster] != task.before_ms}
    measure_tasks = {bucket: _measure_task(warehouse, current, run, bucket, tails.get(bucket), before, now) for bucket in by_bucket(current.files_of("tails"))}
    tasks = [GoldTask(fold_tasks.get(bucket), measure_tasks.get(bucket)) for bucket in sorted({*fold_tasks, *measure_tasks})]
    for files in runner.run("folding and measuring", build_gold, tasks, lambda task: task.records):
        current = _replaced(current, files)
    warehouse.publish(replace(current, built=run, now_ms=now))
    summary: dict[str, object] = {table: sum(file.rows for file in current.files_of(table)) for table in ("groups", "rebalances")}
    newer = rows_of(NewerGroup, joined("newer_groups", [warehouse.load(file) for file in current.files_of("newer_groups")]))
    return summary | {f"{kind}_{noun}_not_understood": count for kind, counts in not_understood(newer).items() for noun, count in counts.items()}


def not_understood(newer: Sequence[NewerGroup]) -> dict[str, dict[str, int]]:
    """The number of groups, and of their records, in each newer protocol."""
    of_kind: dict[str, list[NewerGroup]] = defaultdict(list)
    for row in newer:
        of_kind[row.kind].append(row)
    return {kind: {"groups": len(rows), "records": sum(row.records for row in rows)} for kind, rows in sorted(of_kind.items())}


def by_bucket(files: Iterable[File]) -> dict[str, list[File]]:
    files_by_bucket: dict[str, list[File]] = defaultdict(list)
    for file in files:
        files_by_bucket[file.bucket].append(file)
    return dict(sorted(files_by_bucket.items()))


def cluster_of(bucket: str) -> str:
    return bucket.rpartition("/")[0]


def _records(task: DigestTask) -> int:
    return sum(file.rows for file in task.records)


def _digest_task(warehouse: Warehouse, current: PublishedState, run: int, bucket: str, records: list[File]) -> DigestTask:
    state = {file.table: file for file in current.files if file.table in STATE and file.bucket == bucket}
    return DigestTask(str(warehouse.folder), run, bucket, tuple(records), state)


def _with_digested(current: PublishedState, digested: list[Digested]) -> PublishedState:
    for digested_bucket in digested:
        replaced = {file.table for file in digested_bucket.files if file.table in REPLACED}
        outdated = [file for file in current.files if file.bucket == digested_bucket.bucket and file.table in replaced and file.run < current.run]
        current = replace(current, files=current.replacing(outdated, digested_bucket.files))
    return current


def _replaced(current: PublishedState, files: list[File]) -> PublishedState:
    """Put these files in the place of all others of the same tables and buckets."""
    keys = {(file.table, file.bucket) for file in files}
    outdated = [file for file in current.files if (file.table, file.bucket) in keys]
    return replace(current, files=current.replacing(outdated, files))


def _bucket_task(
    warehouse: Warehouse,
    current: PublishedState,
    run: int,
    bucket: str,
    digested: Digested | None,
    before: dict[str, int],
    now: dict[str, int],
) -> FoldTask:
    cluster = cluster_of(bucket)
    names = {"events", "edges", "edges_open", "coverage", *BY_GROUP}
    files = {name: tuple(current.files_of(name, bucket)) for name in names}
    groups, all_groups_changed = (digested.groups, digested.all_groups_changed) if digested is not None else ([], False)
    return FoldTask(
        str(warehouse.folder),
        run,
        bucket,
        cluster,
        now[cluster],
        before.get(cluster, -1) if files["rebalances"] else -1,
        tuple(groups),
        all_groups_changed,
        files,
        sum(file.rows for file in files["events"]),
    )


def _measure_task(
    warehouse: Warehouse, current: PublishedState, run: int, bucket: str, tails: File | None, before: dict[str, int], now: dict[str, int]
) -> MeasureTask:
    cluster = cluster_of(bucket)
    names = {"commits", "coverage", "events", *FOLDED_TABLES, *MEASURED}
    files = {name: tuple(current.files_of(name, bucket)) for name in names}
    files["end_offsets"] = tuple(file for file in current.files_of("end_offsets") if cluster_of(file.bucket) == cluster)
    known = before.get(cluster, -1) if files["status"] else -1
    retention_ms = retention_by_cluster(current).get(cluster)
    return MeasureTask(str(warehouse.folder), run, bucket, cluster, now[cluster], known, tails, files, sum(file.rows for file in files["commits"]), retention_ms)
