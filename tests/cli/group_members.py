"""Members of groups, each on its connection, that join, are assigned partitions of the test's choice, and leave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NamedTuple

from protocol.errors import ErrorCode
from protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from protocol.records import with_version
from tests.cli.admin import port_of
from tests.running import Client, wait_until

JOIN_VERSION, SYNC_VERSION = 5, 3  # the first versions with instance ids
JOIN_AT_ONCE = 3  # the last version in which a newcomer joins without first getting a member id
Assignments = Mapping[str, Mapping[str, Sequence[int]]]  # the partitions of each topic, by member name


class Member(NamedTuple):
    client: Client
    name: str
    instance: str | None
    session_ms: int


class GroupMembers:
    """All members of one group. A static member is named by its instance id, which is its client id too."""

    def __init__(self, port: int, group: str, topics: Sequence[str] = ("t",), protocol: str = "range") -> None:
        self.group = group
        self.protocol = protocol
        self.ids: dict[str, str] = {}
        self.generation = 0
        self._port = port
        self._topics = list(topics)
        self._members: dict[str, Member] = {}
        self._stack = ExitStack()

    def close(self) -> None:
        self._stack.close()

    def settle(self, assigned: Assignments, *, static: Sequence[str] = (), session_ms: int = 60_000, begin: str = "") -> GroupMembers:
        """Let new members join, and the leader assign `assigned`. `begin`: the member that starts the rebalance if no member is new."""
        new = [name for name in assigned if name not in self.ids]
        for name in new:
            client = self._stack.enter_context(Client(self._port, client_id=name))
            self._members[name] = Member(client, name, name if name in static else None, session_ms)
            self._send_join(name)
            leader = self._rejoin(name)
        if not new:
            leader = self._rejoin(begin=begin)
        parts = [SyncGroupRequestAssignment(self.ids[name], assignment(topics)) for name, topics in assigned.items()]
        for name in [leader, *(name for name in assigned if name != leader)]:
            request = SyncGroupRequest(
                self.group, self.generation, self.ids[name], self._members[name].instance, assignments=parts if name == leader else []
            )
            assert self._members[name].client.ask(request, SYNC_VERSION).error_code == 0
        return self

    def _rejoin(self, *newcomer: str, begin: str = "") -> str:
        """Wait until a heartbeat has told each member of the rebalance, and let them rejoin; returns the name of the leader."""
        if begin:
            self._send_join(begin)
        for name in self.ids:
            if name != begin:
                wait_until(partial(self.must_rejoin, name), pause=0.005)
        for name in self.ids:
            if name != begin:
                self._send_join(name)
        leaders = [name for name in [*self.ids, *newcomer] if self._joined(name)]  # a list, so that the reply of every member is read
        assert len(leaders) == 1
        return leaders[0]

    def must_rejoin(self, name: str) -> bool:
        return self.heartbeat(name) == ErrorCode.REBALANCE_IN_PROGRESS

    def _send_join(self, name: str) -> None:
        member = self._members[name]
        metadata = with_version(ConsumerProtocolSubscription(self._topics), 0)
        protocols = [JoinGroupRequestProtocol(self.protocol, metadata)]
        request = JoinGroupRequest(self.group, member.session_ms, 60_000, self.ids.get(name, ""), member.instance, "consumer", protocols)
        member.client.send(request, self._version(name))

    def _version(self, name: str) -> int:
        return JOIN_VERSION if self._members[name].instance is not None else JOIN_AT_ONCE

    def _joined(self, name: str) -> bool:
        """Read the reply to JoinGroup; whether the member leads."""
        reply = self._members[name].client.receive(JoinGroupRequest(), self._version(name))
        assert reply.error_code == 0, reply
        self.ids[name] = reply.member_id
        self.generation = reply.generation_id
        return bool(reply.leader == reply.member_id)

    def add_standby(self, name: str) -> None:
        """Add a static member beyond target.group.size: it becomes a standby in the present generation, with an empty assignment."""
        self._members[name] = Member(self._stack.enter_context(Client(self._port, client_id=name)), name, name, 60_000)
        assert self.rejoin(name) == assignment({})

    def rejoin(self, name: str) -> bytes:
        """Let a member join and sync in the present generation; returns its assignment."""
        before = self.generation
        self._send_join(name)
        self._joined(name)
        assert self.generation == before
        request = SyncGroupRequest(self.group, self.generation, self.ids[name], self._members[name].instance)
        return bytes(self._members[name].client.ask(request, SYNC_VERSION).assignment)

    def restart(self, name: str) -> None:
        """A static member rejoins without its member id, as after a restart of its process."""
        del self.ids[name]
        self._send_join(name)
        self._joined(name)

    def leave(self, *names: str, reason: str | None = None) -> None:
        identities = [MemberIdentity(self.ids.pop(name), self._members.pop(name).instance, reason) for name in names]
        with Client(self._port) as client:
            assert client.ask(LeaveGroupRequest(self.group, identities), 5).error_code == 0

    def heartbeat(self, name: str) -> int:
        member = self._members[name]
        return int(member.client.ask(HeartbeatRequest(self.group, self.generation, self.ids[name], member.instance), 3).error_code)


def assignment(topics: Mapping[str, Sequence[int]]) -> bytes:
    parts = [ConsumerProtocolAssignmentTopicPartition(topic, list(partitions)) for topic, partitions in topics.items()]
    return with_version(ConsumerProtocolAssignment(parts), 0)


@contextmanager
def group_members(bootstrap: str, group: str, topics: Sequence[str] = ("t",), protocol: str = "range") -> Iterator[GroupMembers]:
    gathered = GroupMembers(port_of(bootstrap), group, topics, protocol)
    try:
        yield gathered
    finally:
        gathered.close()
