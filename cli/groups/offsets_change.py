"""OffsetCommit and OffsetDelete without a member, and their errors by partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import TYPE_CHECKING, TypeVar

from cli.client import TopicPartition, by_topic, check
from cli.groups.offsets_plan import OffsetChange
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic

if TYPE_CHECKING:
    from cli.client import Cluster

Item = TypeVar("Item")
PARTITIONS_AT_ONCE = 2000  # partitions in one request, far below any broker's limit
NO_MEMBER = ""  # the member id of a commit without a member; accepted while the group is empty
NO_GENERATION = -1

# With these errors the broker refuses a commit without a member while the group has members.
HAS_MEMBERS = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH)


def commit(cluster: Cluster, group: str, plan: Sequence[OffsetChange]) -> dict[TopicPartition, int]:
    """Commit offsets; return the errors by partition."""
    errors: dict[TopicPartition, int] = {}
    for moves in chunks(sorted(plan, key=lambda move: (move.topic, move.partition))):
        topics = [
            OffsetCommitRequestTopic(
                topic,
                [OffsetCommitRequestPartition(move.partition, move.after.offset, move.after.leader_epoch, move.after.metadata) for move in moves_of_topic],
            )
            for topic, moves_of_topic in groupby(moves, key=lambda move: move.topic)
        ]
        reply = cluster.send_to_coordinator(group, OffsetCommitRequest(group, NO_GENERATION, NO_MEMBER, topics=topics))
        for topic in reply.topics:
            errors |= {(topic.name, partition.partition_index): partition.error_code for partition in topic.partitions if partition.error_code}
    return errors


def delete(cluster: Cluster, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Delete offsets; return the errors by partition."""
    errors: dict[TopicPartition, int] = {}
    for chunk in chunks(sorted(partitions)):
        topics = [
            OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(number) for number in numbers])
            for topic, numbers in by_topic(chunk).items()
        ]
        reply = cluster.send_to_coordinator(group, OffsetDeleteRequest(group, topics))
        check(reply.error_code, f"group {group}")
        for topic in reply.topics:
            errors |= {(topic.name, partition.partition_index): partition.error_code for partition in topic.partitions if partition.error_code}
    return errors


def chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    remaining = iter(items)
    while chunk := list(islice(remaining, PARTITIONS_AT_ONCE)):
        yield chunk
