"""Describes groups, each by the API for its type.

The coordinator describes a classic group with DescribeGroups and a consumer group (KIP-848) with ConsumerGroupDescribe. Share and streams
groups have their own APIs, which this client lacks: of these groups it knows only the entries in ListGroups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cli.client import Failure, TopicPartition, by_topic, check, failure
from cli.groups.everywhere import TYPES_VERSION
from cli.groups.finding import unknown_group
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.records import read_assignment, read_subscription

if TYPE_CHECKING:
    from cli.client import Cluster

CLASSIC, CONSUMER, SHARE = "classic", "consumer", "share"
AWAY = -2  # the epoch of a static member that has gone and will be back (KIP-848)
MEMBER_PROTOCOLS = {0: CLASSIC, 1: CONSUMER}
PROTOCOL = "consumer"  # the protocol type whose member metadata this client can decode; Connect and others use other formats
NOT_CONSUMER_GROUP = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
GROUPS_AT_ONCE = 500



class GroupMember(NamedTuple):
    """A field is None if the cluster does not report it. `owned`: the partitions that a cooperative member claimed when it joined; `target`: its
    target assignment (KIP-848), if it has another one; `speaks`: the protocol of a member of a consumer group.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...] | None
    assigned: tuple[TopicPartition, ...] | None
    owned: tuple[TopicPartition, ...] | None = None
    target: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None
    speaks: str | None = None

    @property
    def is_away(self) -> bool:
        return self.epoch == AWAY

    @property
    def gives_up(self) -> tuple[TopicPartition, ...]:
        """What it holds and shall not keep."""
        return () if self.target is None else tuple(partition for partition in self.assigned or () if partition not in self.target)

    @property
    def waits_for(self) -> tuple[TopicPartition, ...]:
        """What it shall have and does not hold yet."""
        return () if self.target is None else tuple(partition for partition in self.target if partition not in (self.assigned or ()))

    @property
    def member_key(self) -> str:
        """The instance id of a static member, which survives a restart; else the member id."""
        return self.instance_id if self.instance_id is not None else self.member_id

    @property
    def shown_name(self) -> str:
        from history.words import short_name  # not at the top: the import would delay `group list`, which does not need it, by 40 ms

        return short_name(self.member_id, self.instance_id)

    def document(self) -> dict[str, object]:
        return {
            "member_id": self.member_id,
            "instance_id": self.instance_id,
            "client_id": self.client_id,
            "host": self.host,
            "subscribed_topics": None if self.topics is None else list(self.topics),
            "assigned": partitions_document(self.assigned),
            "owned": partitions_document(self.owned),
            "target": partitions_document(self.target),
            "epoch": self.epoch,
            "away": None if self.epoch is None else self.is_away,
            "gives_up": None if self.epoch is None else partitions_document(self.gives_up),
            "waits_for": None if self.epoch is None else partitions_document(self.waits_for),
            "speaks": self.speaks,
        }


class Group(NamedTuple):
    id: str
    state: str
    type: str  # classic, consumer, share, streams; "" if unknown
    protocol_type: str  # consumer, connect, ...; "" before the first member
    protocol: str  # the assignor
    coordinator: int
    members: tuple[GroupMember, ...] = ()
    epoch: int | None = None
    readable: bool = True  # whether this client can request the members of groups of this type
    target_epoch: int | None = None  # the epoch for which the assignment was computed (KIP-848)

    @property
    def static_count(self) -> int:
        return sum(member.instance_id is not None for member in self.members)

    @property
    def occupied(self) -> bool:
        """Whether the group has members. If the client cannot read them, the state tells."""
        return bool(self.members) if self.readable else self.state.lower() not in ("empty", "dead")

    @property
    def commits_offsets(self) -> bool:
        """Whether the group commits offsets; share groups do not."""
        return self.type != SHARE

    @property
    def cooperative(self) -> bool:
        """Whether members keep their partitions during a rebalance."""
        return self.type == CONSUMER or "cooperative" in self.protocol

    @property
    def owners(self) -> dict[TopicPartition, GroupMember]:
        return {partition: member for member in self.members for partition in member.assigned or ()}


def partitions_document(partitions: Iterable[TopicPartition] | None) -> list[dict[str, object]] | None:
    if partitions is None:
        return None
    return [{"topic": topic, "partitions": numbers} for topic, numbers in by_topic(sorted(partitions)).items()]


def describe_one(cluster: Cluster, name: str) -> Group:
    """The description of a group. Raises Failure if it does not exist."""
    group = describe(cluster, [name])[name]
    if group is None:
        raise unknown_group(cluster, name)
    return group


def describe(cluster: Cluster, names: Sequence[str], problems: dict[str, Failure] | None = None) -> dict[str, Group | None]:
    """The descriptions in the order of the names; None for a group that does not exist.

    A group that cannot be described, as this user may not or its coordinator does not answer, gets None and an entry in `problems`; without
    `problems` its Failure is raised.
    """

    def ask(broker_id: int, groups: list[str]) -> dict[str, Group | Failure | None]:
        descriptions: dict[str, Group | Failure | None] = {}
        for at in range(0, len(groups), GROUPS_AT_ONCE):
            descriptions |= _describe_at(cluster, broker_id, groups[at : at + GROUPS_AT_ONCE])
        return descriptions

    descriptions: dict[str, Group | None] = cluster.by_coordinator(names, ask, failed=problems)
    missing = [name for name, group in descriptions.items() if group is None]
    if missing:
        descriptions |= of_other_types(cluster, missing, problems)
    return {name: descriptions.get(name) for name in names}


def _describe_at(cluster: Cluster, broker_id: int, names: list[str]) -> dict[str, Group | Failure | None]:
    descriptions: dict[str, Group | Failure | None] = {}
    remaining = names
    if cluster.version(ConsumerGroupDescribeRequest.API_KEY, broker_id) >= 0:
        for group in cluster.send_to_broker(broker_id, ConsumerGroupDescribeRequest(names)).groups:
            if group.error_code not in NOT_CONSUMER_GROUP:
                descriptions[group.group_id] = problem(group) or _consumer(group, broker_id)
        remaining = [name for name in names if name not in descriptions]
    if remaining:
        for group in cluster.send_to_broker(broker_id, DescribeGroupsRequest(remaining)).groups:
            if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND or (group.group_state == "Dead" and not group.error_code):
                descriptions[group.group_id] = None
            else:
                descriptions[group.group_id] = problem(group) or _classic(group, broker_id)
    return {name: descriptions.get(name) for name in names}


def problem(described: Any) -> Failure | None:
    return failure(described.error_code, f"group {described.group_id}", described.error_message) if described.error_code else None


def of_other_types(cluster: Cluster, names: Sequence[str], problems: dict[str, Failure] | None) -> dict[str, Group]:
    """The named groups that ListGroups reports as share or streams groups; DescribeGroups reports them as missing."""

    def ask(broker_id: int, groups: list[str]) -> dict[str, Group | None]:
        found: dict[str, Group | None] = dict.fromkeys(groups)
        if cluster.version(ListGroupsRequest.API_KEY, broker_id) >= TYPES_VERSION:
            reply = cluster.send_to_broker(broker_id, ListGroupsRequest())
            check(reply.error_code, f"broker {broker_id}")
            for group in reply.groups:
                type = group.group_type.lower()
                if group.group_id in found and type not in (CLASSIC, CONSUMER):
                    found[group.group_id] = Group(group.group_id, group.group_state, type, group.protocol_type, "", broker_id, readable=False)
        return found

    return {name: group for name, group in cluster.by_coordinator(names, ask, failed=problems).items() if group is not None}


# Members


def _classic(group: Any, broker_id: int) -> Group:
    members = tuple(_classic_member(member, group.protocol_type) for member in group.members)
    return Group(group.group_id, group.group_state, CLASSIC, group.protocol_type, group.protocol_data, broker_id, members)


def _classic_member(member: Any, protocol_type: str) -> GroupMember:
    topics: tuple[str, ...] | None = None
    assigned = owned = None
    if protocol_type == PROTOCOL:
        try:
            if member.member_metadata:
                subscription = read_subscription(member.member_metadata)
                topics = tuple(sorted(subscription.topics))
                owned = _pairs((part.topic, part.partitions) for part in subscription.owned_partitions)
            assignment = read_assignment(member.member_assignment).assigned_partitions if member.member_assignment else []
            assigned = _pairs((part.topic, part.partitions) for part in assignment)
        except ProtocolError:
            pass  # clients may write any bytes
    return GroupMember(
        member.member_id, member.group_instance_id, member.client_id, member.client_host.removeprefix("/"), topics, assigned, owned or None
    )


def _consumer(group: Any, broker_id: int) -> Group:
    members = tuple(_consumer_member(member) for member in group.members)
    return Group(group.group_id, group.group_state, CONSUMER, PROTOCOL, group.assignor_name, broker_id, members, group.group_epoch, target_epoch=group.assignment_epoch)


def _consumer_member(member: Any) -> GroupMember:
    topics = list(member.subscribed_topic_names)
    if member.subscribed_topic_regex:
        topics.append(f"/{member.subscribed_topic_regex}/")
    assigned = _pairs((part.topic_name, part.partitions) for part in member.assignment.topic_partitions)
    target = _pairs((part.topic_name, part.partitions) for part in member.target_assignment.topic_partitions)
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host.removeprefix("/"),
        tuple(sorted(topics)),
        assigned,
        None,
        target if target != assigned else None,
        member.member_epoch,
        MEMBER_PROTOCOLS.get(member.member_type),
    )


def _pairs(topics: Iterable[tuple[str, list[int]]]) -> tuple[TopicPartition, ...]:
    return tuple(sorted((topic, partition) for topic, partitions in topics for partition in partitions))
