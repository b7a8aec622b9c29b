"""Who holds the lock of each log, by the kernel; who claims it, by each node's own status; and who serves it, by each node's replies."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from storage import LogId
from storage.owners import LOCKS_FILE, lock_byte_of
from tests.nodes.cluster import BROKER_RESOURCE, DESCRIBE_CONFIGS_VERSION, LATEST, LIST_OFFSETS_VERSION, METADATA_VERSION
from tests.nodes.torture.links import Links


def held_bytes(pid: int, data: Path) -> set[int]:
    """The bytes of the lock files that a process has locked: its descriptors show the locks of their open file descriptions."""
    held: set[int] = set()
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                path = Path(os.readlink(f"/proc/{pid}/fd/{name}"))
                if path.parent == data and path.name.partition(".")[0] == LOCKS_FILE:
                    lines = Path(f"/proc/{pid}/fdinfo/{name}").read_text().splitlines()
                    held.update(int(line.split()[-2]) for line in lines if line.startswith("lock:"))
    return held


def served(links: Links, id: int, topics: Mapping[str, int]) -> set[LogId]:
    """The partitions for which the node gives an end offset, as only a leader does; none if it does not answer."""
    asked = [ListOffsetsTopic(name, [ListOffsetsPartition(number, -1, LATEST) for number in range(count)]) for name, count in topics.items()]
    try:
        reply = links.ask(id, ListOffsetsRequest(-1, 0, asked), LIST_OFFSETS_VERSION)
    except OSError:
        return set()
    return {LogId(topic.name, partition.partition_index) for topic in reply.topics for partition in topic.partitions if not partition.error_code}


def status(links: Links, id: int) -> dict[str, str]:
    """The `status.*` entries of a node; empty if it does not answer."""
    try:
        reply = links.ask(id, DescribeConfigsRequest([DescribeConfigsResource(BROKER_RESOURCE, str(id), None)]), DESCRIBE_CONFIGS_VERSION)
    except OSError:
        return {}
    return {config.name: config.value for config in reply.results[0].configs if config.name.startswith("status.")}


def claimed(links: Links, id: int) -> set[LogId]:
    """The partitions of topics that the node's own status lists."""
    listed = status(links, id).get("status.topics.owned", "")
    return {LogId(name, int(number)) for name, _, number in (log.rpartition("-") for log in listed.split(",") if log)}


def topic_ids(links: Links, id: int, names: Iterable[str]) -> dict[str, bytes]:
    """The topics of these names, as the node knows them; empty if it does not answer."""
    try:
        reply = links.ask(id, MetadataRequest([MetadataRequestTopic(name=name) for name in names], False), METADATA_VERSION)
    except OSError:
        return {}
    return {topic.name: topic.topic_id for topic in reply.topics if topic.name and not topic.error_code}


def wrong_owners(links: Links, ids: Iterable[int], topics: Mapping[str, int], held: Callable[[int], set[int]] | None) -> set[tuple[str, LogId]]:
    """Violations in one look at all nodes. `held`: the lock bytes that a node's process holds; None: the store has no locks.

    Looks at different nodes are at different times, so a log that moves meanwhile may look wrong once, but not twice. A node that was frozen
    may still have the log of a deleted topic while another has that of the new topic of the same name: those are two logs.
    """
    wrong: set[tuple[str, LogId]] = set()
    for what in ("serves", "claims"):
        by_log: dict[tuple[LogId, bytes], list[int]] = {}
        for id in ids:
            before = held(id) if held is not None else set()
            logs = served(links, id, topics) if what == "serves" else claimed(links, id)
            after = held(id) if held is not None else set()
            known = topic_ids(links, id, topics)
            for log in logs:
                by_log.setdefault((log, known.get(log.name, b"")), []).append(id)
                if after and lock_byte_of(log) not in before | after:
                    wrong.add((f"node {id} {what} a log without its lock", log))
        wrong.update((f"nodes {nodes} {what.removesuffix('s')} one log", log) for (log, _), nodes in by_log.items() if len(nodes) > 1)
    return wrong
