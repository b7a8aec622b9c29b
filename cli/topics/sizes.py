"""The number of records of topics, and the bytes of partitions on the disks of their leaders."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from cli.client import Exit, Failure, TopicPartition, by_topic
from cli.topics.log_offsets import EARLIEST, LATEST, log_offsets
from protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

if TYPE_CHECKING:
    from cli.client import Cluster, TopicInfo

UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


class Contents(NamedTuple):
    """The totals of a topic. A total is None if it is unknown for one of the partitions."""

    records: int | None
    bytes: int | None


def partition_sizes(cluster: Cluster, topics: Mapping[str, TopicInfo]) -> dict[TopicPartition, int]:
    """The size of each partition whose leader reports it. If the cluster refuses DescribeLogDirs or lacks it, the result is empty."""
    sizes: dict[TopicPartition, int] = {}
    for leader, partitions in partitions_by_leader(topics).items():
        if leader not in cluster.brokers:
            continue
        try:
            log_dir_topics = [DescribableLogDirTopic(name, numbers) for name, numbers in by_topic(partitions).items()]
            reply = cluster.send_to_broker(leader, DescribeLogDirsRequest(log_dir_topics), retry=False)
        except Failure as failure:
            if failure.exit_code in (Exit.UNSUPPORTED, Exit.FORBIDDEN):
                return {}
            if failure.exit_code == Exit.UNREACHABLE:  # the leader has just failed, and is still in the metadata
                continue
            raise
        for directory in reply.results:
            for topic in directory.topics:
                for partition in topic.partitions:
                    if not partition.is_future_key:
                        sizes[topic.name, partition.partition_index] = partition.partition_size
    return sizes


def topic_contents(cluster: Cluster, topics: Mapping[str, TopicInfo]) -> dict[str, Contents]:
    """The number of records and bytes of each topic."""
    partitions = {name: [(name, number) for number in topic.partitions] for name, topic in topics.items()}
    all_partitions = list(chain.from_iterable(partitions.values()))
    starts = log_offsets(cluster, dict.fromkeys(all_partitions, EARLIEST), retry=False)
    ends = log_offsets(cluster, dict.fromkeys(all_partitions, LATEST), retry=False)
    sizes = partition_sizes(cluster, topics)
    contents = {}
    for name, of_topic in partitions.items():
        known = all(not starts[tp].error and not ends[tp].error for tp in of_topic)
        records = sum(ends[tp].offset - starts[tp].offset for tp in of_topic) if known else None
        contents[name] = Contents(records, sum(sizes[tp] for tp in of_topic) if of_topic and all(tp in sizes for tp in of_topic) else None)
    return contents


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
