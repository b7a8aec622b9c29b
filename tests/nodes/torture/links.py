"""Connections of one client thread to all nodes. A request to a frozen node costs one timeout, then the node is left alone for a while."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from tests.nodes.cluster import FIND_COORDINATOR_VERSION, METADATA_VERSION
from tests.nodes.torture.nodes import TorturedNodes
from tests.nodes.torture.topics import Wrong
from tests.running import Client

REPLY_SECONDS = 1.5
SILENT_SECONDS = 1.0


class NotSent(OSError):
    """The request was not sent: it has no effect, now or later."""


class OrderedClient(Client):
    """Checks that each reply is to the request that was sent last."""

    def frame(self) -> bytes:
        frame = super().frame()
        if int.from_bytes(frame[:4], "big") != self._correlation_id:
            raise WrongReply(f"a reply to request {int.from_bytes(frame[:4], 'big')} instead of {self._correlation_id}: {frame[:80]!r}")
        return frame


class WrongReply(ConnectionError):
    pass


class Links:
    def __init__(self, nodes: TorturedNodes, wrong: Wrong, seconds: float = REPLY_SECONDS) -> None:
        self._nodes = nodes
        self._wrong = wrong
        self._seconds = seconds
        self._clients: dict[int, Client] = {}
        self._silent_until: dict[int, float] = {}

    def ask(self, id: int, request: Any, version: int) -> Any:
        """The reply. Raises NotSent, or another OSError when it is not known whether the request had, or will have, an effect."""
        if time.monotonic() < self._silent_until.get(id, 0.0):
            raise NotSent(f"node {id} does not answer")
        client = self._clients.get(id) or self._connect(id)
        try:
            return client.ask(request, version)
        except OSError as error:
            if isinstance(error, TimeoutError):
                self._silent_until[id] = time.monotonic() + SILENT_SECONDS
            elif isinstance(error, WrongReply):
                self._wrong("a request answered twice", f"node {id}: {error}")
            self._clients.pop(id).socket.close()
            raise

    def _connect(self, id: int) -> Client:
        try:
            client = OrderedClient(self._nodes.port(id))
        except OSError as error:
            raise NotSent(str(error)) from error
        client.socket.settimeout(self._seconds)
        self._clients[id] = client
        return client

    def ask_any(self, request: Any, version: int) -> Any:
        """The reply of the first node that answers; None: no node does."""
        for id in self._nodes.ids:
            with suppress(OSError):
                return self.ask(id, request, version)
        return None

    def described(self, name: str) -> MetadataResponseTopic | None:
        """The topic by the Metadata of any node."""
        reply = self.ask_any(MetadataRequest([MetadataRequestTopic(name=name)], False), METADATA_VERSION)
        return None if reply is None or reply.topics[0].error_code else reply.topics[0]

    def leaders(self, name: str, topic_id: bytes) -> dict[int, list[int]]:
        """The partitions of the topic by leader, without those that have none; empty if the answering node does not know the topic of this id."""
        topic = self.described(name)
        by_leader: dict[int, list[int]] = {}
        if topic is not None and topic.topic_id == topic_id:
            for partition in topic.partitions:
                if partition.leader_id in self._nodes.ids:
                    by_leader.setdefault(partition.leader_id, []).append(partition.partition_index)
        return by_leader

    def coordinators(self, groups: list[str]) -> dict[str, int]:
        reply = self.ask_any(FindCoordinatorRequest(key_type=0, coordinator_keys=groups), FIND_COORDINATOR_VERSION)
        found = () if reply is None else reply.coordinators
        return {coordinator.key: coordinator.node_id for coordinator in found if not coordinator.error_code and coordinator.node_id in self._nodes.ids}

    def close(self) -> None:
        for client in self._clients.values():
            client.socket.close()
        self._clients.clear()
