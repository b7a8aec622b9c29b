"""Requests and replies of the coordinator, independent of API versions and wire formats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from coordinator.hold import Held
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import OffsetCommitRequestPartition

# Name and metadata of each protocol that a member offers, in its order of preference.
Protocols = tuple[tuple[str, bytes], ...]


class Closable(Protocol):
    """The connection that a request came on."""

    closed: bool


class JoinRequest:
    """A JoinGroup. `needs_member_id` (from v4): a new dynamic member first receives its id and joins again with it (KIP-394).
    `knows_skip_assignment` (from v9): the reply can make a returning static leader skip the assignment (KIP-814)."""

    __slots__ = (
        "client_host",
        "client_id",
        "connection",
        "group_id",
        "instance_id",
        "knows_skip_assignment",
        "member_id",
        "needs_member_id",
        "protocol_type",
        "protocols",
        "reason",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        protocol_type: str,
        protocols: Protocols,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        client_id: str,
        client_host: str,
        needs_member_id: bool = True,
        knows_skip_assignment: bool = True,
        reason: str | None = None,
        connection: Closable | None = None,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.instance_id = instance_id
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.client_id = client_id
        self.client_host = client_host
        self.needs_member_id = needs_member_id
        self.knows_skip_assignment = knows_skip_assignment
        self.reason = reason
        self.connection = connection  # None: unknown


# A member in the leader's reply: id, instance id, metadata of the selected protocol.
JoinedMember = tuple[str, str | None, bytes]


class JoinReply:
    """The reply to a JoinGroup. All followers of a generation share one object, so the member id is in the waiter.

    An error reply has generation -1 and no protocol, except in `replace_in_stable`. `encoded_fronts` caches, by API version, the bytes
    before the member id, which are equal for leader and followers.
    """

    __slots__ = ("encoded_fronts", "error", "generation", "leader", "members", "protocol_name", "protocol_type", "skip_assignment")

    def __init__(
        self,
        error: int,
        generation: int = -1,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        leader: str = "",
        members: Sequence[JoinedMember] = (),
        skip_assignment: bool = False,
    ) -> None:
        self.encoded_fronts: dict[int, bytes] = {}
        self.error = error
        self.generation = generation
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.leader = leader
        self.members = members
        self.skip_assignment = skip_assignment


class SyncRequest:
    """A SyncGroup. Protocol type and name are in requests from v5 on, and are checked then."""

    __slots__ = ("assignments", "generation", "group_id", "instance_id", "member_id", "protocol_name", "protocol_type")

    def __init__(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        assignments: dict[str, bytes],
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.generation = generation
        self.member_id = member_id
        self.instance_id = instance_id
        self.assignments = assignments
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name


class SyncReply:
    """The reply to a SyncGroup. All members of a generation share one object, so the assignment is in the waiter.

    An error reply has no protocol and no assignment. `encoded_fronts` is a cache, as in JoinReply.
    """

    __slots__ = ("encoded_fronts", "error", "protocol_name", "protocol_type")

    def __init__(self, error: int, protocol_type: str | None = None, protocol_name: str | None = None) -> None:
        self.error = error
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.encoded_fronts: dict[int, bytes] = {}


class JoinWaiter(Held, Protocol):
    """Receives the reply to a JoinGroup, at once or when the other members have joined."""

    member_id: str
    reply: JoinReply | None


class SyncWaiter(Held, Protocol):
    """Receives the reply to a SyncGroup, at once or when the leader has sent the assignments."""

    assignment: bytes
    reply: SyncReply | None


class Leaver(NamedTuple):
    """One member in a LeaveGroup. An administrator's request for a static member has only the instance id."""

    member_id: str
    instance_id: str | None
    reason: str | None = None


class Commit:
    """An OffsetCommit for existing partitions. The shard adds to `too_large` each (topic, partition) with metadata over the limit."""

    __slots__ = ("generation", "group_id", "instance_id", "member_id", "retention_ms", "too_large", "topics", "unknown_group_error")

    def __init__(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        topics: list[tuple[str, list[OffsetCommitRequestPartition]]],
        retention_ms: int = -1,
        unknown_group_error: int = ErrorCode.GROUP_ID_NOT_FOUND,  # before v9: ILLEGAL_GENERATION
    ) -> None:
        self.group_id = group_id
        self.generation = generation
        self.member_id = member_id
        self.instance_id = instance_id
        self.topics = topics
        self.retention_ms = retention_ms
        self.unknown_group_error = unknown_group_error
        self.too_large: set[tuple[str, int]] | None = None

    @property
    def names_epoch(self) -> bool:
        """Whether its version (from 9) lets members of the consumer protocol commit, whose epoch it has as generation."""
        return self.unknown_group_error == ErrorCode.GROUP_ID_NOT_FOUND


class StoredOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class Description(NamedTuple):
    """One group in DescribeGroups. An unknown group has the state Dead and no members."""

    state: str
    protocol_type: str = ""
    protocol_data: str = ""
    members: tuple[DescribedMember, ...] = ()


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"
