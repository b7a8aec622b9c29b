"""The route of one request to the broker that answers it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from cli.client.connection import Connection
from cli.failure import Failure

# Idempotent requests: Fetch, ListOffsets, Metadata, OffsetCommit, OffsetFetch, FindCoordinator, Heartbeat, DescribeGroups, ListGroups,
# ApiVersions, InitProducerId, OffsetForLeaderEpoch, DescribeConfigs, DescribeLogDirs, OffsetDelete, DescribeCluster, ConsumerGroupDescribe, DescribeTopicPartitions,
# ListConfigResources.
REPEATABLE = frozenset((1, 2, 3, 8, 9, 10, 12, 15, 16, 18, 22, 23, 32, 35, 47, 60, 69, 74, 75))


def no_problem(reply: Any) -> Failure | None:
    return None


def no_broker() -> None:
    return None


class Route(NamedTuple):
    """`find`: connects to the broker before a deadline; `retriable_problem`: the retriable problem of a reply, if any; `forget`: runs before a retry;
    `retry`: whether to try again after a retriable problem.
    """

    find: Callable[[float], Connection]
    retriable_problem: Callable[[Any], Failure | None] = no_problem
    forget: Callable[[], None] = no_broker
    retry: bool = True
