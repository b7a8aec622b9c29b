"""One run: start the nodes and their clients, let faults happen, end them, and compare everything with what was promised."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from coordinator import partition_of
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from tests.nodes.cluster import LATEST
from tests.nodes.torture.clients import (
    COMMIT_VERSION,
    EARLIEST,
    Committer,
    IdempotentProducer,
    Observer,
    Producer,
    Reader,
    RecordsDeleter,
    Recreator,
    Worker,
    bounds,
    fetch,
    send,
)
from tests.nodes.torture.faults import Faults, damage_partition
from tests.nodes.torture.links import Links
from tests.nodes.torture.nodes import COMMAND_SECONDS, DirectoryNodes, StreamedNodes, node_command
from tests.nodes.torture.owners import status
from tests.nodes.torture.topics import Incarnation, Topic

NODES = 3
OFFSETS_PARTITIONS = 20
DAMAGED = 7  # the offsets partition to damage
GROUPS = 12
START_SECONDS = 60.0
SERVE_SECONDS = 60.0  # from the end of the faults until everything serves; the supervisor may wait 30 s before it starts a node again
READ_SECONDS = 60.0
SKEW_MS_MAX = 90_000
TOLD_MAX = 3  # violations of a kind that are printed as they happen
NODE_TIMEOUTS_MS = (0, 6_000, 30_000)


class Torture:
    def __init__(self, folder: Path, seed: int, seconds: float, tell: Callable[[str], None], jetstream: bool = False, servers: int = 1) -> None:
        self.random = Random(seed)
        self._seconds = seconds
        self._tell = tell
        self._began = time.monotonic()
        self.violations: dict[str, list[str]] = {}
        self.first_violation = 0.0
        self._noting = threading.Lock()
        self._directory = None if jetstream else folder / "data"
        skews = {id: self.random.choice((0, self.random.randint(-SKEW_MS_MAX, SKEW_MS_MAX))) for id in range(1, NODES + 1)}
        settings = [f"offsets.topic.num.partitions={OFFSETS_PARTITIONS}", "log.segment.delete.delay.ms=1000"]
        timeout = self.random.choice(NODE_TIMEOUTS_MS)
        self.nodes: DirectoryNodes | StreamedNodes
        if jetstream:
            self.nodes = StreamedNodes(folder / "data", NODES, skews, *settings, servers=servers)
        else:
            self.nodes = DirectoryNodes(folder / "data", NODES, skews, *settings, f"cluster.node.timeout.ms={timeout}")
        place = f"JetStream, {servers} servers" if jetstream else f"a directory, cluster.node.timeout.ms={timeout}"
        tell(f"torture: {NODES} nodes over {place}, for {seconds:.0f} s, seed {seed}, clocks differ by {skews} ms")
        names = [f"group-{number}" for number in range(1_000)]
        self._groups = [name for name in names if partition_of(name, OFFSETS_PARTITIONS) != DAMAGED][:GROUPS]
        self._damaged_group = next(name for name in names if partition_of(name, OFFSETS_PARTITIONS) == DAMAGED)
        self.recreated = [Topic(f"recreated-{number}", 40, self.wrong) for number in range(2)]
        self.steady = [Topic("steady", 12, self.wrong)]
        self.idempotent = Topic("idempotent", 12, self.wrong)
        self.topics = [*self.recreated, *self.steady, self.idempotent]
        self.links = Links(self.nodes, self.wrong)

    def wrong(self, kind: str, text: str) -> None:
        with self._noting:
            at = time.monotonic() - self._began
            self.first_violation = self.first_violation or at
            found = self.violations.setdefault(kind, [])
            found.append(f"{at:.1f} s: {text}")
            if len(found) <= TOLD_MAX:
                self._tell(f"BROKEN {at:.1f} s: {kind}: {text}")

    def run(self) -> None:
        self.nodes.start()
        self._began = time.monotonic()
        workers = self._workers()
        try:
            self._strike()
            self._await_service()
        finally:
            for worker in workers:
                worker.stop()
        for topic in self.topics:
            self._compare(topic.current)
        self._check_lines()
        committer = next(worker for worker in workers if isinstance(worker, Committer))
        observer = next(worker for worker in workers if isinstance(worker, Observer))
        records = sum(incarnation.records for topic in self.topics for incarnation in topic.incarnations)
        commits = sum(account.commits for account in committer.accounts)
        topics = sum(len(topic.incarnations) for topic in self.topics)
        self._tell(f"torture: {records} records and {commits} commits acknowledged, {topics} topics created, owners compared {observer.looks} times")

    def _workers(self) -> list[Worker]:
        def new_random() -> Random:
            return Random(self.random.getrandbits(64))

        nodes, wrong = self.nodes, self.wrong
        recreator = Recreator(nodes, wrong, new_random(), self.recreated)
        for topic in self.topics:
            until = time.monotonic() + START_SECONDS
            while not recreator.create(topic):
                assert time.monotonic() < until, f"{topic.name} cannot be created"
        workers: list[Worker] = [
            recreator,
            Producer(nodes, wrong, new_random(), [*self.recreated, *self.steady]),
            Producer(nodes, wrong, new_random(), self.recreated),
            IdempotentProducer(nodes, wrong, new_random(), self.idempotent),
            Reader(nodes, wrong, new_random(), self.topics),
            RecordsDeleter(nodes, wrong, new_random(), [*self.recreated, *self.steady]),
            Committer(nodes, wrong, new_random(), [*self.recreated, *self.steady], self._groups),
            Observer(nodes, wrong, new_random(), self.topics, self._directory),
        ]
        for worker in workers:
            worker.start()
        return workers

    # Faults.

    def _strike(self) -> None:
        until = time.monotonic() + self._seconds
        faults = Faults(self.nodes, self.random, until, self._controller, self._damage, self._tell_event)
        try:
            faults.run()
        finally:
            faults.end()
        for id in self.nodes.ids:
            node_command(self.nodes, "undrain", id, COMMAND_SECONDS).wait(3 * COMMAND_SECONDS)
        self._tell(f"torture: {dict(faults.counts)}")

    def _tell_event(self, text: str) -> None:
        self._tell(f"  {time.monotonic() - self._began:.1f} s: {text}")

    def _controller(self) -> int | None:
        return next((id for id in self.nodes.ids if status(self.links, id).get("status.controller") == "true"), None)

    def _damage(self) -> bool:
        """Write offsets of a group to the partition, damage it, and end its owner."""
        if self._directory is None:
            return True
        node = self.links.coordinators([self._damaged_group]).get(self._damaged_group)
        if node is None:
            return False
        for offset in range(5):
            topics = [OffsetCommitRequestTopic(self.idempotent.name, [OffsetCommitRequestPartition(0, offset, -1, "")])]
            try:
                self.links.ask(node, OffsetCommitRequest(self._damaged_group, -1, "", None, topics=topics), COMMIT_VERSION)
            except OSError:
                return False
        if not damage_partition(self._directory, DAMAGED):
            return False
        self._tell_event(f"offsets partition {DAMAGED} is damaged, SIGKILL to its owner, node {node}")
        self.nodes.end(node, signal.SIGKILL)
        return True

    # The end.

    def _await_service(self) -> None:
        """Wait until each partition of a topic accepts a record, and each group but those of the damaged partition has a coordinator that answers."""
        began = time.monotonic()
        remaining = {topic.name: set(range(topic.partitions)) for topic in self.topics if topic is not self.idempotent}
        groups = set(self._groups)
        while (any(remaining.values()) or groups) and time.monotonic() < began + SERVE_SECONDS:
            for topic in self.topics:
                if remaining.get(topic.name):
                    with topic.shared() as incarnation:
                        if incarnation is not None:
                            for leader, partitions in self.links.leaders(incarnation.name, incarnation.id).items():
                                wanted = remaining[topic.name].intersection(partitions)
                                remaining[topic.name] -= send(self.links, incarnation, leader, wanted) if wanted else set()
            groups -= set(self.links.coordinators(sorted(groups)))
            time.sleep(0.05)
        if left := {name: sorted(partitions) for name, partitions in remaining.items() if partitions}:
            self.wrong("no service after the faults", f"{SERVE_SECONDS:.0f} s after the last fault these partitions accept no record: {left}")
        if groups:
            self.wrong("no service after the faults", f"{SERVE_SECONDS:.0f} s after the last fault these groups have no coordinator: {sorted(groups)}")
        self._tell(f"torture: everything served {time.monotonic() - began:.1f} s after the faults")

    def _compare(self, incarnation: Incarnation) -> None:
        """Read all logs of the topic from their start."""
        until = time.monotonic() + READ_SECONDS
        remaining = set(range(len(incarnation.partitions)))
        starts: dict[int, int] = {}
        ends: dict[int, int] = {}
        found: dict[int, dict[int, bytes]] = {}
        while remaining and time.monotonic() < until:
            for leader, led in self.links.leaders(incarnation.name, incarnation.id).items():
                partitions = sorted(remaining.intersection(led))
                unknown = [partition for partition in partitions if partition not in starts]
                if unknown:
                    starts |= bounds(self.links, incarnation, leader, unknown, EARLIEST)
                    ends |= bounds(self.links, incarnation, leader, unknown, LATEST)
                positions = {partition: max(found.get(partition, ()), default=starts[partition] - 1) + 1 for partition in partitions if partition in starts and partition in ends}
                for partition, at in positions.items():
                    if at >= ends[partition]:
                        incarnation.check_all(partition, starts[partition], ends[partition], found.get(partition, {}))
                        remaining.discard(partition)
                unread = {partition: at for partition, at in positions.items() if partition in remaining}
                for partition, (error, _, _, records) in (fetch(self.links, incarnation, leader, unread).items() if unread else ()):
                    if not error:
                        found.setdefault(partition, {}).update(records)
            time.sleep(0.01)
        if remaining:
            self.wrong("no service after the faults", f"{incarnation}: partitions {sorted(remaining)} cannot be read")

    def _check_lines(self) -> None:
        for text in self.nodes.texts():
            if text.startswith("{"):
                line = json.loads(text)
                if "defect" in line["event"] or "inside the broker" in line["event"]:
                    self.wrong("a defect that a node logged", text[:2_000])
            elif "Traceback" in text:
                self.wrong("a defect that a node logged", text)

    def summary(self) -> Counter[str]:
        return Counter({kind: len(found) for kind, found in self.violations.items()})

    def close(self) -> None:
        self.links.close()
        self.nodes.close()
