"""Model clients of topics: producers, readers, and an administrator that deletes records. All record values differ."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

from protocol.batch import CorruptBatch, Record, build, iterate_headers, records, validate
from protocol.errors import ErrorCode
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from simulator.client import Client, ClientConnection, Process
from simulator.node import Node
from simulator.records import Records
from simulator.scene import Scene
from simulator.world import MS, SECOND, Broken

REQUEST_NS: Final = 30 * SECOND
PAUSE_NS: Final = 200 * MS
PRODUCE_VERSION: Final = 8
FETCH_VERSION: Final = 11
LIST_OFFSETS_VERSION: Final = 5
DELETE_RECORDS_VERSION: Final = 2
EARLIEST: Final = -2
HIGH_WATERMARK: Final = -1  # as the offset in DeleteRecords: delete all records
FETCH_BYTES: Final = 4_000
BASE_OFFSET_BYTES: Final = 8


@lru_cache(2_000)
def read_batch(data: bytes) -> tuple[tuple[int, bytes], ...]:
    """Offset delta and value of each record of a batch, whose bytes begin after the base offset. Cached: readers read each batch many times."""
    batch = bytes(BASE_OFFSET_BYTES) + data
    validate(batch, 0, len(batch))
    return tuple((record.offset, bytes(record.value or b"")) for record in records(batch, 0))


def has_hole(nodes: Sequence[Node], topic: str, partition: int, offset: int) -> bool:
    """Whether `offset` is missing between two segments: a power failure has lost the end of the earlier segment, but not the later one."""
    logs = [node.broker.partitions.find(topic, partition) for node in nodes if node.serving]
    return any(before.next_offset <= offset < after.base for found in logs if found is not None and found.opened for before, after in pairwise(found.log._segments))


class TopicClient(Client):
    def __init__(self, scene: Scene, name: str, topic: str, partitions: int) -> None:
        super().__init__(scene.world, name)
        self._scene = scene
        self.topic = topic
        self.partitions = partitions
        self._wire: ClientConnection | None = None

    def _connected(self) -> ClientConnection | None:
        if self._wire is None or not self._wire.open:
            self._wire = self._scene.lookups.connect(self.name, "10.1.1.1")
        return self._wire

    def _draw_partition(self, wire: ClientConnection | None) -> Generator[Any, Any, tuple[int, ClientConnection] | None]:
        """A random partition and a connection to its leader; None if there is no connection."""
        if wire is None:
            return None
        partition = self.world.random.randrange(self.partitions)
        leader = yield from self._scene.lookups.find_leader(wire, self.name, self.topic, partition)
        return (partition, leader) if leader is not None else None


class Producer(TopicClient):
    def work(self) -> Process:
        scene, world = self._scene, self.world
        number = 0
        while True:
            yield world.between(PAUSE_NS // 4, PAUSE_NS)
            found = yield from self._draw_partition(self._connected() if self.topic in scene.topics.created else None)
            if found is None:
                continue
            partition, leader = found
            key = self.topic, partition
            values = []
            for _ in range(world.random.choice((1, 1, 3, 20))):
                number += 1
                values.append(f"{self.name} {number}".encode())
            scene.records.sent(key, values)
            incarnation = scene.records.incarnation(self.topic)
            made = world.now
            timestamp = scene.course.node.wall_ms
            batch = build([Record(at, timestamp, None, value, ()) for at, value in enumerate(values)])
            message = ProduceRequest(None, -1, 10_000, [TopicProduceData(self.topic, [PartitionProduceData(partition, batch)])])
            request = leader.send(message, PRODUCE_VERSION, REQUEST_NS)
            yield request
            if request.lost or request.sent <= scene.course.power_failed_at:  # a power failure voids the reply, since a produce reply does not wait for a flush
                continue
            answer = request.reply.responses[0].partition_responses[0]
            if incarnation != scene.records.incarnation(self.topic) or self.topic in request.unknown_topics:
                continue
            if answer.error_code == ErrorCode.NONE:
                scene.records.acknowledged(key, answer.base_offset, values, made)
                world.counts["records stored"] = world.counts.get("records stored", 0) + len(values)
            else:
                world.count(f"Produce {answer.error_code}")
                scene.lookups.lost_leader(self.name, self.topic, partition)
                yield SECOND


class Reader(TopicClient):
    """Reads each partition from its beginning to its end, again and again."""

    def work(self) -> Process:
        scene, world = self._scene, self.world
        offsets = [0] * self.partitions
        while True:
            yield world.between(PAUSE_NS // 4, PAUSE_NS)
            found = yield from self._draw_partition(self._connected())
            if found is None:
                continue
            partition, leader = found
            key = self.topic, partition
            topic_request = FetchTopic(topic=self.topic, partitions=[FetchPartition(partition, -1, offsets[partition], -1, -1, FETCH_BYTES)])
            incarnation = scene.records.incarnation(self.topic)
            request = leader.send(FetchRequest(None, None, -1, 100, 1, FETCH_BYTES, 0, 0, -1, [topic_request], None, ""), FETCH_VERSION, REQUEST_NS)
            yield request
            if request.lost or request.sent <= scene.course.power_failed_at or request.reply.error_code or not request.reply.responses:
                continue
            answer = request.reply.responses[0].partitions[0]
            if self.topic in request.unknown_topics:  # a node that serves the log of an earlier topic of that name
                scene.lookups.lost_leader(self.name, self.topic, partition)
            elif incarnation != scene.records.incarnation(self.topic) or self.topic not in scene.topics.created:
                offsets = [0] * self.partitions
            elif answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:  # retention deleted the beginning, or a power failure lost the end
                yield from self._seek(leader, offsets, partition)
            elif answer.error_code:
                world.count(f"Fetch {answer.error_code}")
                scene.lookups.lost_leader(self.name, self.topic, partition)
            elif answer.records:
                scene.records.check_log_start(key, answer.log_start_offset, request.sent)
                scene.records.check_and_forget_before(key, answer.log_start_offset)
                try:
                    offsets[partition] = self._read(partition, offsets[partition], answer.records, request.sent)
                except CorruptBatch as error:
                    world.count("corrupt batch read")
                    if key not in scene.records.rotten:
                        raise Broken(Records.promise, f"{self.topic}-{partition}: {error}", self.topic) from error
            elif offsets[partition] < answer.high_watermark and not has_hole(list(scene.coordinators.memories), self.topic, partition, offsets[partition]):
                raise Broken(Records.promise, f"{key} has no records at {offsets[partition]}, although its high watermark is {answer.high_watermark}", self.topic)
            elif world.chance(0.01):
                offsets[partition] = 0

    def _seek(self, wire: ClientConnection, offsets: list[int], partition: int) -> Process:
        """Continue to read at the first record of the partition."""
        incarnation = self._scene.records.incarnation(self.topic)
        topic_request = ListOffsetsTopic(self.topic, [ListOffsetsPartition(partition, -1, EARLIEST)])
        request = wire.send(ListOffsetsRequest(-1, 0, [topic_request]), LIST_OFFSETS_VERSION, REQUEST_NS)
        yield request
        if not request.lost and self.topic not in request.unknown_topics and incarnation == self._scene.records.incarnation(self.topic):
            answer = request.reply.topics[0].partitions[0]
            if not answer.error_code:
                offsets[partition] = answer.offset
                self._scene.records.check_log_start((self.topic, partition), answer.offset, request.sent)
                self._scene.records.check_and_forget_before((self.topic, partition), answer.offset)
            else:
                self._scene.lookups.lost_leader(self.name, self.topic, partition)

    def _read(self, partition: int, offset: int, data: bytes, sent: int) -> int:
        """Compare the records of a reply with the acknowledged ones; returns the next offset to read."""
        scene, key = self._scene, (self.topic, partition)
        end = scene.records.end_of_repeated_read(key, offset, data)
        if end >= 0:
            self.world.counts["records read"] += end - offset
            return end
        expected = offset
        begin = 0
        without_gap = True
        for header in iterate_headers(data, 0, len(data)):
            for number, value in read_batch(data[begin + BASE_OFFSET_BYTES : begin + header.size]):
                at = header.base_offset + number
                if at < offset:
                    continue
                if at > expected:
                    scene.records.skipped(key, expected, at, sent)
                    without_gap = False
                if at < expected:
                    raise Broken(Records.promise, f"{key} has offset {at} after {expected - 1}", self.topic)
                scene.records.read(key, at, value)
                expected = at + 1
            begin += header.size
        if without_gap:
            scene.records.read_whole(key, offset, data, expected)
        self.world.counts["records read"] = self.world.counts.get("records read", 0) + expected - offset
        return max(expected, offset)


class Deleter(TopicClient):
    """Deletes records from the beginning of a partition, sometimes all of them."""

    def work(self) -> Process:
        scene, world = self._scene, self.world
        while True:
            yield world.between(SECOND, 10 * SECOND)
            found = yield from self._draw_partition(self._connected() if self.topic in scene.topics.created else None)
            if found is None:
                continue
            partition, leader = found
            key = self.topic, partition
            offset = world.random.randint(*scene.records.bounds(key)) if world.chance(0.8) else HIGH_WATERMARK
            world.trace(f"{self.name}: deletes the records of {self.topic}-{partition} before {offset}", self.topic)
            deleted = scene.records.delete_before(key, offset)
            message = DeleteRecordsRequest([DeleteRecordsTopic(self.topic, [DeleteRecordsPartition(partition, offset)])], 10_000)
            request = leader.send(message, DELETE_RECORDS_VERSION, REQUEST_NS)
            yield request
            if request.lost or self.topic in request.unknown_topics:
                continue
            answer = request.reply.topics[0].partitions[0]
            world.count(f"DeleteRecords {answer.error_code}")
            if answer.error_code:
                scene.lookups.lost_leader(self.name, self.topic, partition)
            else:
                deleted(answer.low_watermark)
