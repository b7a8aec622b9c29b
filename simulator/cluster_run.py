"""A run of several nodes over one disk: nodes die, freeze, stay away and restart, and clients look up coordinators and leaders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, Final

from broker.internal_topics import CONSUMER_OFFSETS
from broker.runtime.node import DRAINED
from protocol.batch import iterate_headers
from protocol.batch_record import CorruptBatch
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from simulator.administrator import REQUEST_NS
from simulator.cluster_lookups import ClusterLookups
from simulator.cluster_node import ClusterNode, SharedMachine
from simulator.faults import Fault
from simulator.network import Delays
from simulator.node import EPOCH_NS, Node
from simulator.owners import LeaderEpochs, OneOwner, uses
from simulator.plan import Plan
from simulator.producing import BASE_OFFSET_BYTES, read_batch
from simulator.records import Partition
from simulator.recreated import ClusterTopics, RecreatedTopics
from simulator.run import Run
from simulator.world import MS, SECOND
from storage import LogId

INCREMENTAL_ALTER_CONFIGS_VERSION: Final = 1
BROKER: Final = 4  # resource type
CLOCKS_NS: Final = (3 * SECOND, 90 * SECOND)  # how much a clock is wrong at most
LONG_FREEZE_NS: Final = 15 * SECOND, 45 * SECOND
DAMAGE_NS: Final = 15 * SECOND, 45 * SECOND
OWNERS_NS: Final = 100 * MS  # between two checks of the owners of all logs
PEER_STALL_NS: Final = 6 * SECOND  # longer than the five seconds that a node waits for another node


class ClusterRun(Run):
    def _new_nodes(self, settings: dict[str, object]) -> Sequence[Node]:
        delays = Delays()
        delays.low, delays.high = MS // 50, MS // 2
        self.shared_machine = SharedMachine(self.world, self.network, delays)
        self.one_owner = OneOwner(self.world, self.shared_machine)
        self.one_owner.add_logs("__consumer_offsets", self.plan.partitions)
        self.epochs = LeaderEpochs(self.world)
        self._stays_away: set[Node] = set()
        self._random = Random(f"open deletions {self.plan.seed}")  # leaves the draws of other faults as they are
        for id in range(1, self.plan.nodes + 1):
            node = ClusterNode(self.shared_machine, id, {**settings, "cluster.nodes": self.plan.nodes})
            self.one_owner.watch(node)
        return self.shared_machine.nodes

    def _new_topics(self) -> ClusterTopics:
        self.recreated = RecreatedTopics(self.world, self.offsets, lambda: self.nodes)
        return ClusterTopics(self.world, self.offsets, self.recreated)

    def _new_lookups(self) -> ClusterLookups:
        return ClusterLookups(self.shared_machine, self.course, self.epochs)

    def run(self, events_max: int = 1 << 62) -> None:
        for node in self.nodes:
            node.unknown_topics = partial(self.recreated.unknown_at, node)
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
                memory = self.coordinators.memories[node]
                if memory.serves(group.name):
                    for topic, _ in group.settings.topics:
                        yield group.name, topic, node, memory.find(group.name)
        watch = self.epoch_watch
        if watch is not None:
            for name in watch.names:
                for node, memory in self.coordinators.memories.items():
                    if memory.serves(name):
                        for topic in watch.topics:
                            yield name, topic, node, memory.find_consumers(name)

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
        return not self.one_owner.problem(self.course.power_failed_at >= 0 and self.plan.flush != "always")

    def _topics_serve(self) -> bool:
        return True  # checked by `one_owner`

    def _why_not_serving(self) -> str:
        return self.one_owner.problem(self.course.power_failed_at >= 0 and self.plan.flush != "always")

    def _coordinator_of(self, group: str) -> Node:
        return next((node for node in self.nodes if node.running and self.coordinators.memories[node].serves(group)), self.node)

    def _add_new_logs(self) -> None:
        """Let `one_owner` also watch the logs of topics created since the last call."""
        for topic, partitions in self.topics.partitions.items():
            if topic in self.topics.created:
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
            if producer.topic in self.topics.created:
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

    def _inject(self, fault: Fault[Any]) -> None:
        running = [node for node in self.nodes if node.running]
        self.course.node = self.world.random.choice(running or list(self.nodes))
        super()._inject(fault)

    def _controller(self) -> None:
        for node in self.shared_machine.nodes:
            if node.serving and node.broker.cluster.registry.is_controller:
                self.course.node = node
                self._fault("the controller is killed")
                node.crash(False)
                return

    def _controller_stops(self) -> None:
        for node in self.shared_machine.nodes:
            if node.serving and node.broker.cluster.registry.is_controller:
                self.course.node = node
                self._fault("orderly stop of the controller")
                node.stop()
                return

    def _long_freeze(self) -> None:
        """Freeze a node for so long that deletions stay open."""
        running = [node for node in self.nodes if node.running]
        if running:
            self.course.node = self._random.choice(running)
            duration = self._random.randrange(*LONG_FREEZE_NS)
            self._fault(f"node frozen for long: {self.node.name}, {duration // MS} ms")
            self.node.stall(duration)

    def _damage(self) -> None:
        """Make a partition of __consumer_offsets unreadable, and end its owner. Until it is readable again, no deletion of a topic ends."""
        id = LogId(CONSUMER_OFFSETS, self._random.randrange(self.plan.partitions))
        self.course.node = next((node for node in self.shared_machine.nodes if uses(node, id)), self.node)
        self._fault(f"partition cannot be read: {id}")
        for node in self.nodes:
            node.disk.unreadable = f"/{id}/"
        self.world.after(self._random.randrange(*DAMAGE_NS), self._heal_disk)
        self.node.crash(False)

    def _clocks(self) -> None:
        """Set the clock of one node."""
        node = self._random.choice(list(self.nodes))
        offset_ns = EPOCH_NS + self._random.choice((-1, 1)) * self._random.randrange(self._random.choice(CLOCKS_NS))
        self.course.node = node
        self._fault(f"clock of a node set: {node.name}, by {(offset_ns - node.wall_offset_ns) // MS} ms")
        node.shift_wall(offset_ns - node.wall_offset_ns)

    def _random_of(self, fault: Fault[Any]) -> Random:
        return self._random if fault.own_moments else super()._random_of(fault)

    def _peers_fail(self) -> None:
        delays = self.shared_machine.peer_delays
        delays.stall_probability, delays.stall_ns, delays.reset_probability, delays.tear_probability = 0.03, PEER_STALL_NS, 0.005, 0.02

    def _ports_change(self) -> None:
        self.shared_machine.ports_change = True

    def _clocks_differ(self) -> None:
        random = self._random
        for node, audit in self.audits.items():
            node.wall_offset_ns += random.choice((-1, 1)) * random.randrange(random.choice(CLOCKS_NS))
            audit.clock_set()

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
        if not self.course.faults_over:
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
        if serving and (not self.course.faults_over or not drained):
            node = self.world.random.choice(serving)
            request = IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER, str(target.id), [AlterableConfig(DRAINED, 0, str(drained).lower())])])
            wire = self.scene.lookups.wire_to(node, "operator", "10.9.9.7")
            if wire is not None:
                wire.send(request, INCREMENTAL_ALTER_CONFIGS_VERSION, REQUEST_NS).when_settled(lambda reply: wire.close())
            if self.course.faults_over and drained is False:
                for other in serving:
                    other.loop.post(other.broker.cluster.members.drain, target.id, False)


CLUSTER_FAULTS: Final = (
    Fault("controller", "kill -9 of the controller", 60, ClusterRun._controller),
    Fault("two_nodes", "kill -9 of two nodes", 120, ClusterRun._two_nodes),
    Fault("drains", "drained node", 30, ClusterRun._drains),
    Fault("hop", "nodes drained in quick turns", 12, ClusterRun._hop),
    Fault("away", "a node stays away", 60, ClusterRun._away),
    Fault("peers", "stalled and broken connections between nodes", begin=ClusterRun._peers_fail),
    Fault("long_freeze", "a node frozen for long", 60, ClusterRun._long_freeze, own_moments=True),
    Fault("damage", "unreadable partition of __consumer_offsets", 60, ClusterRun._damage, own_moments=True),
    Fault("controller_stops", "orderly stop of the controller", 60, ClusterRun._controller_stops, own_moments=True),
    Fault("clocks", "clocks of the nodes differ and are set", 40, ClusterRun._clocks, ClusterRun._clocks_differ, own_moments=True),
    Fault("ports", "nodes restart on other ports", begin=ClusterRun._ports_change),
)
ClusterRun.kinds = {**Run.kinds, **{fault.name: fault for fault in CLUSTER_FAULTS}}


def new_run(plan: Plan, show: Callable[[str], object] | None = None) -> Run:
    return Run(plan, show) if plan.nodes == 1 else ClusterRun(plan, show)
