"""The number of records of topics, and the bytes of partitions on the disks of their leaders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from cli.client import EXIT, Failure
from cli.topics.log_offsets import EARLIEST, LATEST, Place, log_offsets
from protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

if TYPE_CHECKING:
    from cli.client import Cluster, TopicInfo

UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


class Contents(NamedTuple):
    """The totals of a topic; None if unknown for one of its partitions."""

    records: int | None
    bytes: int | None


def partition_sizes(cluster: Cluster, topics: Mapping[str, TopicInfo]) -> dict[Place, int]:
    """The size of each partition whose leader reports it. This needs a separate permission; without it there are no sizes."""
    sizes: dict[Place, int] = {}
    for leader, places in places_by_leader(topics).items():
        if leader not in cluster.brokers:
            continue
        try:
            reply = cluster.node(leader, DescribeLogDirsRequest(log_dir_topics(places)), patient=False)
        except Failure as failure:
            if failure.code in (EXIT.LACKING, EXIT.FORBIDDEN):
                return {}
            if failure.code == EXIT.UNREACHABLE:  # and still in the metadata
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
    places = {name: [(name, number) for number in topic.partitions] for name, topic in topics.items()}
    all_places = list(chain.from_iterable(places.values()))
    starts = log_offsets(cluster, dict.fromkeys(all_places, EARLIEST), patient=False)
    ends = log_offsets(cluster, dict.fromkeys(all_places, LATEST), patient=False)
    sizes = partition_sizes(cluster, topics)
    contents = {}
    for name, topic_places in places.items():
        known = all(not starts[place].error and not ends[place].error for place in topic_places)
        records = sum(ends[place].offset - starts[place].offset for place in topic_places) if known else None
        contents[name] = Contents(records, sum(sizes[place] for place in topic_places) if topic_places and all(place in sizes for place in topic_places) else None)
    return contents


def places_by_leader(topics: Mapping[str, TopicInfo]) -> dict[int, list[Place]]:
    leaders: dict[int, list[Place]] = {}
    for name, topic in topics.items():
        for number, partition in topic.partitions.items():
            leaders.setdefault(partition.leader, []).append((name, number))
    return leaders


def log_dir_topics(places: Iterable[Place]) -> list[DescribableLogDirTopic]:
    topics: dict[str, DescribableLogDirTopic] = {}
    for name, partition in places:
        topics.setdefault(name, DescribableLogDirTopic(name)).partitions.append(partition)
    return list(topics.values())


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
