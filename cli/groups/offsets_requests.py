"""Fetch committed offsets, the start and end of logs, and whether a group has members.

The number of requests does not depend on the number of partitions: one OffsetFetch for each coordinator (for each group before Kafka 3.0),
two ListOffsets for each leader.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cli.client import Exit, Failure, TopicPartition, check
from cli.failure import UNKNOWN_PARTITION
from cli.groups.offsets_plan import Bounds, Committed
from cli.topics.finding import required_topics
from cli.topics.log_offsets import log_bounds, log_offsets
from history.words import list_names
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.records import read_subscription

if TYPE_CHECKING:
    from cli.client import Cluster, TopicInfo

MANY_GROUPS_VERSION = 8  # of OffsetFetch
ALL_TOPICS_VERSION = 2  # of OffsetFetch
TYPES_VERSION = 5  # of ListGroups


class GroupStatus(NamedTuple):
    """Whether a group exists, its state, and its members."""

    exists: bool
    state: str
    members: int
    topics: frozenset[str] = frozenset()  # subscribed to by members, as far as the cluster reports them
    kind: str = "consumer"

    @property
    def is_share_group(self) -> bool:
        """Share groups have no committed offsets."""
        return self.kind == "share"

    @property
    def is_empty(self) -> bool:
        return not self.members and self.state.lower() in ("empty", "dead", "")


# Committed offsets


def fetch_committed(cluster: Cluster, groups: Sequence[str], problems: dict[str, Failure] | None = None) -> dict[str, dict[TopicPartition, Committed]]:
    """The committed offsets of each group: an empty dict for a group that does not exist.

    A group whose offsets cannot be fetched, as this user may not or its coordinator does not answer, gets an empty dict and an entry in `problems`; without `problems` its Failure is raised.
    """

    def ask(broker_id: int, names: list[str]) -> dict[str, dict[TopicPartition, Committed] | Failure]:
        many = cluster.version(OffsetFetchRequest.API_KEY, broker_id) >= MANY_GROUPS_VERSION
        offsets: dict[str, dict[TopicPartition, Committed] | Failure] = {}
        for together in [names] if many else [[name] for name in names]:
            request = OffsetFetchRequest([OffsetFetchRequestGroup(name) for name in together], together[0])
            reply = cluster.send_to_broker(broker_id, request, oldest=ALL_TOPICS_VERSION)
            offsets |= {group.group_id: offsets_or_failure(group, group.group_id) for group in reply.groups}
            if not reply.groups:
                offsets[together[0]] = offsets_or_failure(reply, together[0])
        return offsets

    found: dict[str, dict[TopicPartition, Committed]] = cluster.by_coordinator(groups, ask, failed=problems)
    return {name: found.get(name, {}) for name in groups}


def offsets_or_failure(reply: Any, group: str) -> dict[TopicPartition, Committed] | Failure:
    try:
        return offsets_of(reply, group)
    except Failure as problem:
        return problem


def offsets_of(reply: Any, group: str) -> dict[TopicPartition, Committed]:
    if reply.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return {}
    check(reply.error_code, f"group {group}")
    offsets: dict[TopicPartition, Committed] = {}
    for topic in reply.topics:
        for partition in topic.partitions:
            check(partition.error_code, f"group {group}, topic {topic.name} partition {partition.partition_index}")
            if partition.committed_offset >= 0:
                epoch, metadata = partition.committed_leader_epoch, partition.metadata or ""
                offsets[topic.name, partition.partition_index] = Committed(partition.committed_offset, epoch, metadata)
    return offsets


# The logs


def partitions_of(cluster: Cluster, scopes: Mapping[str, Collection[int] | None]) -> set[TopicPartition]:
    """The named partitions of each topic (None: all its partitions). Raises Failure if one does not exist."""
    topics = required_topics(cluster, list(scopes)) if scopes else {}
    partitions: set[TopicPartition] = set()
    for topic, numbers in scopes.items():
        existing = topics[topic].partitions
        missing = sorted(set(numbers or ()) - existing.keys())
        if missing:
            raise Failure(Exit.MISSING, f"topic {topic} has no partition {list_names(map(str, missing))}: it has {len(existing)}, numbered from 0", kind=UNKNOWN_PARTITION)
        partitions |= {(topic, partition) for partition in (existing if numbers is None else numbers)}
    return partitions


def missing_partitions(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The error code of each of these partitions that does not exist, or that this client may not see."""
    partitions = set(partitions)
    topics = cluster.topics(sorted({topic for topic, _ in partitions})) if partitions else {}
    return {tp: error for tp in partitions if (error := metadata_error(topics[tp[0]], tp[1]))}


def metadata_error(topic: TopicInfo, partition: int) -> int:
    if topic.error and topic.error != ErrorCode.LEADER_NOT_AVAILABLE:
        return topic.error
    if partition not in topic.partitions and not topic.error:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def bounds(cluster: Cluster, partitions: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, Bounds], dict[TopicPartition, int]]:
    """The start and end offset of each log, and the error code of each partition without them after retries within --timeout."""
    starts, ends = log_bounds(cluster, sorted(partitions))
    errors = {tp: error for tp, start in starts.items() if (error := start.error or ends[tp].error)}
    return {tp: Bounds(start.offset, ends[tp].offset) for tp, start in starts.items() if tp not in errors}, errors


def first_since(cluster: Cluster, partitions: Iterable[TopicPartition], ms: int) -> tuple[dict[TopicPartition, Committed | None], dict[TopicPartition, int]]:
    """For each partition the offset of the first record at or after this time (None: no such record), and the error codes of the others."""
    results = log_offsets(cluster, dict.fromkeys(partitions, ms))
    errors = {tp: result.error for tp, result in results.items() if result.error}
    return {tp: None if result.offset < 0 else Committed(result.offset) for tp, result in results.items() if tp not in errors}, errors


# The group


def group_status(cluster: Cluster, group: str) -> GroupStatus:
    """Describe a group, by ConsumerGroupDescribe (KIP-848) or else by DescribeGroups."""
    if cluster.version(ConsumerGroupDescribeRequest.API_KEY) >= 0:
        consumer_group = cluster.send_to_coordinator(group, ConsumerGroupDescribeRequest([group])).groups[0]
        if consumer_group.error_code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            check(consumer_group.error_code, f"group {group}", consumer_group.error_message)
            topics = {name for member in consumer_group.members for name in member.subscribed_topic_names}
            topics |= {part.topic_name for member in consumer_group.members for part in member.assignment.topic_partitions}
            return GroupStatus(True, consumer_group.group_state, len(consumer_group.members), frozenset(topics))
    classic_group = cluster.send_to_coordinator(group, DescribeGroupsRequest([group])).groups[0]
    if classic_group.error_code == ErrorCode.GROUP_ID_NOT_FOUND or (classic_group.group_state == "Dead" and not classic_group.error_code):
        return other_type_status(cluster, group) or GroupStatus(False, "", 0)
    check(classic_group.error_code, f"group {group}", classic_group.error_message)
    subscribed = frozenset(name for member in classic_group.members for name in subscribed_topics(classic_group.protocol_type, member.member_metadata))
    return GroupStatus(True, classic_group.group_state, len(classic_group.members), subscribed)


def other_type_status(cluster: Cluster, group: str) -> GroupStatus | None:
    """The status of a share or streams group, which DescribeGroups reports as missing."""
    if cluster.version(ListGroupsRequest.API_KEY) < TYPES_VERSION:
        return None
    listed = cluster.send_to_coordinator(group, ListGroupsRequest([], ["share", "streams"])).groups
    return next((GroupStatus(True, entry.group_state, 0, kind=entry.group_type.lower()) for entry in listed if entry.group_id == group), None)


def subscribed_topics(protocol_type: str, metadata: bytes) -> Sequence[str]:
    if protocol_type != "consumer" or not metadata:
        return ()
    try:
        return read_subscription(metadata).topics
    except ProtocolError:  # a client may write any bytes
        return ()
