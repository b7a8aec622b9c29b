"""Groups as a cluster describes them, whichever protocol they speak.

A classic group is described by its coordinator with DescribeGroups, one of KIP-848 ("consumer") with ConsumerGroupDescribe; share and
streams groups have APIs of their own, so that nothing is known of these but what ListGroups says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cli.client import check
from cli.groups.finding import absent
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.records import read_assignment, read_subscription

if TYPE_CHECKING:
    from cli.client import Cluster

CLASSIC, CONSUMER, SHARE = "classic", "consumer", "share"
PROTOCOL = "consumer"  # of those groups whose members' metadata can be read; Connect and others have their own
TYPES_VERSION = 5  # of ListGroups
NOT_NOW = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
ABSENT = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
GROUPS_AT_ONCE = 500

Partition = tuple[str, int]


class GroupMember(NamedTuple):
    """None: the cluster or the protocol does not report it. `owned`: what a cooperative member claims; `target`: its future assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...] | None
    assigned: tuple[Partition, ...] | None
    owned: tuple[Partition, ...] | None = None
    target: tuple[Partition, ...] | None = None
    epoch: int | None = None

    @property
    def seat(self) -> str:
        """The instance id, which survives a restart, else the member id."""
        return self.instance_id if self.instance_id is not None else self.member_id

    def document(self) -> dict[str, object]:
        return {
            "member_id": self.member_id,
            "instance_id": self.instance_id,
            "client_id": self.client_id,
            "host": self.host,
            "subscribed_topics": None if self.topics is None else list(self.topics),
            "assigned": by_topic(self.assigned),
            "owned": by_topic(self.owned),
            "target": by_topic(self.target),
            "epoch": self.epoch,
        }


class Group(NamedTuple):
    id: str
    state: str
    type: str  # classic, consumer, share, streams; "" where it is not known
    protocol_type: str  # consumer, connect, ...; "" while it has none
    protocol: str  # the assignor
    coordinator: int
    members: tuple[GroupMember, ...] = ()
    epoch: int | None = None
    readable: bool = True  # False: of a type whose members this command cannot ask for

    @property
    def static(self) -> int:
        return sum(member.instance_id is not None for member in self.members)

    @property
    def occupied(self) -> bool:
        """Of those whose members cannot be asked for, the state says whether there are any."""
        return bool(self.members) if self.readable else self.state.lower() not in ("empty", "dead")

    @property
    def commits(self) -> bool:
        """Share groups store their progress in another way."""
        return self.type != SHARE

    @property
    def cooperative(self) -> bool:
        """Members keep their partitions during a rebalance."""
        return self.type == CONSUMER or "cooperative" in self.protocol

    @property
    def owners(self) -> dict[Partition, GroupMember]:
        return {partition: member for member in self.members for partition in member.assigned or ()}


def by_topic(partitions: Iterable[Partition] | None) -> list[dict[str, object]] | None:
    """For JSON."""
    if partitions is None:
        return None
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()]


def describe_one(cluster: Cluster, name: str) -> Group:
    """The description of a group. Raises Failure if it does not exist."""
    found = describe(cluster, [name])[name]
    if found is None:
        raise absent(cluster, name)
    return found


def describe(cluster: Cluster, names: Sequence[str]) -> dict[str, Group | None]:
    """The descriptions in the order of the names; None for a group that does not exist."""

    def ask(broker_id: int, groups: list[str]) -> dict[str, Group | None]:
        found: dict[str, Group | None] = {}
        for at in range(0, len(groups), GROUPS_AT_ONCE):
            found |= _of_broker(cluster, broker_id, groups[at : at + GROUPS_AT_ONCE])
        return found

    found: dict[str, Group | None] = cluster.by_coordinator(names, ask)
    missing = [name for name in names if found[name] is None]
    if missing:
        found |= of_other_types(cluster, missing)
    return {name: found[name] for name in dict.fromkeys(names)}


def _of_broker(cluster: Cluster, broker_id: int, names: list[str]) -> dict[str, Group | None]:
    found: dict[str, Group | None] = {}
    left = names
    if cluster.version(ConsumerGroupDescribeRequest.API_KEY, broker_id) >= 0:
        for group in cluster.node(broker_id, ConsumerGroupDescribeRequest(names)).groups:
            if group.error_code in NOT_NOW:
                cluster.forget_coordinator(group.group_id)
                group = cluster.coordinator(group.group_id, ConsumerGroupDescribeRequest([group.group_id])).groups[0]
            if group.error_code not in ABSENT:
                check(group.error_code, f"group {group.group_id}", group.error_message)
                found[group.group_id] = _modern(group, broker_id)
        left = [name for name in names if name not in found]
    if left:
        for group in cluster.node(broker_id, DescribeGroupsRequest(left)).groups:
            if group.error_code in NOT_NOW:
                cluster.forget_coordinator(group.group_id)
                group = cluster.coordinator(group.group_id, DescribeGroupsRequest([group.group_id])).groups[0]
            if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND or (group.group_state == "Dead" and not group.error_code):
                found[group.group_id] = None
            else:
                check(group.error_code, f"group {group.group_id}", group.error_message)
                found[group.group_id] = _classic(group, broker_id)
    return {name: found.get(name) for name in names}


def of_other_types(cluster: Cluster, names: Sequence[str]) -> dict[str, Group]:
    """Share and streams groups, which the usual descriptions deny."""
    found: dict[str, Group] = {}
    for broker_id, groups in cluster.coordinators(names).items():
        if cluster.version(ListGroupsRequest.API_KEY, broker_id) >= TYPES_VERSION:
            reply = cluster.node(broker_id, ListGroupsRequest())
            check(reply.error_code, f"broker {broker_id}")
            for group in reply.groups:
                if group.group_id in groups and group.group_type.lower() not in (CLASSIC, CONSUMER):
                    type = group.group_type.lower()
                    found[group.group_id] = Group(group.group_id, group.group_state, type, group.protocol_type, "", broker_id, readable=False)
    return found


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
                said = read_subscription(member.member_metadata)
                topics = tuple(sorted(said.topics))
                owned = _pairs((part.topic, part.partitions) for part in said.owned_partitions)
            given = read_assignment(member.member_assignment).assigned_partitions if member.member_assignment else []
            assigned = _pairs((part.topic, part.partitions) for part in given)
        except ProtocolError:
            pass  # clients may write any bytes
    return GroupMember(
        member.member_id, member.group_instance_id, member.client_id, member.client_host.removeprefix("/"), topics, assigned, owned or None
    )


def _modern(group: Any, broker_id: int) -> Group:
    members = tuple(_modern_member(member) for member in group.members)
    return Group(group.group_id, group.group_state, CONSUMER, PROTOCOL, group.assignor_name, broker_id, members, group.group_epoch)


def _modern_member(member: Any) -> GroupMember:
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
    )


def _pairs(topics: Iterable[tuple[str, list[int]]]) -> tuple[Partition, ...]:
    return tuple(sorted((topic, partition) for topic, partitions in topics for partition in partitions))
