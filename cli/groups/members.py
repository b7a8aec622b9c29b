"""`tenure group members`: the members of a group."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cli.client import Cluster, Exit, Failure
from cli.groups import reconciling
from cli.groups.described import CLASSIC, describe_one
from cli.groups.policies import statuses_of
from cli.groups.policy_status import show_status, status_document
from cli.shown import Column, Screen, plain
from history.moves import list_partitions

if TYPE_CHECKING:
    from cli.groups.described import Group, GroupMember


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    with Cluster.of(options) as cluster:
        group = describe_one(cluster, options.group)
        status = statuses_of(cluster, [group])[group.id]
    check_readable(group)
    members = sorted(group.members, key=lambda member: (member.instance_id is None, member.member_key))
    if screen.json:
        document = {
            "group": group.id,
            "state": group.state,
            "type": group.type,
            "protocol": group.protocol or None,
            "members": [member.document() for member in members],
            "policy_status": status_document(status),
        }
        screen.document(document)
    elif not members:
        screen.line(plain(f"group {group.id} has no members (state {group.state})"))
        show_status(screen, status)
    else:
        show(screen, members)
        reconciling.show(screen, group)
        show_status(screen, status)
    return Exit.DONE


def check_readable(group: Group) -> None:
    if not group.readable:
        raise Failure(
            Exit.UNSUPPORTED,
            f"group {group.id} is a {group.type} group ({group.state}): this command shows only members of classic and consumer groups",
        )


def show(screen: Screen, members: list[GroupMember]) -> None:
    owned = any(member.owned and member.owned != member.assigned for member in members)
    target = any(member.target is not None for member in members)
    columns: list[Column | str] = [Column(title, False) for title in ("INSTANCE", "MEMBER", "CLIENT", "HOST", "TOPICS")]
    epoch = any(member.epoch is not None for member in members)
    classic = any(member.speaks == CLASSIC for member in members)  # in a consumer group
    columns += [Column("SPEAKS", False)] * classic + ["EPOCH"] * epoch + ["COUNT", Column("PARTITIONS", False)]
    columns += [Column("OWNED", False)] * owned + [Column("TARGET", False)] * target
    rows = []
    for member in members:
        row: list[object] = [member.instance_id, member.member_id, member.client_id or None, member.host or None, topics(member)]
        row += [member.speaks] * classic
        row += ["away" if member.is_away else member.epoch] * epoch
        row += [None if member.assigned is None else len(member.assigned), list_partitions(member.assigned or ()) or None]
        row += [list_partitions(member.owned or ()) or None if member.owned != member.assigned else None] * owned
        row += [list_partitions(member.target or ()) or None if member.target is not None else None] * target
        rows.append(row)
    screen.table(columns, rows)


def topics(member: GroupMember) -> str | None:
    return None if member.topics is None else ", ".join(member.topics)
