"""`tenure group remove-member`: removes members without waiting for their session timeouts."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from shlex import quote
from typing import TYPE_CHECKING

from cli.client import Cluster, Exit, Failure, failure
from cli.failure import UNKNOWN_MEMBER
from cli.groups.described import CONSUMER, describe, describe_one
from cli.groups.members import check_readable
from cli.groups.policies import statuses_of
from cli.groups.policy_status import standbys_of
from cli.groups.removal import predict
from cli.shown import Column, Role, Screen, counted, plain
from history.moves import list_partitions
from history.words import list_names, short_name
from protocol.errors import ErrorCode
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity

if TYPE_CHECKING:
    from cli.groups.described import Group, GroupMember
    from cli.groups.removal import RemovalPrediction

BATCHED_VERSION = 3  # several members, and instance ids (KIP-345)
REASON_VERSION = 5  # KIP-800
REASON = "removed by an administrator (tenure group remove-member)"


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    if bool(options.all) == bool(options.instances or options.members):
        raise Failure(Exit.USAGE, "name the members: --instance ID, --member ID (each may be repeated), or --all of them")
    with Cluster.of(options) as cluster:
        group = describe_one(cluster, options.group)
        check_readable(group)
        leaving = chosen(group, options)
        if not leaving:
            if screen.json:
                screen.document(document(group, predict(group, [], {}), options.dry_run, {}))
            else:
                screen.line(plain(f"group {group.id} has no members: nothing was changed"))
            return Exit.DONE
        standbys = standbys_of(group, statuses_of(cluster, [group])[group.id])
        removal = predict(group, leaving, partition_counts(cluster, group), standbys)
        if not screen.json:
            show(screen, group, removal)
        if options.dry_run:
            if screen.json:
                screen.document(document(group, removal, True, {}))
            else:
                screen.line("dry run: nothing was changed")
            return Exit.DONE
        if not screen.confirm(plain(f"Remove {members_text(leaving)} from group {group.id}?"), options):
            raise Failure(Exit.REFUSED, "nothing was changed")
        if options.reason and cluster.version(LeaveGroupRequest.API_KEY, group.coordinator) < REASON_VERSION:
            screen.warn("the cluster accepts no reasons (Kafka 3.2 and later do); the member is removed without one")
        named_by_id = {member.member_id for member in leaving if member.member_id in options.members}
        errors = remove(cluster, group.id, leaving, named_by_id, options.reason or REASON)
        after = describe(cluster, [group.id])[group.id]
    if screen.json:
        screen.document(document(group, removal, False, errors, after))
    return finish(screen, group, removal, errors, after)


def chosen(group: Group, options: argparse.Namespace) -> list[GroupMember]:
    """The members that the options name. Raises Failure if one of them does not exist."""
    if options.all:
        return sorted(group.members, key=lambda member: (member.instance_id is None, member.member_key))
    members: dict[str, GroupMember] = {}
    missing = []
    by_instance = {member.instance_id: member for member in reversed(group.members)}
    by_id = {member.member_id: member for member in reversed(group.members)}
    names = [name for listed in options.instances for name in ([listed] if listed in by_instance else split_names(listed))]
    requested = [("instance", name, by_instance.get(name)) for name in names]
    requested += [("member", name, by_id.get(name)) for name in options.members]
    for kind, name, member in requested:
        if member is None:
            missing.append(f"{kind} {name}")
        else:
            members[member.member_id] = member
    if missing:
        present = list_names(sorted(member.instance_id or member.member_id for member in group.members))
        raise Failure(
            Exit.MISSING,
            f"group {group.id} has no {' and no '.join(missing)}; it has {present or 'no members'}; nothing was changed",
            kind=UNKNOWN_MEMBER,
            hint=f"tenure group members {quote(group.id)} lists the members",
        )
    return list(members.values())


def split_names(listed: str) -> list[str]:
    """The instance ids in a list with commas, the form that KIP-345 proposes; a member whose instance id has commas is named by it as a whole."""
    return [name for part in listed.split(",") if (name := part.strip())] or [listed]


def partition_counts(cluster: Cluster, group: Group) -> dict[str, int]:
    names = sorted({topic for member in group.members for topic in member.topics or () if not topic.startswith("/")})
    topics = cluster.topics(names) if names else {}
    return {name: len(topic.partitions) for name, topic in topics.items() if not topic.error}


def remove(cluster: Cluster, group: str, leaving: list[GroupMember], named_by_id: Collection[str], reason: str) -> dict[str, int]:
    """Remove the members; return errors by member id.

    LeaveGroup names a static member by its instance id alone, as Java's admin client does. If the user named it by its member id, LeaveGroup
    has both ids, so that another process that has taken the instance id over stays.
    """
    identities = [
        MemberIdentity("" if member.instance_id is not None and member.member_id not in named_by_id else member.member_id, member.instance_id, reason)
        for member in leaving
    ]
    reply = cluster.send_to_coordinator(group, LeaveGroupRequest(group, identities), oldest=BATCHED_VERSION)
    if reply.error_code:
        raise failure(reply.error_code, f"group {group}")
    errors: dict[str, int] = {}
    for response in reply.members:
        for member in leaving:
            same = response.group_instance_id == member.instance_id if member.instance_id is not None else response.member_id == member.member_id
            if same and response.error_code:
                errors[member.member_id] = response.error_code
    return errors


def members_text(members: list[GroupMember]) -> str:
    return members[0].shown_name if len(members) == 1 else f"{len(members)} members"


# Output


def document(
    group: Group, removal: RemovalPrediction, dry_run: bool, errors: dict[str, int], after: Group | None = None
) -> dict[str, object]:
    """`after`: the group after the removal; without it the document has the prediction."""
    return {
        "group": group.id,
        "dry_run": dry_run,
        "state_before": group.state,
        "removed": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "error": refusal(member, errors[member.member_id]).document() if member.member_id in errors else None,
            }
            for member in removal.leaving
        ],
        "state_after": None if dry_run or after is None else after.state,
        "members_left": len(removal.staying) if dry_run or not removal.leaving else len(after.members) if after is not None else 0,
        "rebalances": removal.rebalances,
        "all_partitions_stop": removal.stops_staying_members,
        "moves": [
            {
                "topic": move.partition[0],
                "partition": move.partition[1],
                "from": move.before.member_key,
                "to": move.after and move.after.member_key,
                "to_is_known": move.known,
            }
            for move in removal.moves
        ],
    }


def show(screen: Screen, group: Group, removal: RemovalPrediction) -> None:
    columns: list[Column | str] = [Column(title, False) for title in ("INSTANCE", "MEMBER", "CLIENT", "HOST", "PARTITIONS")]
    rows = [
        [member.instance_id, member.member_id, member.client_id or None, member.host or None, list_partitions(member.assigned or ()) or None]
        for member in removal.leaving
    ]
    screen.line(f"leaving group {screen.paint(plain(group.id), Role.STRONG)} (state {group.state}):")
    screen.table(columns, rows)
    for line in consequences(group, removal):
        screen.line(plain(line))


def consequences(group: Group, removal: RemovalPrediction) -> list[str]:
    lines = []
    if not removal.staying:
        lines.append("no rebalance: the group will be empty; its offsets stay")
    elif group.state in ("PreparingRebalance", "CompletingRebalance"):
        lines.append(f"the group is rebalancing already; {staying_text(removal)} will share the partitions")
    elif not removal.rebalances:
        lines.append(f"no rebalance: {without_rebalance(removal)}")
    elif not removal.active:
        lines.append(begin_text(removal))
    elif removal.stops_staying_members:
        lines.append(
            f"{begin_text(removal)}: {staying_text(removal)} will stop reading until it ends ({group.protocol or 'the assignor'} reassigns everything)"
        )
    else:
        lines.append(
            f"{begin_text(removal)}: {staying_text(removal)} will keep their partitions and continue reading ({group.protocol or group.type})"
        )
    lines += move_lines(removal, "coordinator" if group.type == CONSUMER else "group's leader")
    dynamic = [member for member in removal.leaving if member.instance_id is None]
    if dynamic:
        names = list_names(short_name(member.member_id) for member in dynamic)
        rejoins = "as a standby" if removal.full else "which causes another rebalance"
        lines.append(f"without an instance id: {names}; a process that still runs joins again at once, {rejoins}")
    if len(dynamic) < len(removal.leaving):
        rejoins = ", as a standby" if removal.full else ""
        lines.append(f"a static member whose process still runs joins again with its instance id{rejoins}: stop it first")
    return lines


def without_rebalance(removal: RemovalPrediction) -> str:
    """Why no rebalance follows: standbys take the seats, or only standbys leave."""
    if removal.take_overs:
        seats = (f"{seat.standby.shown_name} takes the seat of {seat.removed.shown_name}" for seat in removal.take_overs)
        return f"the {'standby' if len(removal.take_overs) == 1 else 'standbys take over:'} {list_names(seats)}"
    names = list_names(member.shown_name for member in removal.leaving)
    return f"{names} is a standby" if len(removal.leaving) == 1 else f"{names} are standbys"


def begin_text(removal: RemovalPrediction) -> str:
    return "too few standbys have the same topics, so a rebalance follows" if removal.standbys else "a rebalance follows"


def staying_text(removal: RemovalPrediction) -> str:
    count = removal.active
    active = "active " if removal.standbys else ""
    return f"the 1 {active}member that stays" if count == 1 else f"the {count} {active}members that stay"


def move_lines(removal: RemovalPrediction, assigner: str) -> list[str]:
    if not removal.moves:
        return ["no partitions move"]
    if not removal.staying:
        return [f"{counted(len(removal.moves), 'partition')} will have no reader"]
    changes: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for move in removal.moves:
        after = move.after
        to = after.shown_name if after is not None else "no member" if move.known else ""
        changes.setdefault((move.before.shown_name, to), []).append(move.partition)
    lines = []
    for (before_name, to), partitions in changes.items():
        target = f"to {to}" if to else f"to others, as the {assigner} decides"
        lines.append(f"  {list_partitions(partitions)}: from {before_name} {target}")
    return [f"{counted(len(removal.moves), 'partition')} will move:", *lines]



def finish(screen: Screen, group: Group, removal: RemovalPrediction, errors: dict[str, int], after: Group | None) -> int:
    removed = [member for member in removal.leaving if member.member_id not in errors]
    if removed and not screen.json:
        screen.line(plain(f"removed {members_text(removed)} from group {group.id}: {outcome(group, after)}"))
    for member in removal.leaving:
        if member.member_id in errors:
            problem = refusal(member, errors[member.member_id])
            screen.fail(problem, f"not removed: {problem.line}")
    return Exit.REFUSED if errors else Exit.DONE


def outcome(group: Group, after: Group | None) -> str:
    """A text about the group after the removal, as the cluster reports it."""
    if after is None or not after.members:
        return "it is empty now"
    before = {member.member_id for member in group.members}
    new = [member.shown_name for member in after.members if member.member_id not in before]
    joined = f", with {list_names(new)}, which joined meanwhile" if new else ""
    if after.state in ("PreparingRebalance", "CompletingRebalance"):
        return f"it rebalances now{joined}"
    return f"it has {counted(len(after.members), 'member')} now{joined} (state {after.state})"


def refusal(member: GroupMember, error: int) -> Failure:
    problem = failure(error, member.shown_name)
    if error == ErrorCode.FENCED_INSTANCE_ID:
        return problem.with_line(f"member {member.member_id} does not exist any more; another process has joined as instance {member.instance_id} and keeps the seat")
    return problem
