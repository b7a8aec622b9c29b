"""`tenure topic delete`: shows the records and committed offsets that would be lost, asks for confirmation, and deletes."""

from __future__ import annotations

import argparse
from typing import Any

from cli.client import Cluster, Exit, Failure, TopicInfo, failure
from cli.selection import confirm_selection, selects_unnamed
from cli.shown import Screen, counted, plain
from cli.topics.finding import await_change, existing_topics, selected_topics, unknown_topics
from cli.topics.readers import groups_with_offsets
from cli.topics.sizes import logs_of, shown_bytes
from protocol.errors import ErrorCode
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

GROUPS_SHOWN = 5


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    with Cluster.of(options) as cluster:
        topics, missing = existing_topics(cluster, selected_topics(cluster, options))
        if missing and not options.if_exists:
            problem = unknown_topics(cluster, missing)
            raise problem.with_line(f"{problem.line}{'' if options.dry_run or not topics else '; nothing was deleted'}")
        entries = losses(cluster, topics) if topics else []
        if options.dry_run:
            outcome = "would be deleted"
        else:
            confirm_deletion(screen, options, entries)
            outcome = "deleted"
            refused = delete(cluster, options, list(topics)) if topics else {}
            await_change(cluster, [name for name in topics if name not in refused], lambda topic: bool(topic.error))
            for entry in entries:
                entry["error"] = refused[entry["name"]].document() if entry["name"] in refused else None
    if screen.json:
        screen.document({"dry_run": options.dry_run, "topics": entries, "missing": missing})
    else:
        for entry in entries:
            if not entry.get("error"):
                screen.line(f"{plain(entry['name'])} {outcome}: {loss_text(entry)}")
        for name in missing:
            screen.line(f"{plain(name)} does not exist")
        if not entries and not missing:
            screen.line("there are no topics to delete")
    if not options.dry_run and refused:
        *earlier, last = refused.values()
        for failure in earlier:
            screen.fail(failure)
        raise last
    return 0


def losses(cluster: Cluster, topics: dict[str, TopicInfo]) -> list[dict[str, Any]]:
    logs = logs_of(cluster, topics)
    readers = groups_with_offsets(cluster, {name: list(topic.partitions) for name, topic in topics.items()})
    return [
        {
            "name": name,
            "internal": topic.internal,
            "partitions": len(topic.partitions),
            "records": logs.records(name),
            "bytes": logs.bytes(name),
            "groups": readers[name],
        }
        for name, topic in topics.items()
    ]


def loss_text(entry: dict[str, Any]) -> str:
    parts = [counted(entry["partitions"], "partition")]
    parts.append("an unknown number of records" if entry["records"] is None else counted(entry["records"], "record"))
    if entry["bytes"] is not None:
        parts[-1] += f" ({shown_bytes(entry['bytes'])})"
    groups = entry["groups"]
    if groups:
        more = f" and {len(groups) - GROUPS_SHOWN} more" if len(groups) > GROUPS_SHOWN else ""
        parts.append(f"offsets of {'group' if len(groups) == 1 else 'groups'} {plain(', '.join(groups[:GROUPS_SHOWN]))}{more}")
    if entry["internal"]:
        parts.append("INTERNAL: the cluster keeps its state there")
    return ", ".join(parts)


def confirm_deletion(screen: Screen, options: argparse.Namespace, entries: list[dict[str, Any]]) -> None:
    if not entries:
        return
    internal = [entry["name"] for entry in entries if entry["internal"]]
    if internal and not options.yes:
        raise Failure(
            Exit.REFUSED,
            f"{' and '.join(internal)}: the cluster keeps its state there, such as all groups' offsets; --yes deletes it nevertheless; "
            "nothing was changed",
        )
    loss_lines = "".join(f"{plain(entry['name'])}: {loss_text(entry)}\n" for entry in entries)
    unnamed = selects_unnamed(options.topics, options.all)
    confirm_selection(screen, options, unnamed, f"{loss_lines}Delete {'it' if len(entries) == 1 else 'them'} for good?")


def delete(cluster: Cluster, options: argparse.Namespace, names: list[str]) -> dict[str, Failure]:
    """Delete topics; return the failures. A topic that another client has deleted counts as deleted."""
    request = DeleteTopicsRequest([DeleteTopicState(name) for name in names], names, int(cluster.timeout * 1000))
    reply = cluster.send_to_controller(request)
    return {
        result.name: failure(result.error_code, f"topic {result.name}", result.error_message)
        for result in reply.responses
        if result.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    }
