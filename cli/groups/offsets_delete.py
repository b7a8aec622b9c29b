"""`tenure group offsets delete`: delete committed offsets of topics without subscribers."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping

from cli.client import Cluster, Exit, Failure, TopicPartition, failure
from cli.groups import offsets_change, offsets_requests
from cli.groups.finding import unknown_group
from cli.groups.offset_formats import Scope, merge_scopes
from cli.groups.offsets_plan import Committed
from cli.groups.offsets_reset import in_scopes, share_group_text
from cli.groups.partition_problems import report, scopes_text
from cli.shown import Column, Screen
from protocol.errors import ErrorCode
from protocol.messages.offset_delete import OffsetDeleteRequest


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    group = options.group
    scopes = merge_scopes(options.topics)
    with Cluster.of(options) as cluster:
        if cluster.version(OffsetDeleteRequest.API_KEY) < 0:
            raise Failure(Exit.UNSUPPORTED, "the cluster cannot delete offsets (OffsetDelete, Kafka 2.4); `tenure group delete` deletes a group with all its offsets")
        committed = offsets_requests.fetch_committed(cluster, [group])[group]
        if not committed:
            group_status = offsets_requests.group_status(cluster, group)
            if not group_status.exists:
                raise unknown_group(cluster, group)
            if group_status.is_share_group:
                raise Failure(Exit.REFUSED, share_group_text(group))
        chosen = {tp: committed[tp] for tp in sorted(committed) if in_scopes(tp, scopes)}
        missing_lines = [f"group {group} has committed nothing for {scope}" for scope in not_committed(scopes, committed)]
        if not chosen:
            if screen.json:
                screen.document(document(group, chosen, {}, dry_run=options.dry_run))
            return max(screen.fail(Failure(Exit.MISSING, line, kind="no-offsets")) for line in missing_lines)
        for line in missing_lines:
            screen.warn(line)
        if not screen.json:
            screen.table(
                [Column("TOPIC", False), "PARTITION", "COMMITTED"], [(topic, partition, offset.offset) for (topic, partition), offset in chosen.items()]
            )
        if options.dry_run:
            return finish_dry_run(screen, group, chosen, offsets_requests.group_status(cluster, group).topics)
        if not screen.confirm(f"Delete {counted(chosen)} of group {group}?", options):
            raise Failure(Exit.REFUSED, "nothing was changed")
        problems = offsets_change.delete(cluster, group, chosen, lambda error: refusal(group, error))
    return finish(screen, group, chosen, problems)


def not_committed(scopes: Mapping[str, Collection[int] | None], committed: Mapping[TopicPartition, Committed]) -> list[Scope]:
    topics = {topic for topic, _ in committed}
    missing: list[Scope] = []
    for topic, partitions in scopes.items():
        if partitions is None:
            missing += [Scope(topic, None)] * (topic not in topics)
        elif uncommitted := [partition for partition in sorted(partitions) if (topic, partition) not in committed]:
            missing.append(Scope(topic, tuple(uncommitted)))
    return missing


def counted(chosen: Collection[TopicPartition]) -> str:
    return "the offset of 1 partition" if len(chosen) == 1 else f"the offsets of {len(chosen)} partitions"


def document(group: str, chosen: Mapping[TopicPartition, Committed], problems: Mapping[TopicPartition, Failure], *, dry_run: bool) -> dict[str, object]:
    rows = [
        {"topic": tp[0], "partition": tp[1], "committed_offset": offset.offset, "error": problems[tp].document() if tp in problems else None}
        for tp, offset in chosen.items()
    ]
    return {"group": group, "dry_run": dry_run, "offsets": rows}


def finish_dry_run(screen: Screen, group: str, chosen: Mapping[TopicPartition, Committed], subscribed: Collection[str]) -> int:
    problems = {tp: refusal(group, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC) for tp in chosen if tp[0] in subscribed}
    if screen.json:
        screen.document(document(group, chosen, problems, dry_run=True))
    else:
        would = f"{counted(chosen.keys() - problems.keys())} would be deleted" if len(problems) < len(chosen) else "nothing would be deleted"
        screen.line(f"dry run: nothing was changed, {would}")
    return report(screen, problems, "{} would not be deleted")


def finish(screen: Screen, group: str, chosen: Mapping[TopicPartition, Committed], problems: Mapping[TopicPartition, Failure]) -> int:
    if screen.json:
        screen.document(document(group, chosen, problems, dry_run=False))
    done = [tp for tp in chosen if tp not in problems]
    if not screen.json and done:
        screen.line(f"deleted {counted(done)} of group {group}{f': {scopes_text(done)}' if problems else ''}")
    return report(screen, problems, "{} not deleted", "{} perhaps deleted")


def refusal(group: str, error: int) -> Failure:
    if error == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
        return failure(error, "").with_line(f"members of group {group} are subscribed to the topic: stop them first, or remove them (tenure group remove-member)")
    return failure(error, f"group {group}")
