"""A run of several nodes over one disk: nodes die, freeze, stay away and restart, and clients look up coordinators and leaders."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, Final

from broker.internal_topics import CONSUMER_OFFSETS
from broker.runtime.node import DRAINED
from protocol.batch import iterate_headers
from protocol.batch_record import CorruptBatch
from protocol.errors import ErrorCode
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from simulator.administrator import REQUEST_NS, Removals
from simulator.client import ClientConnection
from simulator.cluster_node import ClusterNode, SharedMachine
from simulator.network import Delays
from simulator.node import EPOCH_NS, Node
from simulator.owners import LeaderEpochs, OneOwner, uses
from simulator.plan import FAULT_SECONDS, Plan
from simulator.producing import BASE_OFFSET_BYTES, read_batch
from simulator.promises import GroupPartition
from simulator.records import Partition
from simulator.recreated import RecreatedTopics
from simulator.run import Run
from simulator.world import MS, SECOND
from storage import LogId

LOOKUP_NS: Final = 5 * SECOND
FIND_COORDINATOR_VERSION: Final = 2
METADATA_VERSION: Final = 8
MISROUTED: Final = 0.03  # probability that a client sends a request without looking up the right node
AT_ONCE: Final = (0, 20 * MS, SECOND)  # pauses between the deletion of a topic and its new creation
INCREMENTAL_ALTER_CONFIGS_VERSION: Final = 1
BROKER: Final = 4  # resource type
CLOCKS_NS: Final = (3 * SECOND, 90 * SECOND)  # how much a clock is wrong at most
LONG_FREEZE_NS: Final = 15 * SECOND, 45 * SECOND
DAMAGE_NS: Final = 15 * SECOND, 45 * SECOND
OWNERS_NS: Final = 100 * MS  # between two checks of the owners of all logs
OWN_DRAWS: Final = ("long_freeze", "damage", "controller_stops", "clocks")  # faults whose moments are drawn from a stream of their own
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
        self._random = random = Random(f"open deletions {self.plan.seed}")  # leaves the draws of other faults as they are
        self.shared_machine.ports_change = "ports" in self.plan.faults
        for id in range(1, self.plan.nodes + 1):
            node = ClusterNode(self.shared_machine, id, {**settings, "cluster.nodes": self.plan.nodes})
            self.one_owner.watch(node)
            if "clocks" in self.plan.faults:
                node.wall_offset_ns += random.choice((-1, 1)) * random.randrange(random.choice(CLOCKS_NS))
        return self.shared_machine.nodes

    def run(self, events_max: int = 1 << 62) -> None:
        self.recreated = RecreatedTopics(self.world, self.offsets, lambda: self.nodes)
        for node in self.nodes:
            node.unknown_topics = partial(self.recreated.unknown_at, node)
            if "clocks" in self.plan.faults:
                self.audits[node].clock_set()
        self.recreation_pauses = AT_ONCE
        self.world.after(OWNERS_NS, self._check_owners)
        super().run(events_max)

    def _check_owners(self) -> None:
        self.one_owner.check_locks()
        self.recreated.check(self._coordinators())
        self.world.after(OWNERS_NS, self._check_owners)

    def _coordinators(self) -> Iterator[tuple[str, str, Node, Any]]:
        """Each group that a node serves, with each of its topics, the node, and the group in memory."""
        for group in self.plan.groups:
            for node in self.nodes:
                if self.audits[node].serves(group.name):
                    for topic, _ in group.settings.topics:
                        yield group.name, topic, node, self.audits[node].in_memory(group.name)

    # Topics that are created again.

    def deletion_of(self, name: str) -> tuple[DeleteTopicsRequest, int] | None:
        """By id: a request whose reply was lost may arrive when the topic is recreated already."""
        id = self.recreated.delete(name)
        return None if id is None else (DeleteTopicsRequest([DeleteTopicState(None, id)], timeout_ms=10_000), 6)

    def topic_deleted(self, name: str, removals: Removals, code: int) -> None:
        self.recreated.removed(name, removals)

    def committed_elsewhere(self, node: Node, partition: GroupPartition, value: int) -> None:
        self.recreated.committed(node, partition, value)

    # Lookups of clients.

    def connect(self, name: str, address: str) -> ClientConnection | None:
        """A connection to a random serving node."""
        serving = [node for node in self.nodes if node.serving]
        return self._wire_to(self.world.random.choice(serving), name, address) if serving else None

    def _wire_to(self, node: Node, name: str, address: str) -> ClientConnection | None:
        wire = ClientConnection(self.world, self.network, node, name, address)
        return wire if wire.open else None

    def _moved_to(self, port: int, wire: ClientConnection, name: str) -> ClientConnection | None:
        """Connect to another node instead."""
        address = wire.stream.address if wire.stream is not None else ""
        wire.close()
        node = self.shared_machine.at_port(port)
        return self._wire_to(node, name, address) if node is not None else None

    def find_coordinator(self, wire: ClientConnection, group: str) -> Generator[Any, Any, ClientConnection | None]:
        if self.world.chance(MISROUTED):
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
        if request.sent > self.power_failed_at:
            for each in request.reply.topics[0].partitions:
                self.epochs.answered((topic, each.partition_index), each.leader_epoch, request.sent)
        ports = {broker.node_id: broker.port for broker in request.reply.brokers}
        node = self.shared_machine.at_port(ports.get(leaders.get(partition, -1), -1))
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
        self._check_records()

    def _check_records(self) -> None:
        """Raise Broken if a log of a producer's topic lacks an acknowledged record, whichever node acknowledged it."""
        for producer in self.producers:
            if producer.topic in self.created:
                for number in range(producer.partitions):
                    self._check_records_of((producer.topic, number))

    def _check_records_of(self, partition: Partition) -> None:
        path = f"/data/{partition[0]}-{partition[1]}"
        disk = self.shared_machine.disk
        names = [name for name in disk.list(path) if name.endswith(".log")] if disk.exists(path) else []
        expected = int(names[0].removesuffix(".log")) if names else self.records.bounds(partition)[0]
        for name in names:
            data = bytes(disk.content(f"{path}/{name}").cached)
            at = 0
            with suppress(CorruptBatch):  # the torn end of a log that no node has opened since
                for header in iterate_headers(data, 0, len(data)):
                    self.records.skipped(partition, expected, header.base_offset, self.world.now)
                    for number, value in read_batch(data[at + BASE_OFFSET_BYTES : at + header.size]):
                        self.records.read(partition, header.base_offset + number, value)
                        expected = header.base_offset + number + 1
                    at += header.size
        self.records.skipped(partition, expected, self.records.bounds(partition)[1], self.world.now)

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

    def _controller_stops(self) -> None:
        for node in self.shared_machine.nodes:
            if node.serving and node.broker.cluster.registry.is_controller:
                self.node = node
                self._fault("orderly stop of the controller")
                node.stop()
                return

    def _long_freeze(self) -> None:
        """Freeze a node for so long that deletions stay open."""
        running = [node for node in self.nodes if node.running]
        if running:
            self.node = self._random.choice(running)
            duration = self._random.randrange(*LONG_FREEZE_NS)
            self._fault(f"node frozen for long: {self.node.name}, {duration // MS} ms")
            self.node.stall(duration)

    def _damage(self) -> None:
        """Make a partition of __consumer_offsets unreadable, and end its owner. Until it is readable again, no deletion of a topic ends."""
        id = LogId(CONSUMER_OFFSETS, self._random.randrange(self.plan.partitions))
        self.node = next((node for node in self.shared_machine.nodes if uses(node, id)), self.node)
        self._fault(f"partition cannot be read: {id}")
        for node in self.nodes:
            node.disk.unreadable = f"/{id}/"
        self.world.after(self._random.randrange(*DAMAGE_NS), self._heal_disk)
        self.node.crash(False)

    def _clocks(self) -> None:
        """Set the clock of one node."""
        node = self._random.choice(list(self.nodes))
        offset_ns = EPOCH_NS + self._random.choice((-1, 1)) * self._random.randrange(self._random.choice(CLOCKS_NS))
        self.node = node
        self._fault(f"clock of a node set: {node.name}, by {(offset_ns - node.wall_offset_ns) // MS} ms")
        node.shift_wall(offset_ns - node.wall_offset_ns)

    def _schedule(self, kind: str) -> None:
        if kind in OWN_DRAWS:
            mean = FAULT_SECONDS[kind] / self.plan.fault_rate
            self.world.after(int(self._random.expovariate(1 / mean) * SECOND), self._inject, kind)
        else:
            super()._schedule(kind)

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
        """Drain or undrain the target, as `tenure node drain` and `undrain` do: ask any node, which forwards the request to the target.

        After the faults, also tell each serving node directly that the target is undrained.
        """
        serving = [node for node in self.shared_machine.nodes if node.serving]
        if serving and (not self.faults_over or not drained):
            node = self.world.random.choice(serving)
            request = IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER, str(target.id), [AlterableConfig(DRAINED, 0, str(drained).lower())])])
            wire = self._wire_to(node, "operator", "10.9.9.7")
            if wire is not None:
                wire.send(request, INCREMENTAL_ALTER_CONFIGS_VERSION, REQUEST_NS).when_settled(lambda reply: wire.close())
            if self.faults_over and drained is False:
                for other in serving:
                    other.loop.post(other.broker.cluster.members.drain, target.id, False)
