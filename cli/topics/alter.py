"""`tenure topic alter`: adds partitions."""

from __future__ import annotations

import argparse
from typing import Final

from cli.client import Cluster, Exit, Failure, check
from cli.shown import Screen
from cli.topics.changes import Change, confirm, show_changes
from cli.topics.finding import await_change, required_topics
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic

KEYS_WARNING: Final = "new records with a key may go to other partitions; existing records stay"


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    with Cluster.of(options) as cluster:
        topic = required_topics(cluster, [options.topic])[options.topic]
        changes = partition_change(options, len(topic.partitions))
        if changes:
            send(cluster, options, dry_run=True)  # let the cluster refuse it before the user is asked
        if changes and not options.dry_run:
            confirm(screen, options, changes, KEYS_WARNING)
            send(cluster, options, dry_run=False)
            await_change(cluster, [options.topic], lambda topic: len(topic.partitions) >= options.partitions)
    show_changes(screen, options, changes, KEYS_WARNING)
    return Exit.DONE


def partition_change(options: argparse.Namespace, before: int) -> list[Change]:
    if options.partitions < before:
        raise Failure(Exit.REFUSED, f"topic {options.topic} has {before} partitions; their number cannot be reduced (a new topic can have fewer)")
    return [] if options.partitions == before else [Change("partitions", before, options.partitions)]


def send(cluster: Cluster, options: argparse.Namespace, *, dry_run: bool) -> None:
    topic = CreatePartitionsTopic(options.topic, options.partitions, None)
    reply = cluster.send_to_controller(CreatePartitionsRequest([topic], int(cluster.timeout * 1000), dry_run))
    for result in reply.results:
        check(result.error_code, f"topic {result.name}", result.error_message)
