"""`tenure group offsets reset`: plans, shows and commits offsets; it commits all of them or none."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from cli.client import Cluster, Exit, Failure, TopicPartition, by_topic, failure
from cli.groups import offsets_change, offsets_file, offsets_plan, offsets_requests
from cli.groups.finding import nonempty_group, stop_first
from cli.groups.offset_formats import Scope, merge_scopes, time_text
from cli.groups.offsets_plan import Bounds, Committed, NotCommitted, OffsetChange
from cli.groups.offsets_requests import GroupStatus
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
            export(options.export, group, plan)
        if not screen.json:
            if planner.since:
                screen.line(f"to the first record since {planner.since}:")
            show(screen, plan)
        if options.dry_run:
            return finish_dry_run(screen, group, status, plan)
        if not screen.confirm(f"Set {counted(len(plan), 'partition')} of group {group}?", options):
            raise Failure(Exit.REFUSED, "nothing was changed")
        errors = offsets_change.commit(cluster, group, plan)
    return finish(screen, group, status, plan, errors)


# The plan


class Planner:
    def __init__(self, cluster: Cluster, screen: Screen, options: argparse.Namespace, wanted: dict[TopicPartition, Committed] | None) -> None:
        self.cluster = cluster
        self.screen = screen
        self.options = options
        self.wanted = wanted
        self.group: str = options.group
        self.since: str | None = None  # the target time, if there is one

    def plan(self) -> list[OffsetChange]:
        committed = offsets_requests.fetch_committed(self.cluster, [self.group])[self.group]
        partitions = self.partitions(committed)
        bounds, errors = offsets_requests.bounds(self.cluster, partitions)
        offsets_requests.raise_first_error(errors)
        try:
            return self.moves(bounds, committed)
        except NotCommitted as error:
            raise Failure(Exit.MISSING, self.nothing_to_shift(error.partitions)) from error

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
            return offsets_plan.to_current(bounds, committed)
        ms = options.to_datetime
        if ms is None:
            ms = max(0, int(time.time() * 1000) - options.by_duration)
        self.since = time_text(ms)
        first_offsets = offsets_requests.first_since(self.cluster, bounds, ms)
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
        partitions_text = ", ".join(str(Scope(topic, tuple(numbers))) for topic, numbers in by_topic(sorted(partitions)).items())
        return f"group {self.group} has committed nothing for {partitions_text}, so there is no offset to shift (use --to-earliest, --to-latest or --to-offset)"


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


def show(screen: Screen, plan: list[OffsetChange]) -> None:
    remarks = any(move.remark for move in plan)
    columns: list[Column | str] = [Column("TOPIC", False), "PARTITION", "FROM", "TO", Column("DIFFERENCE", True), "EARLIEST", "LATEST"]
    screen.table(columns + [Column("NOTE", False)] * remarks, [cells(move, remarks) for move in plan])


def cells(move: OffsetChange, remarks: bool) -> list[object]:
    difference = None if move.difference is None else f"{move.difference:+d}" if move.difference else "0"
    role = Role.DIM if not move.difference else Role.CAREFUL if move.difference < 0 else Role.GOOD
    row: list[object] = [move.topic, move.partition, move.before, move.after.offset, Painted(difference, role), *move.bounds]
    return row + [Painted(move.remark or "", Role.CAREFUL)] * remarks


def document(group: str, status: GroupStatus, plan: list[OffsetChange], *, dry_run: bool, errors: Mapping[TopicPartition, int]) -> dict[str, object]:
    rows = [move.document() | {"error": refusal(group, errors[tp]).document() if (tp := (move.topic, move.partition)) in errors else None} for move in plan]
    return {"group": group, "dry_run": dry_run, "new_group": not status.exists, "members": status.members, "offsets": rows}


def finish_dry_run(screen: Screen, group: str, status: GroupStatus, plan: list[OffsetChange]) -> int:
    if screen.json:
        screen.document(document(group, status, plan, dry_run=True, errors={}))
    elif status.is_empty:
        new = "; the group does not exist yet and would be created" if not status.exists else ""
        screen.line(f"dry run: nothing was changed, {counted(len(plan), 'partition')} would be set{new}")
    if not status.is_empty:
        raise Failure(Exit.REFUSED, f"this would be refused: {nonempty_text(group, status)}")
    return Exit.DONE


def finish(screen: Screen, group: str, status: GroupStatus, plan: list[OffsetChange], errors: Mapping[TopicPartition, int]) -> int:
    if screen.json:
        screen.document(document(group, status, plan, dry_run=False, errors=errors))
    done = [move for move in plan if (move.topic, move.partition) not in errors]
    if not screen.json and done:
        new = "; the group is new" if not status.exists else ""
        screen.line(f"set {counted(len(done), 'partition')} of group {group}{new}")
    return Exit.DONE if not errors else report_errors(screen, errors, lambda error: refusal(group, error), "not set")


def refusal(group: str, error: int) -> Failure:
    if error in offsets_change.HAS_MEMBERS:
        return nonempty_group(f"group {group} has members now", group, 2)
    if error == ErrorCode.GROUP_ID_NOT_FOUND:
        return Failure(Exit.REFUSED, f"group {group} is not a consumer group, and accepts no offsets from administrators")
    return failure(error, f"group {group}")


def report_errors(screen: Screen, errors: Mapping[TopicPartition, int], failure_of: Callable[[int], Failure], action: str) -> int:
    """Report each error code with its partitions. Returns the exit code for the first."""
    kinds: dict[int, list[TopicPartition]] = {}
    for tp, error in sorted(errors.items()):
        kinds.setdefault(error, []).append(tp)
    code = 0
    for error, partitions in kinds.items():
        problem = failure_of(error)
        scopes_text = ", ".join(str(Scope(topic, tuple(numbers))) for topic, numbers in by_topic(sorted(partitions)).items())
        screen.fail(problem, f"{scopes_text} {action}: {problem.line}")
        code = code or problem.exit_code
    return code
