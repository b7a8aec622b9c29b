"""How many records topics hold, and how many bytes partitions take on the disks of their leaders, where the cluster says so."""

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
    """Of a whole topic; None where it is not known of each partition."""

    records: int | None
    bytes: int | None


def partition_sizes(cluster: Cluster, topics: Mapping[str, TopicInfo]) -> dict[Place, int]:
    """Of the partitions whose leaders report it. Reading log directories needs a separate right; without it sizes are left out."""
    sizes: dict[Place, int] = {}
    for leader, places in led(topics).items():
        if leader not in cluster.brokers:
            continue
        try:
            reply = cluster.node(leader, DescribeLogDirsRequest(asked(places)), patient=False)
        except Failure as failure:
            if failure.code in (EXIT.LACKING, EXIT.FORBIDDEN):
                return {}
            if failure.code == EXIT.UNREACHABLE:  # and not yet known to be gone
                continue
            raise
        for directory in reply.results:
            for topic in directory.topics:
                for partition in topic.partitions:
                    if not partition.is_future_key:
                        sizes[topic.name, partition.partition_index] = partition.partition_size
    return sizes


def contents(cluster: Cluster, topics: Mapping[str, TopicInfo]) -> dict[str, Contents]:
    """The number of records and bytes of each topic."""
    places = {name: [(name, number) for number in topic.partitions] for name, topic in topics.items()}
    every = list(chain.from_iterable(places.values()))
    begins = log_offsets(cluster, dict.fromkeys(every, EARLIEST), patient=False)
    ends = log_offsets(cluster, dict.fromkeys(every, LATEST), patient=False)
    sizes = partition_sizes(cluster, topics)
    found = {}
    for name, own in places.items():
        known = all(not begins[place].error and not ends[place].error for place in own)
        records = sum(ends[place].offset - begins[place].offset for place in own) if known else None
        found[name] = Contents(records, sum(sizes[place] for place in own) if own and all(place in sizes for place in own) else None)
    return found


def led(topics: Mapping[str, TopicInfo]) -> dict[int, list[Place]]:
    leaders: dict[int, list[Place]] = {}
    for name, topic in topics.items():
        for number, partition in topic.partitions.items():
            leaders.setdefault(partition.leader, []).append((name, number))
    return leaders


def asked(places: Iterable[Place]) -> list[DescribableLogDirTopic]:
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
