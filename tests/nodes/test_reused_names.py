"""A deletion that stays open while the name of its topic is used again, and the controller changes: each log has one owner, and keeps what was acknowledged.

The deletion stays open because a node is frozen, or because an offsets partition cannot be read.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from coordinator import partition_of
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from tests.nodes.torture.clients import COMMIT_VERSION, DELETE_RECORDS_VERSION, EARLIEST, Recreator, bounds, fetch, send
from tests.nodes.torture.faults import damage_partition
from tests.nodes.torture.links import Links
from tests.nodes.torture.nodes import DirectoryNodes, frozen
from tests.nodes.torture.owners import held_bytes, status, wrong_owners
from tests.nodes.torture.topics import Topic
from tests.running import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.once]

PARTITIONS = 40
OFFSETS_PARTITIONS = 12
SECONDS = 60.0
CHANGES = 2  # of controllers
TOPICS = ("orders", "payments", "refunds")


class ReusedNames:
    """120 partitions of topics whose names other topics had, and the records that they have acknowledged."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.nodes = DirectoryNodes(data, 3, {}, "cluster.node.timeout.ms=0", f"offsets.topic.num.partitions={OFFSETS_PARTITIONS}")
        self.problems: list[str] = []
        self.topics = [Topic(name, PARTITIONS, self.wrong) for name in TOPICS]
        self.links = Links(self.nodes, self.wrong)
        self._admin = Recreator(self.nodes, self.wrong, Random(1), self.topics)

    def wrong(self, kind: str, text: str) -> None:
        self.problems.append(f"{kind}: {text}")

    def begin(self) -> None:
        self.nodes.start()
        for topic in self.topics:
            wait_until(lambda topic=topic: self._admin.create(topic), SECONDS)  # type: ignore[misc]

    def close(self) -> None:
        self.links.close()
        self._admin.links.close()
        self.nodes.close()

    def controller(self) -> int:
        return wait_until(lambda: next((id for id in self.nodes.ids if status(self.links, id).get("status.controller") == "true"), 0), SECONDS, 0.05)

    def recreate(self) -> None:
        for topic in self.topics:
            self._admin.recreate(topic)

    def write(self) -> None:
        """Have each partition that is served acknowledge three records, and delete the first one."""
        for topic in self.topics:
            for leader, partitions in self.links.leaders(topic.name, topic.current.id).items():
                written = sorted(send(self.links, topic.current, leader, partitions, 3))
                for partition in written:
                    topic.current.deletion_asked(partition, topic.current.promised(partition)[1] - 2)
                asked = [DeleteRecordsPartition(partition, topic.current.promised(partition)[1] - 2) for partition in written]
                if asked:
                    reply = self.links.ask(leader, DeleteRecordsRequest([DeleteRecordsTopic(topic.name, asked)], 5_000), DELETE_RECORDS_VERSION)
                    for part in reply.topics[0].partitions:
                        if not part.error_code:
                            topic.current.deleted_before(part.partition_index, part.low_watermark)

    def await_service(self) -> None:
        """Wait until each partition acknowledges a record."""
        remaining = {topic: set(range(PARTITIONS)) for topic in self.topics}
        until = time.monotonic() + SECONDS
        while any(remaining.values()):
            assert time.monotonic() < until, {topic.name: sorted(partitions) for topic, partitions in remaining.items()}
            for topic, partitions in remaining.items():
                for leader, led in self.links.leaders(topic.name, topic.current.id).items() if partitions else ():
                    wanted = partitions.intersection(led)
                    partitions -= send(self.links, topic.current, leader, wanted) if wanted else set()

    def check(self) -> None:
        """Compare the owners of all logs, and read all logs."""
        counts = {topic.name: PARTITIONS for topic in self.topics}
        first, second = (wrong_owners(self.links, self.nodes.ids, counts, lambda id: held_bytes(self.nodes.pid(id), self.data)) for _ in range(2))
        assert not first & second
        for topic in self.topics:
            read: set[int] = set()
            until = time.monotonic() + SECONDS
            while len(read) < PARTITIONS:
                assert time.monotonic() < until, (topic.name, read)
                for leader, partitions in self.links.leaders(topic.name, topic.current.id).items():
                    starts = bounds(self.links, topic.current, leader, partitions, EARLIEST)
                    for partition, (error, start, end, records) in fetch(self.links, topic.current, leader, starts).items():
                        if not error:
                            topic.current.check_all(partition, start, end, records)
                            read.add(partition)
        assert not self.problems


@pytest.fixture
def reused(tmp_path: Path) -> Iterator[ReusedNames]:
    reused = ReusedNames(tmp_path / "data")
    try:
        yield reused
    finally:
        reused.close()


def damage(reused: ReusedNames) -> None:
    """Damage an offsets partition while no node runs."""
    group = "group"
    partition = partition_of(group, OFFSETS_PARTITIONS)
    topic = OffsetCommitRequestTopic(TOPICS[0], [OffsetCommitRequestPartition(0, 1, -1, "")])
    for _ in range(5):
        coordinator = wait_until(lambda: reused.links.coordinators([group]).get(group), SECONDS)
        reply = reused.links.ask(coordinator, OffsetCommitRequest(group, -1, "", None, topics=[topic]), COMMIT_VERSION)
        assert not reply.topics[0].partitions[0].error_code
    reused.links.close()
    assert reused.nodes.stop() == 0
    assert damage_partition(reused.data, partition)
    reused.nodes.start_processes()


@contextmanager
def one_frozen(reused: ReusedNames) -> Iterator[None]:
    """Freeze a node that is not the controller."""
    controller = reused.controller()
    with frozen(reused.nodes.pid(next(id for id in reused.nodes.ids if id != controller))):
        yield


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_names_reused_while_an_offsets_partition_is_damaged(reused: ReusedNames, number: signal.Signals) -> None:
    """No deletion ever ends: each new controller finishes all of them."""
    reused.begin()
    reused.await_service()
    damage(reused)
    reused.await_service()
    for _ in range(CHANGES):
        reused.recreate()
        reused.write()
        change_controller(reused, number)
        reused.await_service()
        reused.write()
        reused.check()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_names_reused_while_a_node_is_frozen(reused: ReusedNames, number: signal.Signals) -> None:
    """The deletion ends once the node has continued, under the next controller."""
    reused.begin()
    for _ in range(CHANGES):
        reused.await_service()
        with one_frozen(reused):
            reused.recreate()
            reused.write()
            change_controller(reused, number)
            reused.write()
        reused.await_service()
        reused.write()
        reused.check()


def change_controller(reused: ReusedNames, number: signal.Signals) -> None:
    controller = reused.controller()
    before = reused.nodes.pid(controller)
    reused.nodes.end(controller, number)
    wait_until(lambda: reused.nodes.pid(controller) != before, SECONDS)
    reused.controller()
