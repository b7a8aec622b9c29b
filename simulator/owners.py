"""The promises of several nodes about their logs: one owner at a time, one owner for each epoch, and epochs that never go down.

The first is checked inside the nodes: whenever a node locks or unlocks a log, at every change of a file, and ten times a second for all
open logs, so that two owners are found before both append. The others also show in replies to clients.
"""

from __future__ import annotations

from typing import Any, Final

from broker.internal_topics import CONSUMER_OFFSETS, NOTES_LOG, REGISTRY_LOG_ID, owning_log
from broker.stores.tokens import id_text
from simulator.cluster_node import ClusterNode, SharedMachine
from simulator.world import Broken, Promise, World, format_time
from storage import LogId
from storage.flush import read_topic_id
from storage.owners import GONE, LOCKS_FILE, OWNED, lock_byte_of, writer_open

ROOT: Final = "/data/"
LOCKS: Final = f"{ROOT}{LOCKS_FILE}"


class LeaderEpochs:
    """A partition's leader epoch in Metadata never goes down."""

    promise = Promise("leader epochs", "the leader epoch of a partition never goes down")

    def __init__(self, world: World) -> None:
        self._world = world
        self._answered: dict[tuple[str, int], tuple[int, int]] = {}  # partition -> newest epoch in a reply, and the moment of the first such reply

    def answered(self, partition: tuple[str, int], epoch: int, sent: int) -> None:
        """A Metadata request, sent at `sent`, was answered with this leader epoch of the partition."""
        newest, moment = self._answered.get(partition, (-1, 0))
        if epoch < newest and moment < sent:
            raise Broken(self.promise, f"{partition} has leader epoch {epoch}, and had {newest} at {format_time(moment)}", partition[0])
        if epoch > newest:
            self._answered[partition] = epoch, self._world.now

    def power_failed(self) -> None:
        """Forget all known epochs: after a power failure a log may reuse an epoch at which nothing was durable."""
        self._answered.clear()


class OneOwner:
    """At most one node may use a log at a time, and each of its epochs has one owner."""

    promise = Promise(
        "one owner",
        "a log has one owner at a time, who holds its lock and stands in the table of owners, and each of its epochs has one owner",
    )

    def __init__(self, world: World, shared_machine: SharedMachine) -> None:
        self._world = world
        self._shared_machine = shared_machine
        self._logs: dict[int, LogId] = {lock_byte_of(REGISTRY_LOG_ID): REGISTRY_LOG_ID}  # byte in the file of locks -> its log
        self._byte_of_log: dict[LogId, int] = {}
        self._bytes: dict[str, int] = {}  # folder of a log -> its byte in the file of locks
        self._epochs: dict[LogId, tuple[int, int, int]] = {}  # newest used epoch, its node and the life of that node

    def watch(self, node: ClusterNode) -> None:
        disk = node.disk
        disk.byte_locked = lambda at: self._locked(node, at)
        disk.byte_unlocked = lambda at: self._unlocked(node, at)
        disk.changing = lambda path: self._changing(node, path)

    def add_logs(self, topic: str, partitions: int) -> None:
        for number in range(partitions):
            id = LogId(topic, number)
            self._logs[lock_byte_of(id)] = id

    def _locked(self, node: ClusterNode, at: int) -> None:
        id = self._logs.get(at)
        if id is None:
            return
        for other in self._shared_machine.nodes:
            if other is not node and uses(other, id):
                self._break(f"{node.name} locks {id}, although {other.name} still serves it", id)

    def _unlocked(self, node: ClusterNode, at: int) -> None:
        id = self._logs.get(at)
        if id is not None and uses(node, id):
            self._break(f"{node.name} unlocks {id}, and still serves it", id)

    def _changing(self, node: ClusterNode, path: str) -> None:
        """A file is about to change: only the owner of a log may change its files."""
        if not path.startswith(ROOT):
            return
        folder = path[len(ROOT) :].partition("/")[0]
        at = self._bytes.get(folder)
        if at is None:
            at = self._bytes[folder] = self._lock_byte_of(folder)
        if at and node.running and self._shared_machine.disk.byte_owners.get((LOCKS, at)) is not node.disk:
            self._break(f"{node.name} changes {path} without the lock of the log", self._logs.get(at))

    def _lock_byte_of(self, folder: str) -> int:
        """The byte of the folder's log in the file of locks; 0 if the folder has no log."""
        name, _, number = folder.rpartition("-")
        if not number.isdigit():
            return 0
        return lock_byte_of(LogId(CONSUMER_OFFSETS if name == NOTES_LOG else name, int(number)))

    def _break(self, problem: str, id: LogId | None) -> None:
        # The caller is the simulated broker, which would contain an exception: so `World.run_until` raises it.
        self._world.broken = self._world.broken or Broken(self.promise, problem, str(id or ""))

    def check_locks(self) -> None:
        """Raise Broken if a node has a log open without the log's lock, or serves one whose slot in the table of owners names another writer."""
        held = self._shared_machine.disk.byte_owners
        for node in self._shared_machine.nodes:
            store = open_store(node)
            if store is None:
                continue
            for id in store._logs:
                at = self._byte_of(owning_log(id))
                if held.get((LOCKS, at)) is not node.disk:
                    raise Broken(self.promise, f"{node.name} has the log of {id} open, and not its lock", str(id))
                if id.name != NOTES_LOG and uses(node, id):
                    slot = store._table.read(id)
                    if (slot.node, slot.state, slot.writer) != (node.id, OWNED, writer_open(node.id)):
                        raise Broken(self.promise, f"{node.name} serves {id}, and the table of owners has {slot}", str(id))
            if node.serving and node.broker.cluster.registry.is_controller:
                self._check_slots(node, store)

    def _check_slots(self, node: ClusterNode, store: Any) -> None:
        """Raise Broken if the slot of a log says that its topic was deleted, and it has the log of a topic that exists."""
        disk = self._shared_machine.disk
        broker: Any = node.broker
        for topic in broker.topics.by_name.values():
            if topic.internal:
                continue
            for number in range(topic.partition_count):
                id = LogId(topic.name, number)
                if store._table.read(id).state == GONE and read_topic_id(disk, f"{ROOT}{id}") == id_text(topic.id):
                    raise Broken(self.promise, f"the slot of {id} is that of a deleted topic, although the log is that of a topic that exists", str(id))

    def _wrong_address(self, node: ClusterNode, live: list[ClusterNode]) -> str:
        """Say which node's address this node does not have."""
        known = node.broker.shards._store.view().live
        for other in live:
            ports = [port for _, _, port in known[other.id].addresses] if other.id in known else []
            if ports != [other.port]:
                return f"{node.name} has ports {ports} of {other.name}, which listens on {other.port}"
        return ""

    def _byte_of(self, id: LogId) -> int:
        at = self._byte_of_log.get(id)
        if at is None:
            at = self._byte_of_log[id] = lock_byte_of(id)
        return at

    def check(self) -> None:
        """Raise Broken if an epoch has two owners."""
        for node in self._shared_machine.nodes:
            if node.serving:
                for id, epoch in owned_epochs(node).items():
                    self._note(node, id, epoch)

    def _note(self, node: ClusterNode, id: LogId, epoch: int) -> None:
        newest, owner, life = self._epochs.get(id, (-1, 0, 0))
        if epoch < newest or (epoch == newest and (owner, life) != (node.id, node.life)):
            raise Broken(self.promise, f"{node.name} owns {id} at epoch {epoch}, although node {owner} owned it at epoch {newest}", str(id))
        self._epochs[id] = epoch, node.id, node.life

    def power_failed(self) -> None:
        """Forget all known epochs: after a power failure another owner may reuse an epoch at which nothing was durable."""
        self._epochs.clear()

    def deleted(self, topic: str) -> None:
        """A topic was deleted: when it is recreated, its epochs begin again."""
        self._epochs = {id: known for id, known in self._epochs.items() if id.name != topic}

    def problem(self, lost_topics: bool) -> str:
        """Say which log has no owner, or several; "" if each has one. `lost_topics`: a power failure may have lost topics, or that they have grown."""
        live = [node for node in self._shared_machine.nodes if node.running]
        if not all(node.serving for node in live):
            return "a node does not serve"
        for node in live:
            if not node.broker.cluster.settled:
                return f"{node.name} is not settled: {unsettled(node)}"
            wrong = self._wrong_address(node, live)
            if wrong:
                return wrong
        for id in self._logs.values():
            if lost_topics and not any(has_partition(node, id) for node in live) and id != REGISTRY_LOG_ID:
                continue
            owners = [node.name for node in live if uses(node, id)]
            if len(owners) != 1:
                return f"{id} has {len(owners)} owners: {'; '.join(ownership_text(node, id) for node in live)}"
        return ""


def open_store(node: ClusterNode) -> Any:
    """The node's store, unless the node has ended or closes its logs."""
    if not node.running or node.server is None or node.loop.dead or not hasattr(node.broker, "partitions"):
        return None
    store = node.broker.shards._store
    return None if store.finishing else store


def uses(node: ClusterNode, id: LogId) -> bool:
    """Whether the node serves the log."""
    if not node.running or node.server is None or node.loop.dead:
        return False
    broker: Any = node.broker
    if not hasattr(broker, "partitions"):
        return False
    if id == REGISTRY_LOG_ID:
        return bool(broker.cluster.registry.is_controller and broker.registry_journal.writable)
    if id.name == CONSUMER_OFFSETS:
        journals = broker.shards.journals
        return id.partition < len(journals) and not journals[id.partition].refusal
    topic = broker.topics.by_name.get(id.name)
    if topic is None or id.partition >= topic.partition_count:
        return False
    partition = broker.partitions.of_topic(topic)[id.partition]
    return bool(partition.opened and not partition.error)


def has_partition(node: ClusterNode, id: LogId) -> bool:
    topic = node.broker.topics.by_name.get(id.name)
    return topic is not None and id.partition < topic.partition_count


def owned_epochs(node: ClusterNode) -> dict[LogId, int]:
    """The logs that the node serves, with their epochs."""
    broker: Any = node.broker
    owned = {LogId(CONSUMER_OFFSETS, journal.partition): journal.epoch for journal in broker.shards.journals if not journal.refusal}
    for topic in broker.topics.by_name.values():
        if not topic.internal:
            for partition in broker.partitions.of_topic(topic):
                if partition.opened and not partition.error:
                    owned[partition.id] = partition.leader_epoch
    return owned


def ownership_text(node: ClusterNode, id: LogId) -> str:
    broker: Any = node.broker
    state = broker.cluster.ownership.state(id)
    text = f"{node.name} {state.name if state is not None else 'does not know it'}"
    topic = broker.topics.by_name.get(id.name)
    if id.name == CONSUMER_OFFSETS:
        journal = broker.shards.journals[id.partition]
        text += f", refusal {journal.refusal} {journal.refusal_reason}"
    elif topic is not None and not topic.internal and has_partition(node, id):
        partition = broker.partitions.of_topic(topic)[id.partition]
        text += f", {'' if partition.opened else 'not '}open, error {partition.error} {partition.refusal_reason}"
    return text


def unsettled(node: ClusterNode) -> str:
    ownership = node.broker.cluster.ownership
    live = sorted(ownership.live)
    states = ", ".join(f"{id} is {ownership.state(id).name}, expected at {ownership.expected_owner(id)}" for id in ownership.logs())
    return f"live {live}, draining {sorted(ownership.draining)}: {states[:2000]}"
