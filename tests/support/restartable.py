"""A broker that restarts with the same directory and port, and group members controlled request by request."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.kafka_process import free_ports
from tests.running import Broker, Client

JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION, DESCRIBE_VERSION, COMMIT_VERSION, FETCH_VERSION, LIST_VERSION = 9, 5, 4, 5, 5, 8, 8, 4
AWAIT_SECONDS = 30
TOPIC_ALREADY_EXISTS = 36
SETTINGS = ("group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=100", "offsets.topic.num.partitions=3")


class RestartableBroker:
    """A broker that can be stopped, killed and restarted on the same port."""

    def __init__(self, data: Path, *settings: str) -> None:
        self.data = data
        (self.port,) = free_ports(1)
        self._arguments = ["--data", str(data), "--listen", f"127.0.0.1:{self.port}"]
        for setting in (*SETTINGS, *settings):
            self._arguments += ["--set", setting]
        self.broker: Broker | None = None

    def start(self, *settings: str, loaded: bool = True, **environment: Any) -> Broker:
        more = [word for setting in settings for word in ("--set", setting)]
        self.broker = Broker(*self._arguments, *more, **environment)
        if loaded:
            await_loaded(self.port)
        return self.broker

    def kill(self) -> None:
        if self.broker is not None:
            assert self.broker.process.poll() is None, self.broker.errors()
            self.broker.kill()
            self.broker = None

    def stop(self) -> None:
        assert self.broker is not None
        code = self.broker.stop()
        errors = self.broker.errors()
        self.broker.kill()
        self.broker = None
        assert code == 0, errors

    def __enter__(self) -> RestartableBroker:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.broker is not None:
            self.broker.kill()


class Actor:
    """A process of a group member: its connection and its identity."""

    def __init__(
        self,
        port: int,
        group: str,
        instance: str | None = None,
        *,
        offers: str = "one",
        session_ms: int = 60_000,
        rebalance_ms: int = 60_000,
        client_id: str = "actor",
        protocol_type: str = "test",
    ) -> None:
        self.group = group
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.offers = offers
        self._protocol = ""
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self._client_id = client_id
        self._type = protocol_type
        self.port = port
        self._unanswered: list[tuple[Any, int]] = []
        self._client: Client | None = None

    def connect(self, port: int | None = None) -> None:
        """Connect again, whether the previous connection is open or not."""
        self.close()
        self.port = port or self.port
        self._client = Client(self.port, client_id=self._client_id)

    def close(self) -> None:
        if self._client is not None:
            self._client.socket.close()
        self._client = None
        self._unanswered.clear()

    def send(self, request: Any, version: int) -> None:
        if self._client is None:
            self.connect()
        assert self._client is not None
        self._client.send(request, version)
        self._unanswered.append((request, version))

    def receive(self) -> Any:
        assert self._client is not None
        return self._client.receive(*self._unanswered.pop(0))

    def ask(self, request: Any, version: int) -> Any:
        self.send(request, version)
        assert len(self._unanswered) == 1, "the reply to another request arrived first"
        return self.receive()

    # Requests to join; for a `send_` method, the reply is read later.

    def send_join(self, member_id: str | None = None) -> None:
        id = self.member_id if member_id is None else member_id
        offer = [JoinGroupRequestProtocol(name, name.encode()) for name in self.offers.split()]
        self.send(JoinGroupRequest(self.group, self.session_ms, self.rebalance_ms, id, self.instance, self._type, offer), JOIN_VERSION)

    def receive_join(self) -> Any:
        reply = self.receive()
        if reply.error_code in (0, 79):
            self.member_id = reply.member_id
        if not reply.error_code:
            self.generation = reply.generation_id
            self._protocol = reply.protocol_name
        return reply

    def join(self, member_id: str | None = None) -> Any:
        self.send_join(member_id)
        return self.receive_join()

    def take_id(self) -> None:
        """Send the first JoinGroup of a dynamic member, which is answered with a member id and error 79 (MEMBER_ID_REQUIRED)."""
        assert self.join("").error_code == 79

    def send_sync(self, assignments: dict[str, bytes] | None = None, generation: int | None = None) -> None:
        requested = [SyncGroupRequestAssignment(id, assignment) for id, assignment in (assignments or {}).items()]
        generation_id = self.generation if generation is None else generation
        self.send(SyncGroupRequest(self.group, generation_id, self.member_id, self.instance, self._type, self._protocol, requested), SYNC_VERSION)

    def sync(self, assignments: dict[str, bytes] | None = None, generation: int | None = None) -> Any:
        self.send_sync(assignments, generation)
        return self.receive()

    # Requests that return the error code of their reply.

    def heartbeat(self, generation: int | None = None, member_id: str | None = None) -> int:
        generation_id = self.generation if generation is None else generation
        id = self.member_id if member_id is None else member_id
        code: int = self.ask(HeartbeatRequest(self.group, generation_id, id, self.instance), HEARTBEAT_VERSION).error_code
        return code

    def leave(self) -> int:
        reply = self.ask(LeaveGroupRequest(self.group, [MemberIdentity(self.member_id, self.instance)]), LEAVE_VERSION)
        code: int = reply.error_code or reply.members[0].error_code
        return code

    def commit(self, topic: str, partition: int, offset: int, metadata: str = "") -> int:
        topics = [OffsetCommitRequestTopic(topic, [OffsetCommitRequestPartition(partition, offset, -1, metadata)])]
        request = OffsetCommitRequest(self.group, self.generation, self.member_id, self.instance, topics=topics)
        code: int = self.ask(request, COMMIT_VERSION).topics[0].partitions[0].error_code
        return code


def gather(first: Actor, *others: Actor) -> dict[str, Any]:
    """Join all actors to one generation of a new group led by `first`, without a sync; returns their replies."""
    for actor in (first, *others):
        if actor.instance is None and not actor.member_id:
            actor.take_id()
    replies = [first.join()]  # the first member forms the group
    if others:
        for actor in others:
            actor.send_join()
        await_members(first.port, first.group, len(others) + 1)
        first.send_join()
        replies = [actor.receive_join() for actor in (first, *others)]
    assert {reply.error_code for reply in replies} == {0}, replies
    assert {reply.leader for reply in replies} == {first.member_id}
    return dict(zip([first.member_id, *[actor.member_id for actor in others]], replies, strict=True))


def sync_all(first: Actor, *others: Actor) -> None:
    """Sync all actors; the leader assigns to each member that member's `assignment_of`."""
    assignments = {actor.member_id: assignment_of(actor) for actor in (first, *others)}
    for actor in others:
        actor.send_sync()
    assert first.sync(assignments).assignment == assignment_of(first)
    for actor in others:
        reply = actor.receive()
        assert (reply.error_code, reply.assignment) == (0, assignment_of(actor))


def settle(first: Actor, *others: Actor) -> None:
    gather(first, *others)
    sync_all(first, *others)


def create_topic(port: int, name: str, partitions: int = 3) -> None:
    """Create a topic, and wait until Metadata has it: Kafka may refuse a commit to a topic that it has just created."""
    until = time.monotonic() + AWAIT_SECONDS
    with Client(port) as client:
        reply = client.ask(CreateTopicsRequest([CreatableTopic(name, partitions, 1)]), 5)
        assert reply.topics[0].error_code in (0, TOPIC_ALREADY_EXISTS), reply
        while client.ask(MetadataRequest([MetadataRequestTopic(name=name)], False), 9).topics[0].error_code:
            assert time.monotonic() < until, name
            time.sleep(0.01)


def list_code(port: int) -> int:
    with Client(port) as client:
        code: int = client.ask(ListGroupsRequest(), LIST_VERSION).error_code
        return code


def fetch_code(port: int, group: str) -> int:
    with Client(port) as client:
        code: int = client.ask(OffsetFetchRequest([OffsetFetchRequestGroup(group, topics=None)]), FETCH_VERSION).groups[0].error_code
        return code


def await_loaded(port: int) -> None:
    """Wait until every offsets partition serves. While one loads, any Heartbeat gets 0, and JoinGroup gets 14."""
    until = time.monotonic() + AWAIT_SECONDS
    while error := list_code(port):
        assert time.monotonic() < until, error
        time.sleep(0.005)


def await_members(port: int, group: str, count: int) -> None:
    until = time.monotonic() + AWAIT_SECONDS
    while len(described(port, group).members) != count:
        assert time.monotonic() < until, described(port, group)
        time.sleep(0.005)


def await_state(port: int, group: str, state: str) -> None:
    until = time.monotonic() + AWAIT_SECONDS
    while described(port, group).group_state != state:
        assert time.monotonic() < until, described(port, group)
        time.sleep(0.005)


def assignment_of(actor: Actor) -> bytes:
    return f"for {actor.instance or actor.member_id}".encode()


def described(port: int, group: str) -> DescribedGroup:
    with Client(port) as client:
        group_description: DescribedGroup = client.ask(DescribeGroupsRequest([group]), DESCRIBE_VERSION).groups[0]
        return group_description


def stored_offsets(port: int, group: str) -> dict[tuple[str, int], tuple[int, str | None]]:
    """All offsets committed for a group."""
    with Client(port) as client:
        answer = client.ask(OffsetFetchRequest([OffsetFetchRequestGroup(group, topics=None)]), FETCH_VERSION).groups[0]
    assert answer.error_code == 0, answer
    return {(topic.name, partition.partition_index): (partition.committed_offset, partition.metadata) for topic in answer.topics for partition in topic.partitions}
