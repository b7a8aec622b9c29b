"""`tenure topic describe`."""

from __future__ import annotations

import argparse
from shlex import quote
from typing import Any, Final

from cli.client import Cluster, Exit, Failure, TopicPartition
from cli.groups.partition_problems import failures_of, report
from cli.shown import Column, Painted, Role, Screen, counted, plain, topic_id_text
from cli.topics.finding import existing_topics, selected_topics, unknown_topics
from cli.topics.listing import UNKNOWN
from cli.topics.settings import Setting, setting_document, setting_table, topic_settings
from cli.topics.sizes import Logs, logs_of, shown_bytes
from cli.watching import watched

NO_SETTINGS: Final = "settings: not available from this cluster or to this user"


def run(options: argparse.Namespace) -> int:
    return watched(options, lambda screen: show_topics(options, screen))


def show_topics(options: argparse.Namespace, screen: Screen) -> int:
    with Cluster.of(options) as cluster:
        topics, missing = existing_topics(cluster, selected_topics(cluster, options))
        logs = logs_of(cluster, topics)
        documents = documents_of(cluster, logs) if topics else []
        failure = unknown_topics(cluster, missing) if missing else None
    if screen.json:
        screen.document({"topics": documents})
    elif not documents and failure is None:
        screen.line("there are no topics that are not internal")
    else:
        for number, document in enumerate(documents):
            if number:
                screen.line()
            show(screen, document)
    code = report(screen, failures_of(logs.errors), UNKNOWN)
    if failure:
        raise failure
    return code


def documents_of(cluster: Cluster, logs: Logs) -> list[dict[str, Any]]:
    settings = settings_or_none(cluster, list(logs.topics))
    return [
        {
            "name": name,
            "id": topic_id_text(topic.id),
            "internal": topic.internal,
            "partitions": [partition_document(logs, (name, number)) for number in topic.partitions],
            "settings": None if settings is None else [
                setting_document(setting) for setting in settings[name].values() if not setting.is_default
            ],
        }
        for name, topic in logs.topics.items()
    ]  # fmt: skip


def settings_or_none(cluster: Cluster, names: list[str]) -> dict[str, dict[str, Setting]] | None:
    """The settings of each topic; None if the cluster does not report them to this user."""
    try:
        return topic_settings(cluster, names)
    except Failure as failure:
        if failure.exit_code in (Exit.UNSUPPORTED, Exit.FORBIDDEN):
            return None
        raise


def partition_document(logs: Logs, tp: TopicPartition) -> dict[str, Any]:
    partition = logs.topics[tp[0]].partitions[tp[1]]
    start, end, bounds = logs.starts[tp], logs.ends[tp], logs.bounds(tp)
    return {
        "partition": tp[1],
        "leader": partition.leader if partition.leader >= 0 else None,
        "replicas": partition.replicas,
        "in_sync": partition.isr,
        "earliest": None if start.error else start.offset,
        "latest": None if end.error else end.offset,
        "records": None if bounds is None else bounds[1] - bounds[0],
        "bytes": logs.sizes.get(tp),
    }


def show(screen: Screen, document: dict[str, Any]) -> None:
    partitions = document["partitions"]
    replicas = max((len(partition["replicas"]) for partition in partitions), default=0)
    facts = [counted(len(partitions), "partition"), f"replication factor {replicas}"]
    if document["internal"]:
        facts.append("internal")
    if document["id"]:
        facts.append(f"id {document['id']}")
    screen.line(f"{screen.paint(screen.name(document['name']), Role.STRONG)}: {', '.join(facts)}")
    screen.line()
    screen.table(
        ["PARTITION", Column("LEADER", right=True), "REPLICAS", "IN SYNC", "EARLIEST", "LATEST", "RECORDS", Column("SIZE", right=True)],
        [partition_row(partition) for partition in partitions],
    )
    screen.line()
    show_settings(screen, document)


def partition_row(partition: dict[str, Any]) -> list[object]:
    return [
        partition["partition"],
        Painted("none", Role.BAD) if partition["leader"] is None else partition["leader"],
        numbers(partition["replicas"]),
        Painted(numbers(partition["in_sync"]), Role.CAREFUL if len(partition["in_sync"]) < len(partition["replicas"]) else None),
        partition["earliest"],
        partition["latest"],
        partition["records"],
        shown_bytes(partition["bytes"]),
    ]


def numbers(ids: list[int]) -> str:
    return ",".join(map(str, ids)) or "-"


def show_settings(screen: Screen, document: dict[str, Any]) -> None:
    settings = document["settings"]
    more = f"tenure topic config show {quote(plain(document['name']))} lists them"
    if settings is None:
        screen.line(NO_SETTINGS)
    elif not settings:
        screen.line(f"settings: all are defaults ({more})")
    else:
        setting_table(screen, settings)
        screen.line(f"(all others are defaults; {more})")
