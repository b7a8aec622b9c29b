"""Request the offsets of groups: committed offsets, start and end of the logs, members.

Few requests whatever the number of partitions: one OffsetFetch for each coordinator (one for each group before Kafka 3.0),
two ListOffsets for each leader.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cli.client import EXIT, Failure, check, failure
from cli.failure import UNKNOWN_PARTITION
from cli.groups.offsets_plan import Bounds, Committed, Key
from cli.topics.finding import required
from cli.topics.log_offsets import EARLIEST, LATEST, log_offsets
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.records import read_subscription

if TYPE_CHECKING:
    from cli.client import Cluster, TopicInfo

MANY_GROUPS_VERSION = 8
ALL_TOPICS_VERSION = 2
TYPES_VERSION = 5  # of ListGroups
MOVING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


class Standing(NamedTuple):
    """Whether the group exists, and its members."""

    exists: bool
    state: str
    members: int
    topics: frozenset[str] = frozenset()  # that members are subscribed to, as far as the cluster says
    kind: str = "consumer"

    @property
    def shares(self) -> bool:
        """A share group keeps no offsets of this kind."""
        return self.kind == "share"

    @property
    def idle(self) -> bool:
        return not self.members and self.state.lower() in ("empty", "dead", "")


# Committed offsets


def committed(cluster: Cluster, groups: Sequence[str]) -> dict[str, dict[Key, Committed]]:
    """All that these groups have committed; a group that does not exist has committed nothing."""
    found: dict[str, dict[Key, Committed]] = {}
    if len(groups) > 1:
        for broker_id, names in cluster.coordinators(groups).items():
            if len(names) > 1 and cluster.version(OffsetFetchRequest.API_KEY, broker_id) >= MANY_GROUPS_VERSION:
                reply = cluster.node(broker_id, OffsetFetchRequest([OffsetFetchRequestGroup(name) for name in names]))
                for group in reply.groups:
                    if group.error_code not in MOVING:  # those that move are asked for alone, as often as it takes
                        found[group.group_id] = offsets_of(group, group.group_id)
    for name in groups:
        if name not in found:
            request = OffsetFetchRequest([OffsetFetchRequestGroup(name)], name)
            reply = cluster.coordinator(name, request, oldest=ALL_TOPICS_VERSION)
            found[name] = offsets_of(reply.groups[0] if reply.groups else reply, name)
    return found


def offsets_of(reply: Any, group: str) -> dict[Key, Committed]:
    if reply.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return {}
    check(reply.error_code, f"group {group}")
    found: dict[Key, Committed] = {}
    for topic in reply.topics:
        for partition in topic.partitions:
            check(partition.error_code, f"group {group}, topic {topic.name} partition {partition.partition_index}")
            if partition.committed_offset >= 0:
                epoch, metadata = partition.committed_leader_epoch, partition.metadata or ""
                found[topic.name, partition.partition_index] = Committed(partition.committed_offset, epoch, metadata)
    return found


# The logs


def partitions_named(cluster: Cluster, named: Mapping[str, Collection[int] | None]) -> set[Key]:
    """The partitions of these topics, or the named ones; Failure if one of them does not exist."""
    topics = required(cluster, list(named)) if named else {}
    keys: set[Key] = set()
    for topic, wanted in named.items():
        there = topics[topic].partitions
        lacking = sorted(set(wanted or ()) - there.keys())
        if lacking:
            raise Failure(EXIT.MISSING, f"topic {topic} has no partition {', '.join(map(str, lacking[:5]))}: it has {len(there)}, from 0 on", word=UNKNOWN_PARTITION)
        keys |= {(topic, partition) for partition in (there if wanted is None else wanted)}
    return keys


def gone(cluster: Cluster, keys: Iterable[Key]) -> dict[Key, int]:
    """Those of the partitions that are not there, and the error that says so (UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED)."""
    keys = set(keys)
    topics = cluster.topics(sorted({topic for topic, _ in keys})) if keys else {}
    return {key: error for key in keys if (error := error_of(topics[key[0]], key[1]))}


def error_of(topic: TopicInfo, partition: int) -> int:
    if topic.error and topic.error != ErrorCode.LEADER_NOT_AVAILABLE:
        return topic.error
    if partition not in topic.partitions and not topic.error:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def bounds(cluster: Cluster, keys: Iterable[Key], *, patient: bool = True) -> tuple[dict[Key, Bounds], dict[Key, int]]:
    """Where the logs begin and end, and the errors of those that could not be asked."""
    keys = sorted(keys)
    if not keys:
        return {}, {}
    begins = log_offsets(cluster, dict.fromkeys(keys, EARLIEST), patient=patient)
    errors = {key: found.error for key, found in begins.items() if found.error}
    ends = log_offsets(cluster, {key: LATEST for key in keys if key not in errors}, patient=patient)
    errors |= {key: found.error for key, found in ends.items() if found.error}
    return {key: Bounds(begins[key].offset, ends[key].offset) for key in keys if key not in errors}, errors


def first_since(cluster: Cluster, keys: Iterable[Key], ms: int) -> dict[Key, Committed | None]:
    """The offset of the first record at or after that time, or None."""
    found = log_offsets(cluster, dict.fromkeys(keys, ms))
    raise_for({key: answer.error for key, answer in found.items() if answer.error})
    return {key: None if answer.offset < 0 else Committed(answer.offset) for key, answer in found.items()}


def raise_for(errors: Mapping[Key, int]) -> None:
    """A single partition that fails stops everything: no partial changes."""
    if errors:
        (topic, partition), error = min(errors.items())
        raise failure(error, f"topic {topic} partition {partition}")


# The group


def standing(cluster: Cluster, group: str) -> Standing:
    """Of a group of either protocol: KIP-848's are described by an API of their own."""
    if cluster.version(ConsumerGroupDescribeRequest.API_KEY) >= 0:
        modern = cluster.coordinator(group, ConsumerGroupDescribeRequest([group])).groups[0]
        if modern.error_code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            check(modern.error_code, f"group {group}", modern.error_message)
            topics = {name for member in modern.members for name in member.subscribed_topic_names}
            topics |= {part.topic_name for member in modern.members for part in member.assignment.topic_partitions}
            return Standing(True, modern.group_state, len(modern.members), frozenset(topics))
    classic = cluster.coordinator(group, DescribeGroupsRequest([group])).groups[0]
    if classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND or (classic.group_state == "Dead" and not classic.error_code):
        return of_another_kind(cluster, group) or Standing(False, "", 0)
    check(classic.error_code, f"group {group}", classic.error_message)
    subscribed = frozenset(name for member in classic.members for name in subscription(classic.protocol_type, member.member_metadata))
    return Standing(True, classic.group_state, len(classic.members), subscribed)


def of_another_kind(cluster: Cluster, group: str) -> Standing | None:
    """A share or Kafka Streams group, for which DescribeGroups returns an error."""
    if cluster.version(ListGroupsRequest.API_KEY) < TYPES_VERSION:
        return None
    listed = cluster.coordinator(group, ListGroupsRequest([], ["share", "streams"])).groups
    return next((Standing(True, one.group_state, 0, kind=one.group_type.lower()) for one in listed if one.group_id == group), None)


def subscription(protocol_type: str, metadata: bytes) -> Sequence[str]:
    if protocol_type != "consumer" or not metadata:
        return ()
    try:
        return read_subscription(metadata).topics
    except ProtocolError:  # of a client that writes its own
        return ()
