"""A run of several nodes over one disk: nodes die, freeze, stay away and restart, and clients look up coordinators and leaders."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

from broker.cluster.messages import NodeRequestKind
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.node_requests import NodeRequest
from simulator.client import ClientConnection
from simulator.cluster_node import ClusterNode, SharedMachine
from simulator.network import Delays
from simulator.node import Node
from simulator.owners import LeaderEpochs, OneOwner
from simulator.plan import Plan
from simulator.run import Run
from simulator.world import MS, SECOND

LOOKUP_NS: Final = 5 * SECOND
FIND_COORDINATOR_VERSION: Final = 2
METADATA_VERSION: Final = 8
MISROUTED: Final = 0.03  # probability that a client sends a request without looking up the right node
THE_COMMAND: Final = -1  # the sender of a request of `tenure node drain`
PEER_STALL_NS: Final = 6 * SECOND  # longer than the five seconds that a node waits for another node


def new_run(plan: Plan, show: Callable[[str], object] | None = None) -> Run:
    return Run(plan, show) if plan.nodes == 1 else ClusterRun(plan, show)


class ClusterRun(Run):
    def _new_nodes(self, settings: dict[str, object]) -> Sequence[Node]:
        delays = Delays()
        delays.low, delays.high = MS // 50, MS // 2
        if "peers" in self.plan.faults:
            delays.stall_probability, delays.stall_ns, delays.reset_probability, delays.tear_probability = 0.03, PEER_STALL_NS, 0.005, 0.02
        self.shared_machine = SharedMachine(self.world, self.network, delays)
        self.one_owner = OneOwner(self.world, self.shared_machine)
        self.one_owner.add_logs("__consumer_offsets", self.plan.partitions)
        self.epochs = LeaderEpochs(self.world)
        self._leaders: dict[tuple[str, str, int], ClientConnection] = {}
        self._stays_away: set[Node] = set()
        for id in range(1, self.plan.nodes + 1):
            node = ClusterNode(self.shared_machine, id, {**settings, "cluster.nodes": self.plan.nodes})
            self.one_owner.watch(node)
        return self.shared_machine.nodes

    # Lookups of clients.

    def connect(self, name: str, address: str) -> ClientConnection | None:
        """A connection to a random serving node."""
        serving = [node for node in self.nodes if node.serving]
        return self._wire_to(self.world.random.choice(serving), name, address) if serving else None

    def _wire_to(self, node: Node, name: str, address: str) -> ClientConnection | None:
        wire = ClientConnection(self.world, self.network, node, name, address)
        return wire if wire.open else None

    def _moved_to(self, id: int, wire: ClientConnection, name: str) -> ClientConnection | None:
        """Connect to another node instead."""
        address = wire.stream.address if wire.stream is not None else ""
        wire.close()
        node = next((node for node in self.shared_machine.nodes if node.id == id), None)
        return self._wire_to(node, name, address) if node is not None else None

    def find_coordinator(self, wire: ClientConnection, group: str) -> Generator[Any, Any, ClientConnection | None]:
        if self.world.chance(MISROUTED):
            return wire
        request = wire.send(FindCoordinatorRequest(group), FIND_COORDINATOR_VERSION, LOOKUP_NS)
        yield request
        if request.lost or request.reply.error_code:
            wire.close()
            return None
        return self._moved_to(request.reply.node_id, wire, wire.client_id)

    def find_leader(self, wire: ClientConnection, client: str, topic: str, partition: int) -> Generator[Any, Any, ClientConnection | None]:
        known = self._leaders.get((client, topic, partition))
        if known is not None and known.open:
            return known
        request = wire.send(MetadataRequest([MetadataRequestTopic(name=topic)], False), METADATA_VERSION, LOOKUP_NS)
        yield request
        if request.lost or request.reply.topics[0].error_code:
            return None
        leaders = {each.partition_index: each.leader_id for each in request.reply.topics[0].partitions}
        if request.sent > self.power_failed_at:
            for each in request.reply.topics[0].partitions:
                self.epochs.answered((topic, each.partition_index), each.leader_epoch, request.sent)
        leader = leaders.get(partition, -1)
        node = next((node for node in self.shared_machine.nodes if node.id == leader), None)
        led = self._wire_to(node, client, "10.1.1.1") if node is not None else None
        if led is not None:
            self._leaders[client, topic, partition] = led
        return led

    def coordinator_moved(self, code: int) -> bool:
        return code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def lost_leader(self, client: str, topic: str, partition: int) -> None:
        wire = self._leaders.pop((client, topic, partition), None)
        if wire is not None:
            wire.close()

    # Running.

    def _node_ended(self, node: Node, power_failed: bool) -> None:
        if power_failed:
            self.epochs.power_failed()
            self.one_owner.power_failed()
        super()._node_ended(node, power_failed)

    def _start_node(self, node: Node) -> None:
        if node not in self._stays_away:
            super()._start_node(node)

    def _serves(self) -> bool:
        return not self.one_owner.problem(self.power_failed_at >= 0 and self.plan.flush != "always")

    def _topics_serve(self) -> bool:
        return True  # checked by `one_owner`

    def _why_not_serving(self) -> str:
        return self.one_owner.problem(self.power_failed_at >= 0 and self.plan.flush != "always")

    def _coordinator_of(self, group: str) -> Node:
        return next((node for node in self.nodes if node.running and self.audits[node].serves(group)), self.node)

    def _add_new_logs(self) -> None:
        """Let `one_owner` also watch the logs of topics created since the last call."""
        for producer in self.producers:
            if producer.topic in self.created:
                self.one_owner.add_logs(producer.topic, producer.partitions)
        for topic, partitions in self.topics.items():
            if topic in self.created:
                self.one_owner.add_logs(topic, partitions)

    def _audit(self) -> None:
        self._add_new_logs()
        self.one_owner.check()
        super()._audit()

    def _check_liveness(self) -> None:
        """End the faults: stop some nodes for good, and undrain all nodes."""
        random = self.world.random
        stopped = [node for node in self.nodes if self.world.chance(0.3)][: len(self.nodes) - 1]
        self._stays_away = set(stopped)
        for node in stopped:
            self.world.trace(f"{node.name} stays away", "node")
            node.crash(False)
        delays = self.shared_machine.peer_delays
        delays.stall_probability = delays.reset_probability = delays.tear_probability = 0.0
        for node in self.shared_machine.nodes:
            self.world.after(random.randrange(SECOND), self._drain, node, False)
        self._add_new_logs()
        super()._check_liveness()

    # Faults.

    def _inject(self, kind: str) -> None:
        running = [node for node in self.nodes if node.running]
        self.node = self.world.random.choice(running or list(self.nodes))
        super()._inject(kind)

    def _controller(self) -> None:
        for node in self.shared_machine.nodes:
            if node.serving and node.broker.cluster.registry.is_controller:
                self.node = node
                self._fault("the controller is killed")
                node.crash(False)
                return

    def _two_nodes(self) -> None:
        running = [node for node in self.nodes if node.running]
        for node in self.world.random.sample(running, min(2, len(running))):
            node.crash(False)

    def _away(self) -> None:
        """Kill a node, and restart it 1 to 40 seconds later."""
        node = self.node
        if node.running and not self._stays_away:
            self._fault(f"{node.name} dies and stays away")
            self._stays_away.add(node)
            self.world.after(self.world.between(SECOND, 40 * SECOND), self._restart, node)
            node.crash(False)

    def _restart(self, node: Node) -> None:
        if not self.faults_over:
            self._stays_away.discard(node)
            self._start_node(node)

    def _hop(self) -> None:
        """Drain and undrain nodes in quick turns, perhaps with a crash in the middle."""
        for node in self.shared_machine.nodes:
            if self.world.chance(0.5):
                at = self.world.between(0, 3 * SECOND)
                self.world.after(at, self._drain, node, True)
                self.world.after(at + self.world.between(MS, 3 * SECOND), self._drain, node, False)
        if self.world.chance(0.5):
            self.world.after(self.world.between(0, 3 * SECOND), self._mid_step)

    def _drains(self) -> None:
        node = self.node
        assert isinstance(node, ClusterNode)
        self._fault(f"{node.name} is drained")
        self._drain(node, True)
        self.world.after(self.world.between(SECOND, 20 * SECOND), self._drain, node, False)

    def _drain(self, target: ClusterNode, drained: bool) -> None:
        """Drain or undrain the target, as `tenure node drain` and `undrain` do: ask any node, which forwards the request to the others.

        After the faults, also tell each serving node directly that the target is undrained.
        """
        serving = [node for node in self.shared_machine.nodes if node.serving]
        if serving and (not self.faults_over or not drained):
            node = self.world.random.choice(serving)
            request = NodeRequest(NodeRequestKind.DRAIN, THE_COMMAND, offset=int(drained), target=target.id)
            node.loop.post(node.broker.cluster.handle, None, request)
            if self.faults_over and drained is False:
                for other in serving:
                    other.loop.post(other.broker.cluster.members.drain, target.id, False)
