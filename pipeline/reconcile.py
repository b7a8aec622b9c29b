"""Checks the tables: every layer has the rows of the previous layer, and recomputing a sample of groups returns the same rows.

The recomputation reads all records of a group at once (the build reads them in slices), and needs neither stored state nor Spark. The tests
use it as an oracle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.blocks import COMMIT_COLUMNS, EVENT_KINDS, in_log_order
from pipeline.commits import CommitState, digest_commits
from pipeline.coverage import by_partition
from pipeline.decode import NOTE
from pipeline.events import Epochs, epochs_of
from pipeline.folding import BY_GROUP, COORDINATOR, fold
from pipeline.rows import Coverage
from pipeline.schema import in_order, joined, rows_of
from pipeline.tables import Published, Tables


class Check(NamedTuple):
    what: str
    expected: int
    found: int

    @property
    def holds(self) -> bool:
        return self.expected == self.found


def reconcile(tables: Tables, sample: int) -> list[Check]:
    published = tables.published()
    segments = tables.read("segments", columns=["records"], published=published)
    commits, others = tables.rows_in(published, "commits"), tables.rows_in(published, "records")
    stored = commits + int(published.content.get("forgotten_commits", 0)) + others + int(published.content.get("end_notes", 0))
    kinds = tables.read("records", columns=["kind"], published=published)
    of_groups = len(kinds.filter(pc.equal(kinds["kind"], "group")))
    checks = [Check("records of the segments are in bronze and silver", pc.sum(segments["records"]).as_py() or 0, stored)]
    checks.append(Check("group records of bronze are in silver", of_groups, tables.rows_in(published, "generations")))
    if not published.content.get("unbuilt"):
        forgotten = "kept_since_ms" in published.content  # days: by other clocks in either layer
        rates = pc.sum(tables.read("commit_rate_1m", columns=["commits"], published=published)["commits"]).as_py() or 0
        tombstones = pc.sum(tables.read("commits", columns=["tombstone"], published=published)["tombstone"]).as_py() or 0
        checks += [] if forgotten else [Check("commits of silver are counted in gold", commits - tombstones, rates)]
        checks += recomputed(tables, published, sample)
    return checks


def recomputed(tables: Tables, published: Published, sample: int) -> Iterable[Check]:
    """A check for each table: the rows of the sampled groups, and how many of them are the same when recomputed."""
    totals = dict.fromkeys(BY_GROUP, (0, 0))
    homes = tables.read("homes", published=published)
    count = 0
    for cluster, now_ms in sorted(published.now_ms.items()):
        of_cluster = homes.filter(pc.equal(homes["cluster"], cluster))
        home_of = dict(zip(of_cluster["group"].to_pylist(), of_cluster["partition"].to_pylist(), strict=True))
        names = sorted(set(home_of) - {COORDINATOR})[: sample - count]
        if not names:
            continue
        count += len(names)

        def rows_of_names(name: str, cluster: str = cluster, names: Sequence[str] = names) -> pa.Table:
            return tables.read(name, only={"cluster": cluster, "group": names}, published=published)

        notes = tables.read("records", only={"cluster": cluster, "kind": NOTE, "group": COORDINATOR}, published=published)
        coverage = by_partition(rows_of(Coverage, tables.read("coverage", only={"cluster": cluster}, published=published)))
        commits = rows_of_names("commits")
        partition = pa.array([home_of[group] for group in commits["group"].to_pylist()], pa.int64())
        commits = pa.table([partition if name == "partition" else commits[name] for name in COMMIT_COLUMNS], names=list(COMMIT_COLUMNS))
        epochs = epochs_of(tables.read("epochs", only={"cluster": cluster}, published=published))
        recomputed_tables = oracle(cluster, commits, joined("records", [rows_of_names("records"), notes]), coverage, now_ms, set(names), epochs)
        for name in BY_GROUP:
            stored_rows, recomputed_rows = rows_of_names(name), in_order(name, recomputed_tables[name])
            rows = max(len(stored_rows), len(recomputed_rows))
            same = rows if stored_rows.equals(recomputed_rows) else len({repr(row) for row in stored_rows.to_pylist()} & {repr(row) for row in recomputed_rows.to_pylist()})
            totals[name] = (totals[name][0] + rows, totals[name][1] + same)
    groups = "1 group" if count == 1 else f"{count} groups"
    return [Check(f"{name}: rows of {groups} computed again are the same", rows, same) for name, (rows, same) in totals.items()]


def oracle(
    cluster: str,
    commits: pa.Table,
    records: pa.Table,
    coverage: Mapping[int, Sequence[Coverage]],
    now_ms: int,
    groups: set[str] | None = None,
    epochs: Epochs | None = None,
) -> dict[str, pa.Table]:
    """The tables, computed in one step from all commits and other records of some groups, to compare with the incremental build."""
    stepped = digest_commits(cluster, in_log_order(commits), in_log_order(records), CommitState.new())
    edges = joined("edges", [stepped.edges, stepped.open_edges])
    events = in_log_order(records.filter(pc.is_in(records["kind"], pa.array(EVENT_KINDS))))
    return fold(cluster, events, edges, coverage, now_ms, groups, epochs)
