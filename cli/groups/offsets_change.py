"""OffsetCommit and OffsetDelete without a member, and the partitions that they did not change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from cli.client import Failure, TopicPartition, by_topic, check
from cli.client.effects import Unanswered
from cli.groups.offsets_plan import OffsetChange
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic

if TYPE_CHECKING:
    from cli.client import Cluster

Item = TypeVar("Item")
Refusal = Callable[[int], Failure]  # the Failure for an error code of one partition
PARTITIONS_AT_ONCE = 2000  # partitions in one request, far below any broker's limit
NO_MEMBER = ""  # the member id of a commit without a member; accepted while the group is empty
NO_GENERATION = -1

# With these errors the broker refuses a commit without a member while the group has members.
HAS_MEMBERS = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH)


def commit(cluster: Cluster, group: str, plan: Sequence[OffsetChange], refusal: Refusal) -> dict[TopicPartition, Failure]:
    """Commit offsets; return the partitions that were not committed, and why."""
    changes = {(move.topic, move.partition): move.after for move in plan}

    def send(chunk: list[TopicPartition]) -> Any:
        topics = [
            OffsetCommitRequestTopic(
                topic,
                [OffsetCommitRequestPartition(number, after.offset, after.leader_epoch, after.metadata) for number in numbers for after in [changes[topic, number]]],
            )
            for topic, numbers in by_topic(chunk).items()
        ]
        return cluster.send_to_coordinator(group, OffsetCommitRequest(group, NO_GENERATION, NO_MEMBER, topics=topics))

    return in_chunks(changes, send, refusal)


def delete(cluster: Cluster, group: str, partitions: Iterable[TopicPartition], refusal: Refusal) -> dict[TopicPartition, Failure]:
    """Delete offsets; return the partitions whose offset was not deleted, and why."""

    def send(chunk: list[TopicPartition]) -> Any:
        topics = [
            OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(number) for number in numbers]) for topic, numbers in by_topic(chunk).items()
        ]
        reply = cluster.send_to_coordinator(group, OffsetDeleteRequest(group, topics))
        check(reply.error_code, f"group {group}")
        return reply

    return in_chunks(partitions, send, refusal)


def in_chunks(partitions: Iterable[TopicPartition], send: Callable[[list[TopicPartition]], Any], refusal: Refusal) -> dict[TopicPartition, Failure]:
    """Send one request after the other. If one fails after others were done, the partitions of this one and of those that follow get its Failure."""
    remaining = sorted(partitions)
    problems: dict[TopicPartition, Failure] = {}
    for number, chunk in enumerate(chunks(remaining)):
        try:
            reply = send(chunk)
        except Failure as failure:
            if not number:
                raise
            later = remaining[(number + 1) * PARTITIONS_AT_ONCE :]
            not_sent = failure.problem if isinstance(failure, Unanswered) else failure
            return problems | dict.fromkeys(chunk, failure) | dict.fromkeys(later, not_sent)
        for topic in reply.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    problems[topic.name, partition.partition_index] = refusal(partition.error_code)
    return problems


def chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    remaining = iter(items)
    while chunk := list(islice(remaining, PARTITIONS_AT_ONCE)):
        yield chunk
