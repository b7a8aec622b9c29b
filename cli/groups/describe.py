"""`tenure group describe`: the state of a group, its assignment, and the lag of each partition."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from cli.client import Cluster, Failure, TopicPartition
from cli.groups import offsets_requests, reconciling
from cli.groups.described import describe, partitions_document
from cli.groups.finding import unknown_group, unknown_group_failure
from cli.groups.lag import TotalLag, chosen_rows, report_unknown, total_lag
from cli.groups.left_out import left_out
from cli.groups.listing import state_role
from cli.groups.partition_problems import reason
from cli.groups.policies import statuses_of
from cli.groups.policy_status import show_status, status_document
from cli.groups.selecting import nothing_selected, selected_groups
from cli.shown import Column, Painted, Role, Screen, counted, plain
from cli.watching import watched
from history.moves import list_partitions

if TYPE_CHECKING:
    from cli.groups.described import Group, GroupMember
    from cli.groups.offsets_plan import Bounds, Committed


class Row(NamedTuple):
    """One partition. A field is None if there is no committed offset, the log end is unknown, or there is no owner."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    owner: GroupMember | None
    remark: str | None

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else self.end - self.committed

    def document(self) -> dict[str, object]:
        owner = self.owner
        return {
            "topic": self.topic,
            "partition": self.partition,
            "committed_offset": self.committed,
            "end_offset": self.end,
            "lag": self.lag,
            "member_id": owner and owner.member_id,
            "instance_id": owner and owner.instance_id,
            "client_id": owner and owner.client_id,
            "host": owner and owner.host,
            "note": self.remark,
        }


def run(options: argparse.Namespace) -> int:
    return watched(options, lambda screen: show_groups(options, screen))


def show_groups(options: argparse.Namespace, screen: Screen) -> int:
    with Cluster.of(options) as cluster:
        names, troubles = selected_groups(cluster, options)
        problems: dict[str, Failure] = {}
        descriptions = describe(cluster, names, problems)
        missing = [name for name in names if descriptions[name] is None and name not in problems]
        if len(missing) == len(names) == 1:
            raise unknown_group(cluster, missing[0])
        groups = [group for group in descriptions.values() if group is not None]
        rows, errors = rows_of(cluster, groups, problems)
        if problems and len(problems) == len(names):
            raise problems[names[0]]
        groups = [group for group in groups if group.id not in problems]
        statuses = statuses_of(cluster, groups)
        brokers = {id: f"{broker.host}:{broker.port}" for id, broker in cluster.brokers.items()}
    totals = {group.id: total_lag(rows[group.id], errors) for group in groups}
    rows = {group.id: chosen_rows(options, rows[group.id]) for group in groups}
    if options.lag_over is not None:
        groups = [group for group in groups if rows[group.id]]
    if screen.json:
        screen.document({"groups": [document(group, rows[group.id], totals[group.id], statuses[group.id]) for group in groups]})
    elif not groups and not problems and not missing:
        screen.line(nothing_selected(options) if options.lag_over is None else f"no partition has a lag of more than {options.lag_over}")
    else:
        for number, group in enumerate(groups):
            if number:
                screen.line()
            show(screen, group, rows[group.id], totals[group.id], brokers)
            show_status(screen, statuses[group.id])
    failures = [*troubles, *left_out(problems), *map(unknown_group_failure, missing)]
    return max([report_unknown(screen, errors), *map(screen.fail, failures)])


def rows_of(cluster: Cluster, groups: list[Group], problems: dict[str, Failure]) -> tuple[dict[str, list[Row]], dict[TopicPartition, int]]:
    """The rows of each group, and the error codes of partitions whose log end is unknown.

    The offsets of all groups are requested together, and so are the ends of all logs. A group whose offsets cannot be fetched is added to `problems`.
    """
    committing = [group for group in groups if group.commits_offsets]
    committed = offsets_requests.fetch_committed(cluster, [group.id for group in committing], problems)
    committing = [group for group in committing if group.id not in problems]
    partitions_of_group = {group.id: committed[group.id].keys() | group.owners.keys() for group in committing}
    every: set[TopicPartition] = set().union(*partitions_of_group.values())
    missing = offsets_requests.missing_partitions(cluster, every)
    bounds, errors = offsets_requests.bounds(cluster, every - missing.keys())
    errors |= missing
    rows: dict[str, list[Row]] = {group.id: [] for group in groups}
    for group in committing:
        owners = group.owners
        rows[group.id] = [row(tp, committed[group.id], bounds, errors, owners) for tp in sorted(partitions_of_group[group.id])]
    return rows, errors


def row(
    tp: TopicPartition,
    committed: Mapping[TopicPartition, Committed],
    bounds: Mapping[TopicPartition, Bounds],
    errors: Mapping[TopicPartition, int],
    owners: Mapping[TopicPartition, GroupMember],
) -> Row:
    remark = reason(errors[tp]) if tp in errors else None
    offset, ends = committed.get(tp), bounds.get(tp)
    return Row(*tp, offset.offset if offset else None, ends.latest if ends else None, owners.get(tp), remark)


def document(group: Group, rows: list[Row], lag: TotalLag, status: Mapping[str, str]) -> dict[str, object]:
    return {
        "group": group.id,
        "state": group.state,
        "type": group.type,
        "protocol_type": group.protocol_type or None,
        "protocol": group.protocol or None,
        "coordinator": group.coordinator,
        "epoch": group.epoch,
        **reconciling.document(group),
        "members": len(group.members) if group.readable else None,
        "static_members": group.static_count if group.readable else None,
        "idle_members": [{"member_id": member.member_id, "instance_id": member.instance_id} for member in idle_members(group)],
        "unread": partitions_document((row.topic, row.partition) for row in unread_rows(group, rows)),
        **lag.document(),
        "policy_status": status_document(status),
        "partitions": [row.document() for row in rows],
    }


def idle_members(group: Group) -> list[GroupMember]:
    return [member for member in group.members if member.assigned == ()]


def unread_rows(group: Group, rows: list[Row]) -> list[Row]:
    """Partitions with lag and without an owner. None during a rebalance, as then no member has partitions; none if the members are unreadable."""
    if group.occupied and not group.readable:
        return []
    return [row for row in rows if row.owner is None and row.lag] if group.state in ("Stable", "Empty") else []


# Tables


def show(screen: Screen, group: Group, rows: list[Row], lag: TotalLag, brokers: Mapping[int, str]) -> None:
    coordinator = f"{group.coordinator} ({brokers[group.coordinator]})" if group.coordinator in brokers else str(group.coordinator)
    facts = [f"type {group.type}"]
    if group.protocol_type not in ("", "consumer"):
        facts.append(f"protocol type {group.protocol_type}")
    if group.protocol:
        facts.append(f"protocol {group.protocol}")
    if group.epoch is not None:
        facts.append(f"epoch {group.epoch}")
    if group.target_epoch is not None:
        facts.append(f"target epoch {group.target_epoch}")
    state = screen.paint(plain(group.state), state_role(group.state))
    screen.line(f"{screen.paint(screen.name(group.id), Role.STRONG)}: {state}, {plain(', '.join(facts))}, coordinator {plain(coordinator)}")
    if not group.commits_offsets:
        screen.line(f"this command cannot show a {group.type} group, only groups of type classic and consumer")
        return
    summary = members_text(group) if group.readable or not group.occupied else f"this command cannot show the members of a {group.type} group"
    screen.line(f"{summary}; {progress_text(rows, lag)}")
    if rows:
        screen.line()
        show_partitions(screen, group, rows)
    reconciling.show(screen, group)
    if idle_members(group) and group.state == "Stable":
        names = ", ".join(member.shown_name for member in idle_members(group))
        screen.line(screen.paint(plain(f"without a partition: {names}"), Role.CAREFUL))
    unread = unread_rows(group, rows)
    if unread and group.members:
        screen.line(screen.paint(plain(f"without a reader: {list_partitions((row.topic, row.partition) for row in unread)}"), Role.CAREFUL))


def members_text(group: Group) -> str:
    count = len(group.members)
    if not count:
        return "no members"
    noun = counted(count, "member")
    if group.static_count in (0, count):
        return f"{noun} ({'static' if group.static_count else 'dynamic'})"
    return f"{noun} ({group.static_count} static, {count - group.static_count} dynamic)"


def progress_text(rows: list[Row], lag: TotalLag) -> str:
    return f"{counted(len(rows), 'partition')}, lag {lag.text}" if rows else "nothing committed"


def show_partitions(screen: Screen, group: Group, rows: list[Row]) -> None:
    static = any(row.owner is not None and row.owner.instance_id is not None for row in rows)
    remarks = any(row.remark for row in rows)
    columns: list[Column | str] = [Column("TOPIC", False), "PARTITION", "COMMITTED", "END", "LAG"]
    if group.members:
        columns += [Column("INSTANCE", False)] * static
        columns += [Column("MEMBER", False), Column("CLIENT", False), Column("HOST", False)]
    columns += [Column("NOTE", False, Role.CAREFUL)] * remarks
    lines = []
    for row in rows:
        lag = Painted(row.lag, None if row.lag is None or row.lag == 0 else Role.CAREFUL)
        cells: list[object] = [row.topic, row.partition, row.committed, row.end, lag]
        if group.members:
            owner = row.owner
            cells += [owner and owner.instance_id] * static
            cells += [owner and owner.member_id, (owner and owner.client_id) or None, (owner and owner.host) or None]
        lines.append(cells + [row.remark or ""] * remarks)
    screen.table(columns, lines)
