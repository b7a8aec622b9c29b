"""A connection that pipelines requests of every kind for which the broker learns a fast path."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from random import Random
from struct import pack, unpack_from
from typing import Any

from protocol.batch import Record, build
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.running import ANSWER_SECONDS
from tests.support.headers import encode_request
from tests.support.restartable import Actor

TOPIC, LARGE = "order", "large"
BATCH = build([Record(0, 0, None, b"value")])
NO_REPLY = "produce without reply"


def producing(batch: bytes, topic: str = TOPIC, acks: int = 1) -> ProduceRequest:
    return ProduceRequest(None, acks, 5_000, [TopicProduceData(topic, [PartitionProduceData(0, batch)])])


def fetching(topic: str, **more: Any) -> FetchRequest:
    requested = FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)])
    return FetchRequest(replica_id=-1, max_bytes=1 << 20, session_epoch=-1, topics=[requested], **more)


class Pipeliner:
    """A connection with a member of two groups: it keeps rejoining the first, and stays in the second."""

    def __init__(self, port: int, name: str, seed: int) -> None:
        self.port = port
        self.name = name
        self.random = Random(seed)
        self.sock = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS)
        self.number = 0
        self.unanswered: list[int] = []
        self.joins: set[int] = set()
        staying, rejoining = Actor(port, f"{name}-stays"), Actor(port, f"{name}-joins")
        for actor in (staying, rejoining):
            actor.take_id()
        assert staying.join().error_code == staying.sync().error_code == staying.heartbeat() == 0
        for actor in (staying, rejoining):
            actor.close()  # their sessions outlast the test without heartbeats
        self.rejoining = rejoining
        self.requests: dict[str, tuple[int, Any]] = {
            "heartbeat": (4, HeartbeatRequest(staying.group, staying.generation, staying.member_id)),
            "commit": (8, self.committing(staying)),
            "fetch offsets": (8, self.fetching_offsets(staying)),
            "join": (9, self.joining(rejoining)),
            "sync": (5, self.syncing(rejoining)),
            "produce": (9, producing(BATCH)),
            NO_REPLY: (9, producing(BATCH, acks=0)),
            "refused produce": (9, producing(BATCH, "no-such-topic")),
            "metadata": (12, MetadataRequest([MetadataRequestTopic(bytes(16), TOPIC)], False)),
            "versions": (3, ApiVersionsRequest("test", "1")),
            "newer versions": (99, None),
            "coordinator": (4, FindCoordinatorRequest(coordinator_keys=[staying.group])),
            "list offsets": (7, ListOffsetsRequest(-1, 0, [ListOffsetsTopic(TOPIC, [ListOffsetsPartition(0, -1, -1)])])),
            "fetch": (11, fetching(TOPIC, max_wait_ms=0, min_bytes=1)),
            "long poll": (11, fetching(TOPIC, max_wait_ms=1, min_bytes=1 << 20)),
            "long reply": (11, fetching(LARGE, max_wait_ms=0, min_bytes=1)),
            "leave": (5, LeaveGroupRequest(staying.group, members=[MemberIdentity("a stranger")])),
            "describe": (5, DescribeGroupsRequest([staying.group])),
            "list groups": (4, ListGroupsRequest([])),
        }
        self.bodies = {kind: self._body(*arguments) for kind, arguments in self.requests.items()}

    @staticmethod
    def _body(version: int, request: Any) -> Kind:
        return (18, version, b"") if request is None else (request.API_KEY, version, request.encode(version))

    def committing(self, actor: Actor) -> OffsetCommitRequest:
        topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[OffsetCommitRequestPartition(0, 7, -1, committed_metadata="")])]
        return OffsetCommitRequest(actor.group, actor.generation, actor.member_id, topics=topics)

    def fetching_offsets(self, actor: Actor) -> OffsetFetchRequest:
        group = OffsetFetchRequestGroup(actor.group, topics=[OffsetFetchRequestTopics(TOPIC, partition_indexes=[0])])
        return OffsetFetchRequest(groups=[group], require_stable=False)

    def joining(self, actor: Actor) -> JoinGroupRequest:
        return JoinGroupRequest(actor.group, 60_000, 60_000, actor.member_id, None, "consumer", [JoinGroupRequestProtocol("one", b"")])

    def syncing(self, actor: Actor) -> SyncGroupRequest:
        assignments = [SyncGroupRequestAssignment(actor.member_id, b"all")]
        return SyncGroupRequest(actor.group, actor.generation, actor.member_id, None, "consumer", "one", assignments)

    def connect_anew(self) -> None:
        """Replace the connection by a new one, for which the broker has learned no requests."""
        self.sock.close()
        self.sock = socket.create_connection(("127.0.0.1", self.port), ANSWER_SECONDS)

    def chunk(self, kinds: Sequence[str]) -> bytes:
        data = b""
        for kind in kinds:
            self.number += 1
            key, version, body = self.bodies[kind]
            data += encode_request(key, version, self.number, "test", body) if version != 99 else newer(self.number)
            if kind != NO_REPLY:
                self.unanswered.append(self.number)
            if kind == "join":
                self.joins.add(self.number)
        return data

    def send(self, kinds: Sequence[str], split: bool = False) -> None:
        data = self.chunk(kinds)
        if split:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            at = self.random.randrange(1, len(data))
            self.sock.sendall(data[:at])
            data = data[at:]
        self.sock.sendall(data)

    def receive_replies(self) -> list[int]:
        """The correlation ids of as many replies as are due."""
        data = b""
        received: list[int] = []
        requests, self.unanswered = self.unanswered, []
        at = 0
        while len(received) < len(requests):
            if len(data) - at >= 8:
                size, number = unpack_from(">ii", data, at)
                if len(data) - at >= 4 + size:
                    received.append(number)
                    if number in self.joins:
                        self._joined(data, at + 8)
                    at += 4 + size
                    continue
            chunk = self.sock.recv(1 << 18)
            assert chunk, f"closed after {received} of {requests}"
            data += chunk
        assert at == len(data), "more replies than requests"
        return [number - requests[0] for number in received] if received != requests else []

    def _joined(self, data: bytes, at: int) -> None:
        """Give the next SyncGroup the generation of this JoinGroup reply. It follows the empty tags, the throttle time and the error code."""
        error, generation = unpack_from(">hi", data, at + 5)
        if not error:
            self.rejoining.generation = generation
            self.bodies["sync"] = self._body(5, self.syncing(self.rejoining))
        self.joins.clear()

    def warm_up(self) -> None:
        """Send each request of these kinds three times, so that the connection learns it."""
        for kind in ("heartbeat", "commit", "fetch offsets", "join", "sync", "produce") * 3:
            self.send([kind])
            assert self.receive_replies() == []


Kind = tuple[int, int, Any]  # API key, version, body


def newer(number: int) -> bytes:
    """ApiVersions of an unknown version."""
    return pack(">ihhihB", 11, 18, 99, number, 0, 0)
