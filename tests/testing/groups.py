"""Members of groups for tests of the control, over plain sockets: as quick as the broker, and each request is the test's own."""

from __future__ import annotations

import time
from typing import Any

from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tenure.testing import Cluster
from tests.running import Client

JOIN, SYNC, HEARTBEAT, COMMIT = 7, 5, 4, 8


class Static:
    """A static member on a connection of its own, which assigns everything to itself when it leads."""

    def __init__(self, kafka: Cluster, group: str, instance: str, session_ms: int = 45_000) -> None:
        self.group = group
        self.instance = instance
        self.session_ms = session_ms
        self.id = ""
        self.generation = -1
        self.assignment = b""  # that it gives each member when it leads
        self.client = Client(int(kafka.bootstrap.rpartition(":")[2]), client_id=f"client-{instance}")

    def join(self) -> int:
        """Join and sync; returns the error code."""
        protocols = [JoinGroupRequestProtocol("range", b"\0\1" + bytes(4) + b"\xff\xff\xff\xff")]
        request = JoinGroupRequest(self.group, self.session_ms, 5_000, self.id, self.instance, "consumer", protocols, "")
        joined = self.client.ask(request, JOIN)
        if joined.error_code:
            return int(joined.error_code)
        self.id, self.generation = joined.member_id, joined.generation_id
        assignments = [SyncGroupRequestAssignment(member.member_id, self.assignment) for member in joined.members]
        synced = self.client.ask(SyncGroupRequest(self.group, self.generation, self.id, self.instance, "consumer", "range", assignments), SYNC)
        return int(synced.error_code)

    def heartbeat(self) -> int:
        return int(self.client.ask(HeartbeatRequest(self.group, self.generation, self.id, self.instance), HEARTBEAT).error_code)

    def commit_request(self, topic: str, offset: int, partition: int = 0) -> Any:
        return OffsetCommitRequest(
            self.group, self.generation, self.id, self.instance, -1, [OffsetCommitRequestTopic(topic, [OffsetCommitRequestPartition(partition, offset)])]
        )

    def commit(self, topic: str, offset: int, partition: int = 0) -> int:
        reply = self.client.ask(self.commit_request(topic, offset, partition), COMMIT)
        return int(reply.topics[0].partitions[0].error_code)

    def close(self) -> None:
        self.client.socket.close()


def wait_until_refused(port: int, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            Client(port).socket.close()
        except OSError:
            return
        assert time.monotonic() < deadline
        time.sleep(0.01)
