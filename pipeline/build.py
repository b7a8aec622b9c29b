"""A build: silver and gold from the input since the last build. Two passes over the buckets, and one publication.

The first pass digests what is new (`digest.py`). The second makes gold (`bucket.py`, then `behind.py`, in one task for each bucket), for
which the end offsets of all buckets have to be known. A build that dies leaves the tables of the build before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from pipeline.behind import BEHIND, TOLD, BehindTask, build_behind
from pipeline.bucket import BY_GROUP, BucketTask, build_bucket
from pipeline.digest import REPLACED, STATE, Digested, DigestTask, digest
from pipeline.live_ends import with_live_ends
from pipeline.runner import Runner
from pipeline.samples import with_samples
from pipeline.warehouse import Current, File, Warehouse

APPENDED = ("commits", "edges", "events", "end_offsets")
BUILT = (*APPENDED, *REPLACED, *BY_GROUP, *BEHIND)


class GoldTask(NamedTuple):
    """The work on one bucket: fold its groups, then compute commits, lag and status over time. Either part may be empty."""

    fold: BucketTask | None
    behind: BehindTask | None

    @property
    def records(self) -> int:
        return sum(task.records for task in self if task is not None)


def build_gold(task: GoldTask) -> list[File]:
    folded = build_bucket(task.fold) if task.fold is not None else []
    if task.behind is None:
        return folded
    made: dict[str, tuple[File, ...]] = {}
    for file in folded:
        made[file.table] = (*made.get(file.table, ()), file)
    return folded + build_behind(task.behind._replace(files={**task.behind.files, **made}))


def build(warehouse: Warehouse, runner: Runner, *, full: bool = False) -> dict[str, object]:
    """Build all tables; return a summary line. The caller holds the lock."""
    current = warehouse.current()
    if full:
        current = replace(current, files=tuple(file for file in current.files if file.table not in BUILT), built=0, now_ms={})
    new = by_bucket(current.since("records", current.built))
    if not new and not full and current.built == current.run:
        return {"built": "nothing is new"}
    run = current.run + 1
    tails = {file.bucket: file for file in current.of("tails")}
    digested = runner.run("digesting", digest, [_digest_task(warehouse, current, run, bucket, files) for bucket, files in new.items()], _records)
    current = _with_digested(replace(current, run=run), digested)
    current = with_live_ends(warehouse, with_samples(warehouse, current))
    before = current.now_ms
    now = dict(before)
    for one in digested:
        cluster = cluster_of(one.bucket)
        now[cluster] = max(now.get(cluster, -1), one.newest_ms)
    said = {one.bucket: one for one in digested}
    folds = [_bucket_task(warehouse, current, run, bucket, said.get(bucket), before, now) for bucket in by_bucket(current.of("events"))]
    due = {task.bucket: task for task in folds if task.bucket in said or now[task.cluster] != task.before_ms}
    behind = {bucket: _behind_task(warehouse, current, run, bucket, tails.get(bucket), before, now) for bucket in by_bucket(current.of("tails"))}
    tasks = [GoldTask(due.get(bucket), behind.get(bucket)) for bucket in sorted({*due, *behind})]
    for files in runner.run("folding and measuring", build_gold, tasks, lambda task: task.records):
        current = _replaced(current, files)
    warehouse.publish(replace(current, built=run, now_ms=now))
    return {"groups": sum(file.rows for file in current.of("groups")), "rebalances": sum(file.rows for file in current.of("rebalances"))}


def by_bucket(files: Iterable[File]) -> dict[str, list[File]]:
    found: dict[str, list[File]] = defaultdict(list)
    for file in files:
        found[file.bucket].append(file)
    return dict(sorted(found.items()))


def cluster_of(bucket: str) -> str:
    return bucket.rpartition("/")[0]


def _records(task: DigestTask) -> int:
    return sum(file.rows for file in task.records)


def _digest_task(warehouse: Warehouse, current: Current, run: int, bucket: str, records: list[File]) -> DigestTask:
    state = {file.table: file for file in current.files if file.table in STATE and file.bucket == bucket}
    return DigestTask(str(warehouse.folder), run, bucket, tuple(records), state)


def _with_digested(current: Current, digested: list[Digested]) -> Current:
    for one in digested:
        replaced = {file.table for file in one.files if file.table in REPLACED}
        gone = [file for file in current.files if file.bucket == one.bucket and file.table in replaced and file.run < current.run]
        current = replace(current, files=current.replacing(gone, one.files))
    return current


def _replaced(current: Current, files: list[File]) -> Current:
    """Replace files of earlier runs; each table has one file per bucket."""
    named = {(file.table, file.bucket) for file in files}
    gone = [file for file in current.files if (file.table, file.bucket) in named]
    return replace(current, files=current.replacing(gone, files))


def _bucket_task(
    warehouse: Warehouse, current: Current, run: int, bucket: str, said: Digested | None, before: dict[str, int], now: dict[str, int]
) -> BucketTask:
    cluster = cluster_of(bucket)
    names = {"events", "edges", "edges_open", "coverage", *BY_GROUP}
    files = {name: tuple(current.of(name, bucket)) for name in names}
    groups, coordinator = (said.groups, said.coordinator) if said is not None else ([], False)
    return BucketTask(
        str(warehouse.folder),
        run,
        bucket,
        cluster,
        now[cluster],
        before.get(cluster, -1) if files["rebalances"] else -1,
        tuple(groups),
        coordinator,
        files,
        sum(file.rows for file in files["events"]),
    )


def _behind_task(
    warehouse: Warehouse, current: Current, run: int, bucket: str, tails: File | None, before: dict[str, int], now: dict[str, int]
) -> BehindTask:
    cluster = cluster_of(bucket)
    names = {"commits", "coverage", "events", *TOLD, *BEHIND}
    files = {name: tuple(current.of(name, bucket)) for name in names}
    files["end_offsets"] = tuple(file for file in current.of("end_offsets") if cluster_of(file.bucket) == cluster)
    known = before.get(cluster, -1) if files["status"] else -1
    return BehindTask(str(warehouse.folder), run, bucket, cluster, now[cluster], known, tails, files, sum(file.rows for file in files["commits"]))
