"""Several simulated nodes over one disk, with one power supply. Each has a wall clock and a port of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from simulator.census import Census
from simulator.disk import SimDisk
from simulator.machine import SimMachine
from simulator.network import PORT, Delays, ListeningSocket, Network, Stream
from simulator.node import Node
from simulator.peer_links import PeerTransport, connect_peer
from simulator.world import World

NODES_FOLDER: Final = "/data/nodes"
PORTS: Final = 8  # that nodes may listen on


class SharedMachine:
    """The machine that the nodes share, with its disk and its power supply."""

    def __init__(self, world: World, network: Network, peer_delays: Delays) -> None:
        self.world = world
        self.network = network
        self.peer_delays = peer_delays
        self.disk = SimDisk(world.random)
        self.disk.make_folder("/data")
        self.disk.write_back()
        self.disk.recording = False
        self.census = Census(world)
        self.nodes: list[ClusterNode] = []
        self.losing_power = False  # during a power failure
        self.random = Random(f"ports and clocks {world.seed}")
        self.ports_change = False  # whether a node listens on another port after each restart

    def free_port(self) -> int:
        """A port on which no running node listens; another node may have had it before."""
        used = {node.port for node in self.nodes if node.running}
        return self.random.choice([port for port in range(PORT, PORT + PORTS) if port not in used])

    def at_port(self, port: int) -> ClusterNode | None:
        return next((node for node in self.nodes if node.port == port and node.running), None)


class ClusterNode(Node):
    """One of several nodes."""

    def __init__(self, shared_machine: SharedMachine, id: int, settings: Mapping[str, object]) -> None:
        self.shared_machine = shared_machine
        self.id = id
        self.port = PORT + id - 1
        self.peer_links: dict[PeerTransport, None] = {}
        super().__init__(shared_machine.world, {**settings, "node.id": id}, shared_machine.disk.for_another_process(), self.port, f"node {id}")
        shared_machine.nodes.append(self)

    def start(self) -> None:
        if self.shared_machine.ports_change and self.life:
            self.port = self.shared_machine.free_port()
            self.config = self._load_config(self.port)
        super().start()
        self.loop.name = f"{self.name} "

    def _new_machine(self) -> SimMachine:
        machine = super()._new_machine()
        machine.census = self.shared_machine.census
        machine.connect_peer = self._connect
        return machine

    async def _connect(self, node: int, protocol_factory: Callable[[], Any]) -> Any:
        shared_machine = self.shared_machine
        target = next((other for other in shared_machine.nodes if other.id == node and other.running), None)
        return await connect_peer(shared_machine.world, shared_machine.peer_delays, self, target, protocol_factory)

    @property
    def channel(self) -> ListeningSocket | None:
        return self.machine.channel if self.machine is not None and self.running else None

    def accept(self, delays: Delays, address: str, received: Callable[[bytes], None], lost: Callable[[], None]) -> Stream:
        """Accept a connection from another node."""
        stream = self.shared_machine.network.connect(self, address, received, lost, delays, self.channel)
        assert stream is not None
        return stream

    def stall(self, duration_ns: int) -> None:
        """Freeze the process, as SIGSTOP and a later SIGCONT do; it keeps its locks."""
        super().stall(duration_ns)
        self.loop.frozen_until = self.frozen_until

    def answers_from(self) -> int:
        return max(node.frozen_until for node in self.shared_machine.nodes)

    def _ended(self, power_fails: bool) -> None:
        links, self.peer_links = list(self.peer_links), {}
        super()._ended(power_fails)
        for link in links:
            link.process_died()
        self.shared_machine.census.ended(f"{NODES_FOLDER}/{self.id}.lock", self.id)

    def _lose_power(self) -> None:
        """End all processes of the machine at the same moment."""
        shared_machine = self.shared_machine
        if shared_machine.losing_power:
            return
        shared_machine.losing_power = True
        running_nodes = [node for node in shared_machine.nodes if node is not self and node.running]
        for node in running_nodes:
            node.loop.kill()
        shared_machine.disk.crash()
        for node in running_nodes:
            node._ended(True)
        shared_machine.losing_power = False
