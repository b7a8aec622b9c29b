"""The status of a node and its logs, for `tenure cluster`."""

from __future__ import annotations

from typing import Final

from broker.cluster.cluster import Cluster
from broker.internal_topics import CONSUMER_OFFSETS, REGISTRY_LOG, REGISTRY_LOG_ID
from broker.runtime.clock import Clock

LISTED_MAX: Final = 1_000  # partitions of topics; the leaders of all partitions are in Metadata


def status(cluster: Cluster, clock: Clock) -> dict[str, str]:
    """The `status.*` entries of a node in DescribeConfigs; times are in milliseconds since 1970."""
    wall_offset = clock.wall - clock.tick()  # from monotonic to wall time
    owned = cluster.ownership.owned()
    groups = {id: since for id, since in owned.items() if id.name == CONSUMER_OFFSETS}
    topics = {id: since for id, since in owned.items() if id.name not in (CONSUMER_OFFSETS, REGISTRY_LOG)}
    members = cluster.members
    return {
        "status.node": "draining" if cluster.node_id in members.draining else "serving",
        "status.started.ms": str(cluster.started_ms + wall_offset),
        "status.controller": str(cluster.registry.is_controller).lower(),
        "status.controller.since.ms": str(owned[REGISTRY_LOG_ID] + wall_offset) if REGISTRY_LOG_ID in owned else "",
        "status.live.nodes": ",".join(map(str, sorted(members.live))),
        "status.draining.nodes": ",".join(map(str, sorted(members.draining))),
        "status.groups.partitions": str(len(groups)),
        "status.groups.owned": ",".join(str(id.partition) for id in sorted(groups)),
        "status.groups.newest.ms": str(max(groups.values()) + wall_offset) if groups else "",
        "status.topics.partitions": str(len(topics)),
        "status.topics.owned": ",".join(map(str, sorted(topics)[:LISTED_MAX])),
        "status.topics.newest.ms": str(max(topics.values()) + wall_offset) if topics else "",
        "status.settled": str(cluster.settled).lower(),
    }
