"""`tenure group offsets reset`: plans, shows and commits offsets. Partitions whose leader cannot be reached are named, and the others are set."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from cli.client import Cluster, Exit, Failure, TopicPartition, by_topic, failure
from cli.groups import offsets_change, offsets_file, offsets_plan, offsets_requests
from cli.groups.finding import nonempty_group, stop_first
from cli.groups.offset_formats import Scope, merge_scopes, time_text
from cli.groups.offsets_plan import Bounds, Committed, NotCommitted, OffsetChange, unplanned_document
from cli.groups.offsets_requests import GroupStatus
from cli.groups.partition_problems import failures_of, report, scopes_text
from cli.shown import Column, Painted, Role, Screen, counted, plain
from protocol.errors import ErrorCode

FILE_BYTES_MAX = 64 << 20  # enough for a million partitions


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    group = options.group
    if not (options.topics or options.all_topics or options.from_file):
        raise Failure(Exit.USAGE, "name the partitions: --topic T[:P,...] or --all-topics")
    wanted = None if options.from_file is None else read_file(options.from_file, group)
    with Cluster.of(options) as cluster:
        status = offsets_requests.group_status(cluster, group)
        if status.is_share_group:
            raise Failure(Exit.REFUSED, share_group_text(group))
        if not status.is_empty and not options.dry_run:
            raise Failure(Exit.REFUSED, nonempty_text(group, status))
        planner = Planner(cluster, screen, options, wanted)
        plan = planner.plan()
        if options.export:
            export(options.export, group, plan.changes)
        if not screen.json:
            if planner.since:
                screen.line(f"to the first record since {planner.since}:")
            show(screen, plan)
        if options.dry_run:
            return finish_dry_run(screen, group, status, plan)
        without = f" ({scopes_text(plan.unknown)} cannot be set)" if plan.unknown else ""
        if not screen.confirm(f"Set {counted(len(plan.changes), 'partition')} of group {group}?{without}", options):
            raise Failure(Exit.REFUSED, "nothing was changed")
        problems = offsets_change.commit(cluster, group, plan.changes, lambda error: refusal(group, error))
    return finish(screen, group, status, plan, problems)


# The plan


class Plan(NamedTuple):
    """`unknown`: partitions whose target is unknown, as their log cannot be asked, and why."""

    changes: list[OffsetChange]
    unknown: dict[TopicPartition, Failure]
    committed: Mapping[TopicPartition, Committed]

    def document(self, problems: Mapping[TopicPartition, Failure]) -> list[dict[str, object]]:
        """`problems`: of changes that were not made."""
        rows = {
            tp: change.document() | {"error": problems[tp].document() if tp in problems else None}
            for change in self.changes
            for tp in [(change.topic, change.partition)]
        }
        rows |= {tp: unplanned_document(tp, self.committed.get(tp)) | {"error": problem.document()} for tp, problem in self.unknown.items()}
        return [rows[tp] for tp in sorted(rows)]


class Planner:
    def __init__(self, cluster: Cluster, screen: Screen, options: argparse.Namespace, wanted: dict[TopicPartition, Committed] | None) -> None:
        self.cluster = cluster
        self.screen = screen
        self.options = options
        self.wanted = wanted
        self.group: str = options.group
        self.since: str | None = None  # the target time, if there is one
        self.errors: dict[TopicPartition, int] = {}  # of partitions whose log cannot be asked

    def plan(self) -> Plan:
        committed = offsets_requests.fetch_committed(self.cluster, [self.group])[self.group]
        partitions = self.partitions(committed)
        bounds, self.errors = offsets_requests.bounds(self.cluster, partitions)
        try:
            changes = self.moves(bounds, committed)
        except NotCommitted as error:
            raise Failure(Exit.MISSING, self.nothing_to_shift(error.partitions)) from error
        planned = {(change.topic, change.partition) for change in changes}
        unknown = failures_of({tp: error for tp, error in sorted(self.errors.items()) if tp not in planned})
        if not changes and unknown:
            problem = next(iter(unknown.values()))
            raise problem.with_line(f"{scopes_text(unknown)}: {problem.line}; nothing was changed")
        return Plan(changes, unknown, committed)

    def moves(self, bounds: Mapping[TopicPartition, Bounds], committed: Mapping[TopicPartition, Committed]) -> list[OffsetChange]:
        options = self.options
        if self.wanted is not None:
            return offsets_plan.to_wanted(self.wanted, bounds, committed)
        if options.to_earliest or options.to_latest:
            return offsets_plan.to_bound(options.to_earliest, bounds, committed)
        if options.to_offset is not None:
            return offsets_plan.to_offset(options.to_offset, bounds, committed)
        if options.shift_by is not None:
            return offsets_plan.shifted(options.shift_by, bounds, committed)
        if options.to_current:
            return offsets_plan.to_current([*bounds, *(tp for tp in self.errors if tp in committed)], bounds, committed)
        ms = options.to_datetime
        if ms is None:
            ms = max(0, int(time.time() * 1000) - options.by_duration)
        self.since = time_text(ms)
        first_offsets, errors = offsets_requests.first_since(self.cluster, bounds, ms)
        self.errors |= errors
        return offsets_plan.to_time(first_offsets, self.since, bounds, committed)

    def partitions(self, committed: Mapping[TopicPartition, Committed]) -> set[TopicPartition]:
        """The partitions to reset. Raises Failure if a named one does not exist."""
        if self.options.all_topics and self.wanted is None:
            return self.existing_committed(committed)
        scopes = merge_scopes(self.options.topics)
        if self.wanted is None:
            return offsets_requests.partitions_of(self.cluster, scopes)
        offsets_requests.partitions_of(self.cluster, scopes)
        chosen = {tp for tp in self.wanted if in_scopes(tp, scopes)}
        if not chosen:
            raise Failure(Exit.MISSING, f"{self.options.from_file} has no offsets of {', '.join(map(str, self.options.topics))}")
        in_file: dict[str, set[int]] = {}
        for topic, partition in chosen:
            in_file.setdefault(topic, set()).add(partition)
        return offsets_requests.partitions_of(self.cluster, in_file)

    def existing_committed(self, committed: Mapping[TopicPartition, Committed]) -> set[TopicPartition]:
        if not committed:
            raise Failure(Exit.MISSING, f"group {self.group} has committed no offsets: name topics with --topic")
        missing = offsets_requests.missing_partitions(self.cluster, committed)
        for topic, partitions in by_topic(sorted(missing)).items():
            problem = failure(missing[topic, partitions[0]], f"topic {topic}").line
            self.screen.warn(f"{problem}; the committed offset of {Scope(topic, tuple(partitions))} stays")
        if not committed.keys() - missing.keys():
            raise Failure(Exit.MISSING, f"group {self.group} has committed offsets only for partitions that do not exist any more")
        return set(committed.keys() - missing.keys())

    def nothing_to_shift(self, partitions: list[TopicPartition]) -> str:
        return f"group {self.group} has committed nothing for {scopes_text(partitions)}, so there is no offset to shift (use --to-earliest, --to-latest or --to-offset)"


def in_scopes(tp: TopicPartition, scopes: Mapping[str, Collection[int] | None]) -> bool:
    partitions = scopes.get(tp[0], ())
    return not scopes or partitions is None or tp[1] in partitions


# Files


def read_file(name: str, group: str) -> dict[TopicPartition, Committed]:
    try:
        if name == "-":
            name = "standard input"
            if sys.stdin.isatty():
                print("type offsets as --export writes them; Ctrl-D ends the input", file=sys.stderr)
            data = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise ValueError(f"it is larger than {FILE_BYTES_MAX >> 20} MiB")
        return offsets_file.read(data.decode("utf-8-sig"), group)
    except OSError as error:
        raise Failure(Exit.MISSING, f"{name}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise Failure(Exit.DAMAGED, f"{name}: it is not text in UTF-8") from error
    except ValueError as error:
        raise Failure(Exit.DAMAGED, f"{name}: {plain(str(error))}") from error


def export(name: str, group: str, plan: list[OffsetChange]) -> None:
    import json

    if name.endswith(".json"):
        text = json.dumps({"group": group, "offsets": [move.document() for move in plan]}, indent=2, ensure_ascii=False) + "\n"
    else:
        text = offsets_file.to_csv((move.topic, move.partition, move.after.offset) for move in plan)
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failure(Exit.OUTPUT, f"{name}: {(error.strerror or str(error)).lower()}; nothing was changed") from error


# Output


def nonempty_text(group: str, status: GroupStatus) -> str:
    if not status.members:  # a streams group, whose members are unknown, or a group whose last member leaves
        return f"group {group} is {status.state}: stop its members first"
    return f"group {group} has {counted(status.members, 'member')} ({status.state}): {stop_first(group, status.members)}"


def share_group_text(group: str) -> str:
    return f"group {group} is a share group, which commits no offsets; use kafka-share-groups.sh"


def show(screen: Screen, plan: Plan) -> None:
    remarks = bool(plan.unknown) or any(move.remark for move in plan.changes)
    columns: list[Column | str] = [Column("TOPIC", False), "PARTITION", "FROM", "TO", Column("DIFFERENCE", True), "EARLIEST", "LATEST"]
    rows = {(move.topic, move.partition): cells(move, remarks) for move in plan.changes}
    for tp, problem in plan.unknown.items():
        committed = plan.committed.get(tp)
        rows[tp] = [*tp, committed and committed.offset, None, None, None, None, Painted(f"not set: {problem.line}", Role.CAREFUL)]
    screen.table(columns + [Column("NOTE", False)] * remarks, [rows[tp] for tp in sorted(rows)])


def cells(move: OffsetChange, remarks: bool) -> list[object]:
    difference = None if move.difference is None else f"{move.difference:+d}" if move.difference else "0"
    role = Role.DIM if not move.difference else Role.CAREFUL if move.difference < 0 else Role.GOOD
    bounds = move.bounds or (None, None)
    row: list[object] = [move.topic, move.partition, move.before, move.after.offset, Painted(difference, role), *bounds]
    return row + [Painted(move.remark or "", Role.CAREFUL)] * remarks


def document(group: str, status: GroupStatus, plan: Plan, problems: Mapping[TopicPartition, Failure], *, dry_run: bool) -> dict[str, object]:
    return {"group": group, "dry_run": dry_run, "new_group": not status.exists, "members": status.members, "offsets": plan.document(problems)}


def finish_dry_run(screen: Screen, group: str, status: GroupStatus, plan: Plan) -> int:
    if screen.json:
        screen.document(document(group, status, plan, {}, dry_run=True))
    elif status.is_empty:
        new = "; the group does not exist yet and would be created" if not status.exists else ""
        screen.line(f"dry run: nothing was changed, {counted(len(plan.changes), 'partition')} would be set{new}")
    if not status.is_empty:
        raise Failure(Exit.REFUSED, f"this would be refused: {nonempty_text(group, status)}")
    return report(screen, plan.unknown, "{} would not be set")


def finish(screen: Screen, group: str, status: GroupStatus, plan: Plan, problems: Mapping[TopicPartition, Failure]) -> int:
    if screen.json:
        screen.document(document(group, status, plan, problems, dry_run=False))
    done = [tp for move in plan.changes if (tp := (move.topic, move.partition)) not in problems]
    if not screen.json and done:
        which = f": {scopes_text(done)}" if problems or plan.unknown else ""
        new = "; the group is new" if not status.exists else ""
        screen.line(f"set {counted(len(done), 'partition')} of group {group}{which}{new}")
    return report(screen, {**plan.unknown, **problems}, "{} not set", "{} perhaps set")


def refusal(group: str, error: int) -> Failure:
    if error in offsets_change.HAS_MEMBERS:
        return nonempty_group(f"group {group} has members now", group, 2)
    if error == ErrorCode.GROUP_ID_NOT_FOUND:
        return Failure(Exit.REFUSED, f"group {group} is not a consumer group, and accepts no offsets from administrators")
    return failure(error, f"group {group}")
