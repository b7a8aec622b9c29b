"""How clients find the broker: connections, and lookups of coordinators and leaders."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from simulator.client import ClientConnection
from simulator.network import Network
from simulator.node import Node
from simulator.world import MS, SECOND, World

BACKOFF_NS: Final = 100 * MS


class Lookups:
    """With one node, every connection leads to the right one."""

    def __init__(self, world: World, network: Network, node: Node) -> None:
        self._world = world
        self._network = network
        self._node = node

    def connect(self, name: str, address: str) -> ClientConnection | None:
        return self.wire_to(self._node, name, address) if self._node.serving else None

    def wire_to(self, node: Node, name: str, address: str) -> ClientConnection | None:
        wire = ClientConnection(self._world, self._network, node, name, address)
        return wire if wire.open else None

    def find_coordinator(self, wire: ClientConnection, group: str) -> Generator[Any, Any, ClientConnection | None]:
        """A connection to the group's coordinator, which is looked up over `wire`."""
        return wire
        yield

    def reach_coordinator(self, old: ClientConnection | None, name: str, address: str, group: str) -> Generator[Any, Any, ClientConnection | None]:
        """A new connection to the group's coordinator, in place of `old`. None: there is none yet, and the client has waited before it tries again."""
        if old is not None and old.open:
            self._world.after(SECOND, old.close)
        wire = self.connect(name, address)
        if wire is not None:
            wire = yield from self.find_coordinator(wire, group)
        if wire is None:
            yield self._world.between(BACKOFF_NS, 10 * BACKOFF_NS)
        return wire

    def find_leader(self, wire: ClientConnection, client: str, topic: str, partition: int) -> Generator[Any, Any, ClientConnection | None]:
        """A connection to the leader of a partition, which is looked up over `wire`."""
        return wire
        yield

    def coordinator_moved(self, code: int) -> bool:
        """Whether the error makes a client look up the group's coordinator again."""
        return False

    def lost_leader(self, client: str, topic: str, partition: int) -> None:
        """A request for the partition got an error: the client must look up the leader again."""
