"""How clients find the right one of several nodes: they ask with FindCoordinator and Metadata, and ask again on errors."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from simulator.client import ClientConnection
from simulator.cluster_node import SharedMachine
from simulator.course import Course
from simulator.lookups import Lookups
from simulator.owners import LeaderEpochs
from simulator.world import SECOND

LOOKUP_NS: Final = 5 * SECOND
FIND_COORDINATOR_VERSION: Final = 2
METADATA_VERSION: Final = 8
MISROUTED: Final = 0.03  # probability that a client sends a request without looking up the right node


class ClusterLookups(Lookups):
    def __init__(self, shared_machine: SharedMachine, course: Course, epochs: LeaderEpochs) -> None:
        super().__init__(shared_machine.world, shared_machine.network, shared_machine.nodes[0])
        self._shared_machine = shared_machine
        self._course = course
        self._epochs = epochs
        self._leaders: dict[tuple[str, str, int], ClientConnection] = {}

    def connect(self, name: str, address: str) -> ClientConnection | None:
        """A connection to a random serving node."""
        serving = [node for node in self._shared_machine.nodes if node.serving]
        return self.wire_to(self._world.random.choice(serving), name, address) if serving else None

    def _moved_to(self, port: int, wire: ClientConnection, name: str) -> ClientConnection | None:
        """Connect to another node instead."""
        address = wire.stream.address if wire.stream is not None else ""
        wire.close()
        node = self._shared_machine.at_port(port)
        return self.wire_to(node, name, address) if node is not None else None

    def find_coordinator(self, wire: ClientConnection, group: str) -> Generator[Any, Any, ClientConnection | None]:
        if self._world.chance(MISROUTED):
            return wire
        request = wire.send(FindCoordinatorRequest(group), FIND_COORDINATOR_VERSION, LOOKUP_NS)
        yield request
        if request.lost or request.reply.error_code:
            wire.close()
            return None
        return self._moved_to(request.reply.port, wire, wire.client_id)

    def find_leader(self, wire: ClientConnection, client: str, topic: str, partition: int) -> Generator[Any, Any, ClientConnection | None]:
        known = self._leaders.get((client, topic, partition))
        if known is not None and known.open:
            return known
        request = wire.send(MetadataRequest([MetadataRequestTopic(name=topic)], False), METADATA_VERSION, LOOKUP_NS)
        yield request
        if request.lost or request.reply.topics[0].error_code:
            return None
        leaders = {each.partition_index: each.leader_id for each in request.reply.topics[0].partitions}
        if request.sent > self._course.power_failed_at:
            for each in request.reply.topics[0].partitions:
                self._epochs.answered((topic, each.partition_index), each.leader_epoch, request.sent)
        ports = {broker.node_id: broker.port for broker in request.reply.brokers}
        node = self._shared_machine.at_port(ports.get(leaders.get(partition, -1), -1))
        led = self.wire_to(node, client, "10.1.1.1") if node is not None else None
        if led is not None:
            self._leaders[client, topic, partition] = led
        return led

    def coordinator_moved(self, code: int) -> bool:
        return code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def lost_leader(self, client: str, topic: str, partition: int) -> None:
        wire = self._leaders.pop((client, topic, partition), None)
        if wire is not None:
            wire.close()
