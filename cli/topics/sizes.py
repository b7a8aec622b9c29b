"""What the logs of topics hold: start and end, records, and bytes on the disks of their leaders; and of which partitions that is not known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from cli.client import Exit, Failure, TopicPartition, by_topic
from cli.topics.log_offsets import LogOffset, log_bounds
from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

if TYPE_CHECKING:
    from cli.client import Cluster, TopicInfo

UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


class Logs(NamedTuple):
    """The logs of topics. `topics`: as the cluster knows them after it was waited for; `errors`: why partitions are unknown, in part or as a whole."""

    topics: Mapping[str, TopicInfo]
    starts: Mapping[TopicPartition, LogOffset]
    ends: Mapping[TopicPartition, LogOffset]
    sizes: Mapping[TopicPartition, int]
    errors: Mapping[TopicPartition, int]

    def bounds(self, tp: TopicPartition) -> tuple[int, int] | None:
        start, end = self.starts[tp], self.ends[tp]
        return None if start.error or end.error else (start.offset, end.offset)

    def records(self, topic: str) -> int | None:
        """The number of records of a topic; None if it is unknown for one of its partitions."""
        total = 0
        for number in self.topics[topic].partitions:
            bounds = self.bounds((topic, number))
            if bounds is None:
                return None
            total += bounds[1] - bounds[0]
        return total

    def bytes(self, topic: str) -> int | None:
        sizes = [self.sizes.get((topic, number)) for number in self.topics[topic].partitions]
        return None if None in sizes or not sizes else sum(size for size in sizes if size is not None)

    def unknown_partitions(self, topic: str) -> int:
        return sum(name == topic for name, _ in self.errors)


def logs_of(cluster: Cluster, topics: Mapping[str, TopicInfo]) -> Logs:
    """Ask the leaders. Those that do not answer are asked again within --timeout, as other brokers may lead by then."""
    partitions = [(name, number) for name, topic in topics.items() for number in topic.partitions]
    try:
        starts, ends = log_bounds(cluster, partitions)
    except Failure as failure:
        if failure.exit_code != Exit.UNREACHABLE:
            raise
        starts = ends = dict.fromkeys(partitions, LogOffset(-1, -1, ErrorCode.NETWORK_EXCEPTION))  # no leader answers, but the metadata is known
    now = {name: topic for name, topic in cluster.topics(list(topics)).items() if not topic.error and topic.partitions.keys() == topics[name].partitions.keys()}
    current = {**topics, **now}
    errors = {tp: error for tp in partitions if (error := starts[tp].error or ends[tp].error)}
    sizes, without_size = partition_sizes(cluster, current)
    return Logs(current, starts, ends, sizes, without_size | errors)


def partition_sizes(cluster: Cluster, topics: Mapping[str, TopicInfo]) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The size of each partition whose leader reports it, and the error codes of those whose leader does not answer.

    If the cluster refuses DescribeLogDirs or lacks it, the result is empty.
    """
    sizes: dict[TopicPartition, int] = {}
    errors: dict[TopicPartition, int] = {}
    by_leader = partitions_by_leader(topics)
    for leader in cluster.answering_first(by_leader):
        partitions = by_leader[leader]
        if leader not in cluster.brokers:
            errors |= dict.fromkeys(partitions, int(ErrorCode.LEADER_NOT_AVAILABLE))
            continue
        try:
            log_dir_topics = [DescribableLogDirTopic(name, numbers) for name, numbers in by_topic(partitions).items()]
            reply = cluster.send_to_broker(leader, DescribeLogDirsRequest(log_dir_topics), retry=False)
        except Failure as failure:
            if failure.exit_code in (Exit.UNSUPPORTED, Exit.FORBIDDEN):
                return {}, {}
            if failure.exit_code == Exit.UNREACHABLE:  # the leader has just failed, and is still in the metadata
                errors |= dict.fromkeys(partitions, int(ErrorCode.NETWORK_EXCEPTION))
                continue
            raise
        for directory in reply.results:
            for topic in directory.topics:
                for partition in topic.partitions:
                    if not partition.is_future_key:
                        sizes[topic.name, partition.partition_index] = partition.partition_size
    return sizes, errors


def partitions_by_leader(topics: Mapping[str, TopicInfo]) -> dict[int, list[TopicPartition]]:
    leaders: dict[int, list[TopicPartition]] = {}
    for name, topic in topics.items():
        for number, partition in topic.partitions.items():
            leaders.setdefault(partition.leader, []).append((name, number))
    return leaders


def shown_bytes(size: int | None) -> str | None:
    if size is None:
        return None
    if size < 1024:
        return f"{size} B"
    amount = float(size)
    for unit in UNITS:
        amount /= 1024
        if amount < 1023.95 or unit == UNITS[-1]:
            break
    return f"{amount:.1f} {unit}"
