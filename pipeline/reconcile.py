"""Checks the tables: every layer has the rows of the previous layer, and recomputing a sample of groups returns the same rows.

The recomputation reads all records of a bucket at once (the build reads them in slices), and needs neither stored state nor Spark. The tests
use it as an oracle.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.bucket import BY_GROUP, COORDINATOR, fold
from pipeline.build import by_bucket, cluster_of
from pipeline.commits import CommitState, digest_commits
from pipeline.coverage import merged
from pipeline.digest import EVENT_KINDS
from pipeline.end_offsets import from_notes
from pipeline.rows import Coverage
from pipeline.schema import in_order, joined, rows_of
from pipeline.warehouse import PublishedState, Warehouse


class Check(NamedTuple):
    what: str
    expected: int
    found: int

    @property
    def holds(self) -> bool:
        return self.expected == self.found


def reconcile(warehouse: Warehouse, sample: int) -> list[Check]:
    current = warehouse.current()
    records = sum(file.rows for file in current.files_of("records"))
    checks = [Check("records of the segments are in bronze", _sum(warehouse, current, "segments", "records"), records)]
    kinds = {"offset": 0, "group": 0, "note": 0, "others": 0}
    for file in current.files_of("records"):
        for kind, count in _kinds(warehouse.load(file)).items():
            kinds[kind if kind in kinds else "others"] += count
    checks.append(Check("offset commits of bronze are in silver", kinds["offset"], sum(file.rows for file in current.files_of("commits"))))
    checks.append(Check("group records of bronze are in silver", kinds["group"], sum(file.rows for file in current.files_of("generations"))))
    checks += recomputed(warehouse, current, sample)
    return checks


def recomputed(warehouse: Warehouse, current: PublishedState, sample: int) -> Iterable[Check]:
    """A check for each table: the rows of the sampled groups, and how many of them are the same when recomputed."""
    totals = dict.fromkeys(BY_GROUP, (0, 0))
    remaining_groups = sample
    for bucket, files in by_bucket(current.files_of("records")).items():
        if remaining_groups <= 0:
            break
        stored = {name: joined(name, [warehouse.load(file) for file in current.files_of(name, bucket)]) for name in BY_GROUP}
        names = sorted({name for table in stored.values() for name in table["group"].unique().to_pylist() if name != COORDINATOR})[:remaining_groups]
        remaining_groups -= len(names)
        coverage = merged(rows_of(Coverage, joined("coverage", [warehouse.load(file) for file in current.files_of("coverage", bucket)])))
        cluster = cluster_of(bucket)
        recomputed_tables = oracle(cluster, joined("records", [warehouse.load(file) for file in files]), coverage, current.now_ms[cluster], set(names))
        for name in BY_GROUP:
            stored_rows = in_order(name, stored[name].filter(pc.is_in(stored[name]["group"], pa.array(names, pa.string()))))
            recomputed_rows = in_order(name, recomputed_tables[name])
            rows = max(len(stored_rows), len(recomputed_rows))
            same = rows if stored_rows.equals(recomputed_rows) else len({repr(row) for row in stored_rows.to_pylist()} & {repr(row) for row in recomputed_rows.to_pylist()})
            totals[name] = (totals[name][0] + rows, totals[name][1] + same)
    count = sample - max(remaining_groups, 0)
    groups = "1 group" if count == 1 else f"{count} groups"
    return [Check(f"{name}: rows of {groups} computed again are the same", rows, same) for name, (rows, same) in totals.items()]


def oracle(cluster: str, records: pa.Table, coverage: list[Coverage], now_ms: int, groups: set[str] | None = None) -> dict[str, pa.Table]:
    """The tables, computed in one step from all records of one bucket, to compare with the incremental build."""
    offsets = records.filter(pc.equal(records["log"], "offsets"))
    stepped = digest_commits(offsets, CommitState.new())
    edges = joined("edges", [stepped.edges, stepped.open_edges])
    _, notes = from_notes(records.filter(pc.and_(pc.equal(records["log"], "notes"), pc.is_in(records["kind"], EVENT_KINDS))))
    events = pa.concat_tables([offsets.filter(pc.is_in(offsets["kind"], EVENT_KINDS)), notes])
    return fold(cluster, events, edges, coverage, now_ms, groups)


def _sum(warehouse: Warehouse, current: PublishedState, table: str, column: str) -> int:
    return sum(pc.sum(warehouse.load(file)[column]).as_py() or 0 for file in current.files_of(table))


def _kinds(records: pa.Table) -> dict[str, int]:
    return {entry["values"]: entry["counts"] for entry in pc.value_counts(records["kind"]).to_pylist()}
