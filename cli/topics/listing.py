"""`tenure topic list`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cli.client import Cluster, Exit
from cli.groups.partition_problems import failures_of, report
from cli.selection import selected
from cli.shown import Column, Screen
from cli.topics.finding import required_topics
from cli.topics.sizes import Logs, logs_of, shown_bytes
from cli.watching import watched

if TYPE_CHECKING:
    from cli.client import TopicInfo

UNKNOWN = "the contents of {} are unknown"


def run(options: argparse.Namespace) -> int:
    return watched(options, lambda screen: show_topics(options, screen))


def show_topics(options: argparse.Namespace, screen: Screen) -> int:
    long = options.long or options.sort in ("records", "size")
    with Cluster.of(options) as cluster:
        all_topics = cluster.topics(None)
        names = selected(options.topics, not options.topics, "topic", lambda: all_topics)
        required_topics(cluster, [name for name in names if name not in all_topics])
        topics = {name: all_topics[name] for name in names if options.internal or not all_topics[name].internal or name in options.topics}
        entries = [short_entry(name, topic) for name, topic in sorted(topics.items())]
        if options.states:
            entries = [entry for entry in entries if not states_of(entry).isdisjoint(options.states)]
        if long:
            logs = logs_of(cluster, {entry["name"]: topics[entry["name"]] for entry in entries})
            entries = [short_entry(name, topic) | contents(logs, name) for name, topic in logs.topics.items()]
    entries.sort(key=sort_keys(options.sort))
    if screen.json:
        screen.document({"topics": entries})
    elif entries:
        show(screen, entries, long)
    elif options.states:
        screen.line(f"no topic is in state {' or '.join(options.states)}")
    else:
        hidden = sum(topic.internal for topic in all_topics.values())
        screen.line("no topics" + (f", except {hidden} internal (--internal shows them)" if hidden else ""))
    return report(screen, failures_of(logs.errors), UNKNOWN) if long else Exit.DONE


def sort_keys(key: str) -> Callable[[dict[str, Any]], Any]:
    """Sorts by name, or by a number: the largest first, then what is unknown."""
    field = {"size": "bytes"}.get(key, key)
    return lambda entry: entry["name"] if key == "name" else (entry[field] is None, -(entry[field] or 0), entry["name"])


def states_of(entry: dict[str, Any]) -> set[str]:
    return {name for name, count in (("without-leader", entry["without_leader"]), ("under-replicated", entry["under_replicated"])) if count} or {"ok"}


def short_entry(name: str, topic: TopicInfo) -> dict[str, Any]:
    partitions = topic.partitions.values()
    return {
        "name": name,
        "internal": topic.internal,
        "partitions": len(topic.partitions),
        "replication_factor": max((len(partition.replicas) for partition in partitions), default=0),
        "without_leader": sum(partition.leader < 0 for partition in partitions),
        "under_replicated": sum(len(partition.isr) < len(partition.replicas) for partition in partitions),
    }


def contents(logs: Logs, name: str) -> dict[str, Any]:
    return {"records": logs.records(name), "bytes": logs.bytes(name), "unknown_partitions": logs.unknown_partitions(name)}


def show(screen: Screen, entries: list[dict[str, Any]], long: bool) -> None:
    columns: list[Column | str] = ["TOPIC", "PARTITIONS", "REPLICAS"]
    if long:
        columns += ["RECORDS", Column("SIZE", right=True), "STATE"]
    rows = []
    for entry in entries:
        row: list[object] = [entry["name"], entry["partitions"], entry["replication_factor"]]
        if long:
            row += [entry["records"], shown_bytes(entry["bytes"]), state(entry)]
        rows.append(row)
    screen.table(columns, rows)


def state(entry: dict[str, Any]) -> str:
    parts = []
    if entry["without_leader"]:
        parts.append(f"{entry['without_leader']} without leader")
    if entry["under_replicated"]:
        parts.append(f"{entry['under_replicated']} under-replicated")
    if entry.get("unknown_partitions", 0) > entry["without_leader"]:
        parts.append(f"{entry['unknown_partitions']} unknown")
    return ", ".join(parts) or "ok"
