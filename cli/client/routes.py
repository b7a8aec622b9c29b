"""The way of one request to the broker that answers it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from cli.client.connection import Connection
from cli.failure import Failure

# Asking twice is as asking once: Fetch, ListOffsets, Metadata, OffsetCommit, OffsetFetch, FindCoordinator, Heartbeat, DescribeGroups, ListGroups,
# ApiVersions, InitProducerId, OffsetForLeaderEpoch, DescribeConfigs, DescribeLogDirs, OffsetDelete, DescribeCluster, ConsumerGroupDescribe, DescribeTopicPartitions.
REPEATABLE = frozenset((1, 2, 3, 8, 9, 10, 12, 15, 16, 18, 22, 23, 32, 35, 47, 60, 69, 75))


def good(reply: Any) -> Failure | None:
    return None


def nothing() -> None:
    return None


class Route(NamedTuple):
    """Whom to ask, before a deadline; why a reply is none yet (None: it is one); what to find out anew before asking again; and whether to."""

    find: Callable[[float], Connection]
    again: Callable[[Any], Failure | None] = good
    forget: Callable[[], None] = nothing
    patient: bool = True
