"""The start and end of logs, and the first record at or after a time, from the leader of each partition."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from cli.client import by_topic
from cli.failure import Exit, Failure
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

if TYPE_CHECKING:
    from cli.client import Cluster, TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
PAUSE_SECONDS: Final = 0.1

# Errors that new metadata, or a short wait, may resolve.
RETRIABLE: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class LogOffset(NamedTuple):
    offset: int  # -1: none
    timestamp: int
    error: int


def log_offsets(cluster: Cluster, requested: Mapping[TopicPartition, int], *, retry: bool = True, committed: bool = False) -> dict[TopicPartition, LogOffset]:
    """The offset of each partition at the requested timestamp, EARLIEST or LATEST. `retry`: wait for a leader; `committed`: LATEST is the last
    stable offset, before the first open transaction.
    """
    results: dict[TopicPartition, LogOffset] = {}
    remaining = dict(requested)
    deadline = time.monotonic() + cluster.limits.call
    while True:
        unreachable: list[Failure] = []
        for tp, result in ask_leaders(cluster, remaining, committed, unreachable).items():
            results[tp] = result
            if result.error not in RETRIABLE:
                del remaining[tp]
        if retry and unreachable and time.monotonic() >= deadline:
            raise unreachable[0]
        if not remaining or not retry or time.monotonic() >= deadline:
            return results
        time.sleep(PAUSE_SECONDS)
        cluster.topics(sorted({topic for topic, _ in remaining}), refresh=True)


def ask_leaders(cluster: Cluster, requested: Mapping[TopicPartition, int], committed: bool, unreachable: list[Failure]) -> dict[TopicPartition, LogOffset]:
    """Send one ListOffsets to each leader. For an unreachable leader, append the Failure to `unreachable`: another broker may lead soon."""
    topics = cluster.topics(sorted({topic for topic, _ in requested}))
    results: dict[TopicPartition, LogOffset] = {}
    by_leader: dict[int, list[TopicPartition]] = {}
    for tp in requested:
        topic = topics[tp[0]]
        partition = topic.partitions.get(tp[1])
        if topic.error or partition is None:
            results[tp] = LogOffset(-1, -1, topic.error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif partition.leader not in cluster.brokers:
            results[tp] = LogOffset(-1, -1, ErrorCode.LEADER_NOT_AVAILABLE)
        else:
            by_leader.setdefault(partition.leader, []).append(tp)
    for leader, partitions in by_leader.items():
        request = ListOffsetsRequest(-1, int(committed), topics_of(partitions, requested), int(cluster.timeout * 1000))
        try:
            reply = cluster.send_to_broker(leader, request, retry=False)
        except Failure as failure:
            if failure.exit_code != Exit.UNREACHABLE:
                raise
            unreachable.append(failure)
            results |= dict.fromkeys(partitions, LogOffset(-1, -1, ErrorCode.NETWORK_EXCEPTION))
            continue
        for topic in reply.topics:
            for partition_reply in topic.partitions:
                results[topic.name, partition_reply.partition_index] = LogOffset(partition_reply.offset, partition_reply.timestamp, partition_reply.error_code)
    for tp in requested:
        results.setdefault(tp, LogOffset(-1, -1, ErrorCode.UNKNOWN_SERVER_ERROR))
    return results


def topics_of(partitions: Iterable[TopicPartition], requested: Mapping[TopicPartition, int]) -> list[ListOffsetsTopic]:
    return [
        ListOffsetsTopic(name, [ListOffsetsPartition(number, timestamp=requested[name, number]) for number in numbers])
        for name, numbers in by_topic(partitions).items()
    ]
