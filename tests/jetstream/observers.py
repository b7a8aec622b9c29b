"""Clients in threads that send requests to every node, whatever it owns, and record the replies."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from protocol.batch import build_facts, iterate_headers, records
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.jetstream.history import Generation, History, Leadership, Read, Record, Write
from tests.nodes.cluster import OFFSET_FETCH_VERSION, PRODUCE_VERSION, Nodes
from tests.running import Client

TOPIC, PARTITIONS, OFFSETS, OFFSETS_PARTITIONS = "orders", 3, "__consumer_offsets", 4
COMMIT_VERSION, JOIN_VERSION, SYNC_VERSION, FETCH_VERSION, LIST_OFFSETS_VERSION = 8, 9, 5, 12, 6
REFUSED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # errors of nodes that did not process the request
UNANSWERED = -2
SILENT_SECONDS = 2.0
PAUSE_SECONDS = 0.01


class Observer:
    """One client; each `step` sends a request."""

    def __init__(self, nodes: Nodes, history: History, number: int) -> None:
        self.nodes = nodes
        self.history = history
        self.random = random.Random(number)
        self.number = number
        self._clients: dict[int, Client] = {}

    def step(self) -> None:
        raise NotImplementedError

    def ask(self, id: int, request: Any, version: int) -> Any | None:
        """Send a request to a node; returns the reply, or None if none came: the request may have been processed."""
        try:
            if id not in self._clients:
                self._clients[id] = self.nodes.client(id)
                self._clients[id].socket.settimeout(SILENT_SECONDS)
            return self._clients[id].ask(request, version)
        except OSError:
            if id in self._clients:
                self._clients.pop(id).socket.close()
            return None

    def close(self) -> None:
        for client in self._clients.values():
            client.socket.close()


class Commits(Observer):
    """Commits increasing offsets of a group, and fetches them from any node. After a commit without a clear reply the group is only read."""

    def __init__(self, nodes: Nodes, history: History, number: int) -> None:
        super().__init__(nodes, history, number)
        self.groups: list[str] = []
        self._begin()

    def _begin(self) -> None:
        self.groups.append(f"commits-{self.number}-{len(self.groups)}")
        self._value = 0
        self._owner = self.random.choice(self.nodes.ids)

    def step(self) -> None:
        if self.random.random() < 0.5:
            self._commit()
        else:
            self.read(self.random.choice(self.nodes.ids), self.random.choice(self.groups[-3:]), self.history.reads)

    def _commit(self) -> None:
        group, value, begun = self.groups[-1], self._value + 1, time.monotonic()
        topics = [OffsetCommitRequestTopic(TOPIC, [OffsetCommitRequestPartition(0, value, -1, "")])]
        reply = self.ask(self._owner, OffsetCommitRequest(group, -1, "", None, topics=topics), COMMIT_VERSION)
        error = reply.topics[0].partitions[0].error_code if reply is not None else UNANSWERED
        self.history.errors.add(error)
        if error in REFUSED:
            self._owner = self.random.choice(self.nodes.ids)
        if error in REFUSED and not self._value:
            return
        self._value = value
        self.history.writes.append(Write(group, value, begun, time.monotonic(), not error))
        if error:
            self._begin()

    def read(self, id: int, group: str, to: list[Read]) -> bool:
        begun = time.monotonic()
        reply = self.ask(id, OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None)]), OFFSET_FETCH_VERSION)
        if reply is None or reply.groups[0].error_code:
            return False
        value = max((partition.committed_offset for topic in reply.groups[0].topics for partition in topic.partitions), default=-1)
        to.append(Read(group, value, begun, time.monotonic(), id))
        return True


class Rebalances(Observer):
    """A group of one member that asks for another rebalance as soon as one has ended."""

    member_id = ""
    rounds = 0

    def step(self) -> None:
        group, begun = f"rebalances-{self.number}", time.monotonic()
        self.rounds += 1
        protocols = [JoinGroupRequestProtocol("p", b"%d" % self.rounds)]
        id = self.random.choice(self.nodes.ids)
        reply = self.ask(id, JoinGroupRequest(group, 30_000, 30_000, self.member_id, None, "tests", protocols), JOIN_VERSION)
        if reply is None:
            return
        if reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        elif reply.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = reply.member_id
        if reply.error_code:
            return
        assignments = [SyncGroupRequestAssignment(self.member_id, b"all")]
        synced = self.ask(id, SyncGroupRequest(group, reply.generation_id, self.member_id, None, "tests", "p", assignments), SYNC_VERSION)
        if synced is not None and not synced.error_code:
            self.history.generations.append(Generation(group, reply.generation_id, begun, time.monotonic()))


class Records(Observer):
    """Produces to any node, reads from any node, and requests the leader epochs of each."""

    def step(self) -> None:
        id, partition = self.random.choice(self.nodes.ids), self.random.randrange(PARTITIONS)
        choice = self.random.random()
        if choice < 0.5:
            self._produce(id, partition)
        elif choice < 0.8:
            self.fetch(id, partition, self.history.fetched)
        else:
            self._ask_epochs(id)

    def _produce(self, id: int, partition: int) -> None:
        value = b"%d-%d" % (self.number, self.random.getrandbits(60))
        data = [PartitionProduceData(partition, build_facts([(b"", value)], int(time.time() * 1000)))]
        reply = self.ask(id, ProduceRequest(None, -1, 1_000, [TopicProduceData(TOPIC, data)]), PRODUCE_VERSION)
        if reply is not None:
            (part,) = reply.responses[0].partition_responses
            self.history.errors.add(part.error_code)
            if not part.error_code:
                self.history.stored.append(Record(partition, part.base_offset, value))

    def fetch(self, id: int, partition: int, to: set[Record]) -> bool:
        """Add all records of the partition. Return whether the node returned them."""
        offset = 0
        while True:
            wanted = FetchTopic(topic=TOPIC, partitions=[FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1 << 20)])
            reply = self.ask(id, FetchRequest(replica_id=-1, max_wait_ms=200, min_bytes=1, max_bytes=1 << 20, topics=[wanted]), FETCH_VERSION)
            if reply is None or (part := reply.responses[0].partitions[0]).error_code:
                return False
            data, at = bytes(part.records or b""), 0
            for header in iterate_headers(data, 0, len(data)):
                to |= {Record(partition, record.offset, bytes(record.value or b"")) for record in records(data, at)}
                at += header.size
                offset = header.next_offset
            if offset >= part.high_watermark:
                return True

    def _ask_epochs(self, id: int) -> None:
        topics = [
            ListOffsetsTopic(name, [ListOffsetsPartition(partition, -1, -1) for partition in range(count)])
            for name, count in ((TOPIC, PARTITIONS), (OFFSETS, OFFSETS_PARTITIONS))
        ]
        reply = self.ask(id, ListOffsetsRequest(-1, 0, topics), LIST_OFFSETS_VERSION)
        if reply is not None:
            self.history.leaderships |= {
                Leadership((topic.name, partition.partition_index), partition.leader_epoch, id)
                for topic in reply.topics
                for partition in topic.partitions
                if not partition.error_code
            }


class Observers:
    """All clients, each in its thread, until the end."""

    def __init__(self, nodes: Nodes, history: History) -> None:
        self.nodes = nodes
        self.history = history
        self.commits = [Commits(nodes, history, number) for number in range(4)]
        self.records = [Records(nodes, history, 10 + number) for number in range(2)]
        self.all: list[Observer] = [*self.commits, *self.records, *(Rebalances(nodes, history, 20 + number) for number in range(2))]
        self.problems: list[BaseException] = []
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(observer.step,)) for observer in self.all]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _run(self, step: Callable[[], None]) -> None:
        try:
            while not self._ending.wait(PAUSE_SECONDS):
                step()
        except BaseException as problem:
            self.problems.append(problem)

    def end(self) -> None:
        self._ending.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def read_everything(self, await_true: Callable[[Callable[[], bool]], object]) -> None:
        """Read the final state from the nodes that own it."""
        for observer in self.commits:
            for group in observer.groups:
                await_true(partial(self._any, partial(observer.read, group=group, to=self.history.last_reads)))
        for partition in range(PARTITIONS):
            await_true(partial(self._any, partial(self.records[0].fetch, partition=partition, to=self.history.last_fetched)))

    def _any(self, asked: Callable[[int], bool]) -> bool:
        return any(asked(id) for id in self.nodes.ids)

    def close(self) -> None:
        self.end()
        for observer in self.all:
            observer.close()
