"""`tenure group offsets show`: committed offsets, with start and end of the logs."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from typing import NamedTuple

from cli.client import Cluster, Failure, TopicPartition
from cli.groups import offsets_requests, offsets_reset
from cli.groups.finding import unknown_group, unknown_group_failure
from cli.groups.lag import TotalLag, chosen_rows, report_unknown, total_lag
from cli.groups.left_out import left_out
from cli.groups.offset_formats import merge_scopes
from cli.groups.offsets_plan import Bounds, Committed
from cli.groups.partition_problems import reason
from cli.groups.selecting import nothing_selected, selected_groups
from cli.shown import Column, Role, Screen
from cli.watching import watched


class Row(NamedTuple):
    group: str
    topic: str
    partition: int
    committed: Committed | None
    bounds: Bounds | None
    remark: str | None

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.bounds is None else self.bounds.latest - self.committed.offset

    def document(self) -> dict[str, object]:
        """The JSON object, which `offsets reset --from-file` can read."""
        committed = self.committed
        return {
            "topic": self.topic,
            "partition": self.partition,
            "committed_offset": None if committed is None else committed.offset,
            "leader_epoch": None if committed is None or committed.leader_epoch < 0 else committed.leader_epoch,
            "metadata": None if committed is None else committed.metadata,
            "earliest_offset": None if self.bounds is None else self.bounds.earliest,
            "latest_offset": None if self.bounds is None else self.bounds.latest,
            "lag": self.lag,
            "note": self.remark,
        }


def run(options: argparse.Namespace) -> int:
    return watched(options, lambda screen: show_groups(options, screen))


def show_groups(options: argparse.Namespace, screen: Screen) -> int:
    with Cluster.of(options) as cluster:
        names, troubles = selected_groups(cluster, options)
        problems: dict[str, Failure] = {}
        rows, errors = rows_of(cluster, names, merge_scopes(options.topics), problems)
        if problems and len(problems) == len(names):
            raise problems[names[0]]
        groups = [group for group in names if group not in problems]
        statuses = {group: offsets_requests.group_status(cluster, group) for group in groups if not rows[group]}
        missing = [group for group, status in statuses.items() if not status.exists]
        problem = unknown_group(cluster, missing[0]) if len(missing) == len(names) == 1 else None
    existing = [group for group in groups if group not in missing]
    totals = {group: total_lag(rows[group], errors) for group in existing}
    counts = {group: len(rows[group]) for group in existing}
    rows = {group: chosen_rows(options, rows[group]) for group in existing}
    if options.lag_over is not None:
        rows = {group: of_group for group, of_group in rows.items() if of_group}
    if screen.json:
        screen.document({"groups": [document(group, of_group, totals[group]) for group, of_group in rows.items()]})
    elif rows:
        show(screen, rows, totals, counts, sort_all=options.sort == "lag")
    elif not problems and not missing:
        screen.line(nothing_selected(options) if options.lag_over is None else f"no partition has a lag of more than {options.lag_over}")
    if problem is not None:
        raise problem
    for group in [group for group, status in statuses.items() if status.is_share_group]:
        screen.warn(offsets_reset.share_group_text(group))
    failures = [*troubles, *left_out(problems), *map(unknown_group_failure, missing)]
    return max([report_unknown(screen, errors), *map(screen.fail, failures)])


def rows_of(
    cluster: Cluster, groups: list[str], scopes: Mapping[str, Collection[int] | None], problems: dict[str, Failure]
) -> tuple[dict[str, list[Row]], dict[TopicPartition, int]]:
    """The rows of each group, and the error codes of partitions whose log end is unknown. A group that cannot be read is added to `problems`."""
    committed = offsets_requests.fetch_committed(cluster, groups, problems)
    requested = offsets_requests.partitions_of(cluster, scopes)
    # A group without committed offsets gets no rows: it may not exist.
    partitions_of_group = {group: (requested if scopes else set(committed[group])) if committed[group] else set() for group in groups}
    every: set[TopicPartition] = set().union(*partitions_of_group.values())
    missing = offsets_requests.missing_partitions(cluster, every)
    bounds, errors = offsets_requests.bounds(cluster, every - missing.keys())
    errors |= missing
    rows = {
        group: [row(group, tp, committed[group].get(tp), bounds.get(tp), errors.get(tp)) for tp in sorted(partitions_of_group[group])] for group in groups
    }
    return rows, errors


def row(group: str, tp: TopicPartition, committed: Committed | None, bounds: Bounds | None, error: int | None) -> Row:
    remark = None
    if error:
        remark = reason(error)
    elif committed and bounds and committed.offset > bounds.latest:
        remark = "after the end of the log: was the topic created again?"
    elif committed and bounds and committed.offset < bounds.earliest:
        remark = "before the start of the log: records were deleted"
    return Row(group, *tp, committed, bounds, remark)


def document(group: str, rows: list[Row], lag: TotalLag) -> dict[str, object]:
    return {"group": group, **lag.document(), "offsets": [row.document() for row in rows]}


def show(screen: Screen, rows_of_group: Mapping[str, list[Row]], totals: Mapping[str, TotalLag], counts: Mapping[str, int], *, sort_all: bool) -> None:
    """`totals`, `counts`: the lag and the number of all partitions of each group, also of those that are not shown."""
    rows = [row for of_group in rows_of_group.values() for row in of_group]
    if sort_all:  # by lag, whatever the group
        rows.sort(key=lambda row: (row.lag is None, -(row.lag or 0)))
    if rows:
        epochs = any(row.committed and row.committed.leader_epoch >= 0 for row in rows)
        metadata = any(row.committed and row.committed.metadata for row in rows)
        remarks = any(row.remark for row in rows)
        columns: list[Column | str] = [Column("GROUP", False), Column("TOPIC", False), "PARTITION", "COMMITTED", "EARLIEST", "LATEST", Column("LAG", True)]
        columns += ["EPOCH"] * epochs + [Column("METADATA", False)] * metadata + [Column("NOTE", False, Role.CAREFUL)] * remarks
        screen.table(columns, [cells(row, epochs, metadata, remarks) for row in rows])
    for group, of_group in rows_of_group.items():
        if not of_group:
            screen.line(f"{screen.name(group)} has committed no offsets")
        elif counts[group] > 1:
            screen.line(f"{screen.name(group)}: lag {totals[group].text} in {counts[group]} partitions")


def cells(row: Row, epochs: bool, metadata: bool, remarks: bool) -> list[object]:
    committed, bounds = row.committed, row.bounds
    row_cells: list[object] = [row.group, row.topic, row.partition, committed and committed.offset, bounds and bounds.earliest, bounds and bounds.latest, row.lag]
    row_cells += [committed.leader_epoch if committed and committed.leader_epoch >= 0 else None] * epochs
    return [*row_cells, *[committed and (committed.metadata or None)] * metadata, *[row.remark or ""] * remarks]
