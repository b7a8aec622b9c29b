"""`tenure topic list`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from cli.client import Cluster
from cli.shown import Column, Screen
from cli.topics.sizes import shown_bytes, topic_contents

if TYPE_CHECKING:
    from cli.client import TopicInfo


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    with Cluster.of(options) as cluster:
        all_topics = cluster.topics(None)
        topics = {name: topic for name, topic in sorted(all_topics.items()) if options.internal or not topic.internal}
        entries = [short_entry(name, topic) for name, topic in topics.items()]
        if options.long:
            add_contents(cluster, topics, entries)
    if screen.json:
        screen.document({"topics": entries})
    elif entries:
        show(screen, entries, options.long)
    else:
        hidden = sum(topic.internal for topic in all_topics.values())
        screen.line("no topics" + (f", except {hidden} internal (--internal shows them)" if hidden else ""))
    return 0


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


def add_contents(cluster: Cluster, topics: dict[str, TopicInfo], entries: list[dict[str, Any]]) -> None:
    contents = topic_contents(cluster, topics)
    for entry in entries:
        entry["records"], entry["bytes"] = contents[entry["name"]]


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
    return ", ".join(parts) or "ok"
