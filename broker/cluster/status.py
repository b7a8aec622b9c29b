"""What a node is and owns, for people."""

from __future__ import annotations

from broker.cluster.cluster import Cluster
from broker.cluster.routing import TOPIC_REGISTRY
from broker.internal_topics import CONSUMER_OFFSETS, REGISTRY_LOG
from broker.runtime.clock import Clock


def status(cluster: Cluster, clock: Clock) -> dict[str, str]:
    """The `status.*` entries of a node in DescribeConfigs; times are in milliseconds since 1970."""
    back = clock.wall - clock.tick()  # from monotonic to wall time
    owned = cluster.ownership.owned()
    groups = {id: since for id, since in owned.items() if id.name == CONSUMER_OFFSETS}
    topics = {id: since for id, since in owned.items() if id.name not in (CONSUMER_OFFSETS, REGISTRY_LOG)}
    members = cluster.members
    return {
        "status.node": "draining" if cluster.me in members.draining else "serving",
        "status.started.ms": str(cluster.started_ms + back),
        "status.controller": str(cluster.registry.leading).lower(),
        "status.controller.since.ms": str(owned[TOPIC_REGISTRY] + back) if TOPIC_REGISTRY in owned else "",
        "status.live.nodes": ",".join(map(str, sorted(members.live))),
        "status.draining.nodes": ",".join(map(str, sorted(members.draining))),
        "status.groups.partitions": str(len(groups)),
        "status.groups.newest.ms": str(max(groups.values()) + back) if groups else "",
        "status.topics.partitions": str(len(topics)),
        "status.topics.newest.ms": str(max(topics.values()) + back) if topics else "",
        "status.settled": str(cluster.settled).lower(),
    }
