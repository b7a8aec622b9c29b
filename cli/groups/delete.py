"""`tenure group delete`: delete groups without members, and their committed offsets."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cli.client import Cluster, Exit, Failure, TopicPartition, failure
from cli.client.effects import Unanswered
from cli.failure import in_part
from cli.groups import offsets_requests
from cli.groups.described import describe
from cli.groups.finding import nonempty_group, unknown_group
from cli.groups.selecting import nothing_selected, selected_groups
from cli.selection import confirm_selection, selects_unnamed
from cli.shown import Column, Screen, counted, plain
from protocol.messages.delete_groups import DeleteGroupsRequest

if TYPE_CHECKING:
    from cli.groups.described import Group
    from cli.groups.offsets_plan import Committed


def run(options: argparse.Namespace) -> int:
    """Delete the groups, unless one of them cannot be deleted. Each group has a result of its own, also if a coordinator does not answer."""
    screen = Screen.of(options)
    deleted: list[str] = []
    with Cluster.of(options) as cluster:
        names, troubles = selected_groups(cluster, options)
        if troubles:
            raise troubles[0].with_line(f"{troubles[0].line}; nothing was deleted")
        problems: dict[str, Failure] = {}
        descriptions = describe(cluster, names, problems)
        problems = {name: named(name, problem) for name, problem in problems.items()}
        problems |= {name: problem for name in names if name not in problems and (problem := refusal(cluster, name, descriptions[name]))}
        if problems and len(names) == 1:
            raise problems[names[0]]
        with_offsets = [name for name in names if name not in problems and (group := descriptions[name]) and group.commits_offsets]
        unfetched: dict[str, Failure] = {}
        committed = offsets_requests.fetch_committed(cluster, with_offsets, unfetched)
        problems |= {name: named(name, problem) for name, problem in unfetched.items()}
        deletable = [name for name in names if name not in problems]
        if not screen.json and not problems:
            show(screen, deletable, committed)
        if options.dry_run and not problems:
            if not screen.json:
                screen.line(f"dry run: nothing was changed, {group_count(deletable)} would be deleted")
        elif not problems:
            if deletable:
                confirm_selection(screen, options, selects_unnamed(options.groups, options.all), f"Delete {group_count(deletable)}?")
            problems = delete(cluster, deletable)
            deleted = [name for name in deletable if name not in problems]
    if screen.json:
        groups = [document(name, problems, committed) | {"deleted": outcome(name, deleted, problems)} for name in names]
        screen.document({"dry_run": options.dry_run, "groups": groups})
    elif deleted:
        which = f": {', '.join(map(plain, deleted))}" if problems and len(deleted) > 1 else ""
        screen.line(f"deleted {group_count(deleted)}{which}")
    elif not names:
        screen.line(nothing_selected(options))
    elif problems:
        in_doubt = any(isinstance(problem, Unanswered) for problem in problems.values())
        screen.line("dry run: nothing would be deleted" if options.dry_run else "no group is known to be deleted" if in_doubt else "nothing was deleted")
    return max((screen.fail(in_part(problem) if deleted else problem) for problem in problems.values()), default=Exit.DONE)


def refusal(cluster: Cluster, name: str, group: Group | None) -> Failure | None:
    if group is None:
        return unknown_group(cluster, name)
    if not group.occupied:
        return None
    if not group.readable:
        return Failure(Exit.REFUSED, f"{group.type} group {name} has members ({group.state}): stop them first")
    return nonempty_group(f"group {name} has {counted(len(group.members), 'member')}", name, len(group.members))


def delete(cluster: Cluster, names: list[str]) -> dict[str, Failure]:
    """Send each group's coordinator a request for it alone, so that each has a result: the errors, and the failures of coordinators that do not answer."""
    problems: dict[str, Failure] = {}
    for groups in cluster.coordinators(names, failed=problems).values() if names else ():
        for name in groups:
            try:
                reply = cluster.send_to_coordinator(name, DeleteGroupsRequest([name]))
            except Failure as problem:
                problems[name] = problem
                continue
            for result in reply.results:
                if result.error_code:
                    problems[result.group_id] = failure(result.error_code, f"group {result.group_id}")
    return {name: named(name, problems[name]) for name in names if name in problems}


def named(name: str, problem: Failure) -> Failure:
    """The problem of a group, with its name and with what became of it."""
    if isinstance(problem, Unanswered):
        return problem.of(f"group {name}")
    if problem.exit_code == Exit.UNREACHABLE:
        return problem.with_line(f"group {name} was not deleted: {problem.line}")
    return problem


def outcome(name: str, deleted: list[str], problems: dict[str, Failure]) -> bool | None:
    """Whether the group was deleted; None if that is not known."""
    return None if isinstance(problems.get(name), Unanswered) else name in deleted


def group_count(names: list[str]) -> str:
    return f"group {plain(names[0])}" if len(names) == 1 else f"{len(names)} groups"


def show(screen: Screen, names: list[str], committed: dict[str, dict[TopicPartition, Committed]]) -> None:
    """Show the committed offsets that the deletion of the groups also deletes."""
    rows = [(name, *tp, offset.offset) for name in names for tp, offset in sorted(committed.get(name, {}).items())]
    if rows:
        screen.line("these offsets are deleted with it:" if len(names) == 1 else "these offsets are deleted with them:")
        screen.table([Column("GROUP", False), Column("TOPIC", False), "PARTITION", "COMMITTED"], rows)
    for name in names:
        if name in committed and not committed[name]:
            screen.line(f"{plain(name)} has committed no offsets")
        elif name not in committed:
            screen.line(f"{plain(name)} is a share group: its progress is deleted with it")


def document(name: str, problems: dict[str, Failure], committed: dict[str, dict[TopicPartition, Committed]]) -> dict[str, object]:
    problem = problems.get(name)
    offsets = [
        {"topic": tp[0], "partition": tp[1], "committed_offset": offset.offset} for tp, offset in sorted(committed.get(name, {}).items())
    ]
    return {"group": name, "error": None if problem is None else problem.document(), "offsets": offsets}
