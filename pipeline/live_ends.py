"""End offsets of a live cluster, requested from its brokers whenever their logs are read.

The replies are stored as a table, since they cannot be requested again later; a build converts them into rows of `end_offsets`.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pyarrow.compute as pc

from pipeline.end_samples import from_list_offsets
from pipeline.inputs import BadInput, Inputs
from pipeline.progress import Progress
from pipeline.rows import EndOffset
from pipeline.schema import joined, rows_of, table_of
from pipeline.warehouse import PublishedState, Warehouse
from pipeline.wire import Client

TABLE: Final = "live_ends"  # kept apart from end_offsets, which a full build discards and makes again from this table
BUCKET: Final = "live"  # in place of a partition
TOPICS: Final = "live_topics"
TIMEOUT_S: Final = 10.0  # short, as without these samples only the current lag is missing

Ends = Mapping[tuple[str, int], tuple[int | None, int]]


def store_live_ends(warehouse: Warehouse, inputs: Inputs, progress: Progress) -> None:
    """Store the current end offsets of committed topics. The caller holds the lock and has ingested."""
    if not inputs.brokers:
        return
    current = warehouse.current()
    topics = committed_topics(warehouse, current)
    files, run = [], current.run + 1
    for source, _ in inputs.brokers:
        try:
            with Client(source, TIMEOUT_S) as client:
                at_ms = time.time_ns() // 1_000_000
                ends = client.ends(tuple(client_topics(client, inputs, topics)))
                cluster = inputs.cluster or client.cluster
        except BadInput as error:
            progress.say(f"{error}: the end offsets of topics are not known")
            continue
        if ends and ends != _last_reply(warehouse, current, f"{cluster}/{BUCKET}"):
            files.append(warehouse.write(TABLE, run, f"{cluster}/{BUCKET}", table_of("end_offsets", from_list_offsets(cluster, at_ms, ends))))
    stored_topics = {cluster: sorted(names) for cluster, names in topics.items()}
    if files:
        warehouse.publish(replace(current, run=run, files=current.replacing((), files), build={**current.build, TOPICS: stored_topics}))
    elif stored_topics != current.build.get(TOPICS):
        warehouse.publish(replace(current, build={**current.build, TOPICS: stored_topics}))


def client_topics(client: Client, inputs: Inputs, topics: Mapping[str, set[str]]) -> list[str]:
    client.logs(())  # learns the cluster's id
    return sorted(topics.get(inputs.cluster or client.cluster, ()))


def committed_topics(warehouse: Warehouse, current: PublishedState) -> dict[str, set[str]]:
    """The topics with committed offsets, by cluster, also those in records ingested since the last build."""
    topics_by_cluster: dict[str, set[str]] = defaultdict(set)
    for cluster, names in current.build.get(TOPICS, {}).items():
        topics_by_cluster[cluster].update(names)
    for file in [*current.files_of("tails"), *(file for file in current.files_of("records") if file.run > current.built)]:
        topics = pc.unique(warehouse.load(file, columns=["topic"])["topic"]).drop_null().to_pylist()
        topics_by_cluster[file.bucket.rpartition("/")[0]].update(topics)
    return topics_by_cluster


def with_live_ends(warehouse: Warehouse, current: PublishedState) -> PublishedState:
    """Add the replies since the last build to `end_offsets`."""
    for file in [file for file in current.files_of(TABLE) if file.run > current.built]:
        rows = joined("end_offsets", [warehouse.load(file)])
        current = replace(current, files=current.replacing((), [warehouse.write("end_offsets", current.run, file.bucket, rows)]))
    return current


def _last_reply(warehouse: Warehouse, current: PublishedState, bucket: str) -> Ends:
    last = max(current.files_of(TABLE, bucket), key=lambda file: file.run, default=None)
    rows = rows_of(EndOffset, joined("end_offsets", [warehouse.load(last)])) if last is not None else []
    return {(row.topic, row.topic_partition): (row.log_start, row.end_offset) for row in rows}
