"""`tenure group remove-member`: removes members that will not come back, without waiting for their session timeouts."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import TYPE_CHECKING

from cli.client import EXIT, Cluster, Failure, failure
from cli.failure import UNKNOWN_MEMBER
from cli.groups.described import describe, describe_one
from cli.groups.members import check_readable
from cli.groups.removal import foresee
from cli.shown import Column, Role, Screen, plain
from history.moves import spans
from history.words import called, listed
from protocol.errors import ErrorCode
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity

if TYPE_CHECKING:
    from cli.groups.described import Group, GroupMember
    from cli.groups.removal import Removal

BATCHED_VERSION = 3  # several members, and instance ids (KIP-345)
REASON_VERSION = 5  # KIP-800
REASON = "removed by an administrator (tenure group remove-member)"


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    if bool(options.all) == bool(options.instances or options.members):
        raise Failure(EXIT.USAGE, "name who shall go: --instance ID, --member ID (each may be repeated), or --all of them")
    with Cluster.of(options) as cluster:
        group = describe_one(cluster, options.group)
        check_readable(group)
        leaving = chosen(group, options)
        if not leaving:
            if screen.json:
                screen.document(document(group, foresee(group, [], {}), options.dry_run, {}))
            else:
                screen.line(plain(f"group {group.id} has no members: nothing was changed"))
            return EXIT.DONE
        removal = foresee(group, leaving, partition_counts(cluster, group))
        if not screen.json:
            show(screen, group, removal)
        if options.dry_run:
            if screen.json:
                screen.document(document(group, removal, True, {}))
            else:
                screen.line("dry run: nothing was changed")
            return EXIT.DONE
        if not screen.confirm(plain(f"Remove {counted(leaving)} from group {group.id}?"), options):
            raise Failure(EXIT.REFUSED, "nothing was changed")
        if options.reason and cluster.version(LeaveGroupRequest.API_KEY, group.coordinator) < REASON_VERSION:
            screen.warn("the cluster takes no reasons (Kafka 3.2 does); the member is removed without one")
        exact = {one.member_id for one in leaving if one.member_id in options.members}
        errors = remove(cluster, group.id, leaving, exact, options.reason or REASON)
        after = describe(cluster, [group.id])[group.id]
    if screen.json:
        screen.document(document(group, removal, False, errors, after))
    return finish(screen, group, removal, errors, after)


def chosen(group: Group, options: argparse.Namespace) -> list[GroupMember]:
    """Nothing is done by halves: a name that is not there stops everything."""
    if options.all:
        return list(group.members)
    found: dict[str, GroupMember] = {}
    missing = []
    by_instance = {member.instance_id: member for member in reversed(group.members)}
    by_id = {member.member_id: member for member in reversed(group.members)}
    wanted = [("instance", name, by_instance.get(name)) for name in options.instances]
    wanted += [("member", name, by_id.get(name)) for name in options.members]
    for kind, name, member in wanted:
        if member is None:
            missing.append(f"{kind} {name}")
        else:
            found[member.member_id] = member
    if missing:
        there = listed(member.instance_id or member.member_id for member in group.members)
        raise Failure(
            EXIT.MISSING,
            f"group {group.id} has no {' and no '.join(missing)}; it has {there or 'no members'}; nothing was changed",
            word=UNKNOWN_MEMBER,
            hint=f"tenure group members {group.id} shows who is there",
        )
    return list(found.values())


def partition_counts(cluster: Cluster, group: Group) -> dict[str, int]:
    names = sorted({topic for member in group.members for topic in member.topics or () if not topic.startswith("/")})
    topics = cluster.topics(names) if names else {}
    return {name: len(topic.partitions) for name, topic in topics.items() if not topic.error}


def remove(cluster: Cluster, group: str, leaving: list[GroupMember], exact: Collection[str], reason: str) -> dict[str, int]:
    """Errors by member id. A static member is removed by its instance id alone, as Java's admin does, whichever process has the seat by
    then; a member named by its id (`exact`) is removed by both, so that a process that took its seat in the meantime stays.
    """
    identities = [
        MemberIdentity("" if one.instance_id is not None and one.member_id not in exact else one.member_id, one.instance_id, reason)
        for one in leaving
    ]
    reply = cluster.coordinator(group, LeaveGroupRequest(group, identities), oldest=BATCHED_VERSION)
    if reply.error_code:
        raise failure(reply.error_code, f"group {group}")
    errors: dict[str, int] = {}
    for answer in reply.members:
        for one in leaving:
            same = answer.group_instance_id == one.instance_id if one.instance_id is not None else answer.member_id == one.member_id
            if same and answer.error_code:
                errors[one.member_id] = answer.error_code
    return errors


def counted(leaving: list[GroupMember]) -> str:
    return called(leaving[0].member_id, leaving[0].instance_id) if len(leaving) == 1 else f"{len(leaving)} members"


# Output


def document(
    group: Group, removal: Removal, dry_run: bool, errors: dict[str, int], after: Group | None = None
) -> dict[str, object]:
    """`after`: the current state of the group; without it, and in a dry run, the prediction."""
    return {
        "group": group.id,
        "dry_run": dry_run,
        "state_before": group.state,
        "removed": [
            {
                "member_id": one.member_id,
                "instance_id": one.instance_id,
                "client_id": one.client_id,
                "host": one.host,
                "error": refusal(one, errors[one.member_id]).document() if one.member_id in errors else None,
            }
            for one in removal.leaving
        ],
        "state_after": None if dry_run or after is None else after.state,
        "members_left": len(removal.staying) if dry_run or not removal.leaving else len(after.members) if after is not None else 0,
        "rebalances": removal.rebalances,
        "all_partitions_stop": removal.stops,
        "moves": [
            {
                "topic": move.partition[0],
                "partition": move.partition[1],
                "from": move.before.seat,
                "to": move.after and move.after.seat,
                "to_is_known": move.known,
            }
            for move in removal.moves
        ],
    }


def show(screen: Screen, group: Group, removal: Removal) -> None:
    columns: list[Column | str] = [Column(title, False) for title in ("INSTANCE", "MEMBER", "CLIENT", "HOST", "PARTITIONS")]
    rows = [
        [one.instance_id, one.member_id, one.client_id or None, one.host or None, spans(one.assigned or ()) or None]
        for one in removal.leaving
    ]
    screen.line(f"leaving group {screen.paint(plain(group.id), Role.STRONG)} (state {group.state}):")
    screen.table(columns, rows)
    for line in consequences(group, removal):
        screen.line(plain(line))


def consequences(group: Group, removal: Removal) -> list[str]:
    lines = []
    left = len(removal.staying)
    if not left:
        lines.append("no rebalance: nobody is left, and the group will be empty; its offsets stay")
    elif group.state in ("PreparingRebalance", "CompletingRebalance"):
        lines.append(f"the group is rebalancing already; {who_stays(left)} will share what there is")
    elif removal.stops:
        lines.append(
            f"a rebalance follows: {who_stays(left)} will stop reading until it is over ({group.protocol or 'the assignor'} reassigns everything)"
        )
    else:
        lines.append(
            f"a rebalance follows: {who_stays(left)} will keep all partitions and read on meanwhile ({group.protocol or group.type})"
        )
    lines += told_moves(removal)
    dynamic = [one for one in removal.leaving if one.instance_id is None]
    if dynamic:
        names = listed(called(one.member_id) for one in dynamic)
        lines.append(f"without an instance id: {names}; a process that still runs joins again at once, which makes another rebalance")
    if len(dynamic) < len(removal.leaving):
        lines.append("a static member whose process still runs joins again with its instance id: stop it first")
    return lines


def who_stays(count: int) -> str:
    return "the 1 member that stays" if count == 1 else f"the {count} members that stay"


def told_moves(removal: Removal) -> list[str]:
    if not removal.moves:
        return ["no partitions move"]
    if not removal.staying:
        return [f"{counted_partitions(len(removal.moves))} will be read by nobody"]
    changes: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for move in removal.moves:
        after = move.after
        to = called(after.member_id, after.instance_id) if after is not None else "nobody" if move.known else ""
        changes.setdefault((called(move.before.member_id, move.before.instance_id), to), []).append(move.partition)
    lines = []
    for (before_name, to), partitions in changes.items():
        where = f"to {to}" if to else "to others, as the group's leader decides"
        lines.append(f"  {spans(partitions)}: from {before_name} {where}")
    return [f"{counted_partitions(len(removal.moves))} will move:", *lines]


def counted_partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


def finish(screen: Screen, group: Group, removal: Removal, errors: dict[str, int], after: Group | None) -> int:
    gone = [one for one in removal.leaving if one.member_id not in errors]
    if gone and not screen.json:
        screen.line(plain(f"removed {counted(gone)} from group {group.id}: {outcome(group, after)}"))
    for one in removal.leaving:
        if one.member_id in errors:
            problem = refusal(one, errors[one.member_id])
            screen.fail(problem, f"not removed: {problem.line}")
    return EXIT.REFUSED if errors else EXIT.DONE


def outcome(group: Group, after: Group | None) -> str:
    """The group after the removal, which may differ from the prediction."""
    if after is None or not after.members:
        return "it is empty now"
    before = {member.member_id for member in group.members}
    new = [called(member.member_id, member.instance_id) for member in after.members if member.member_id not in before]
    joined = f", with {listed(new)}, who joined meanwhile" if new else ""
    if after.state in ("PreparingRebalance", "CompletingRebalance"):
        return f"it rebalances now{joined}"
    count = "1 member" if len(after.members) == 1 else f"{len(after.members)} members"
    return f"it has {count} now{joined} (state {after.state})"


def refusal(one: GroupMember, error: int) -> Failure:
    problem = failure(error, called(one.member_id, one.instance_id))
    if error == ErrorCode.FENCED_INSTANCE_ID:
        return problem.saying(f"member {one.member_id} is gone; another process has joined as instance {one.instance_id} since and keeps the seat")
    return problem
