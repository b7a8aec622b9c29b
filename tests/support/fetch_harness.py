"""Fetch and ListOffsets without a broker: real partitions over a disk in memory, requests as bytes, a turn by hand."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from broker.api import fetch as fetch_api
from broker.api import list_offsets, offset_for_leader_epoch
from broker.net.connection import Connection, ConnectionContext
from broker.net.dispatch import Dispatch
from broker.net.long_requests import LongRequests
from broker.runtime.node import Address, Node
from broker.runtime.turn import Turn
from broker.runtime.workers import Workers
from broker.security.authorizer import Authorizer
from broker.topics.partition import Partition
from broker.topics.registry import TopicRegistry
from broker.topics.settings import log_settings
from broker.topics.waiting_fetches import ParkedFetches
from protocol.apis import APIS
from protocol.batch import Record, build, read_header
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from simulator.disk import SimDisk
from storage import Handles, Log
from tests.support.headers import encode_request, response_header_version
from tests.support.stepped_loop import SteppedLoop
from tests.support.transports import BareTransport

FOLDER = "/data"
NO_ID = bytes(16)


def records_batch(count: int = 1, padding: int = 100, timestamp: int = 1_000) -> bytes:
    return build([Record(number, timestamp + number, f"key.{number}".encode(), bytes(padding), []) for number in range(count)])


class ImmediateLog:
    """The port `TopicLog` over a log on the disk, as far as a partition needs it; appends end at once."""

    assigns_offsets_at_once = True
    batch_bytes_max = 1 << 20

    def __init__(self, log: Log) -> None:
        self.log = self.records = log
        self.epoch = log.epoch

    def append(self, batch: bytearray, done: Any) -> int:
        return self.log.append(batch, self.epoch)


class FakePartitions:
    """The part of `Partitions` that handlers use; `find` opens the logs of a topic without a delay."""

    def __init__(self, topics: TopicRegistry, disk: SimDisk, segment_bytes: int) -> None:
        self.handles = Handles(disk)
        self.opened_sooner: list[str] = []
        self._topics = topics
        self._segment_bytes = segment_bytes
        self._served: dict[bytes, list[Partition]] = {}

    def find(self, name: str, index: int) -> Partition | None:
        topic = self._topics.by_name.get(name)
        if topic is None or not 0 <= index < topic.partition_count:
            return None
        partition = self.of_topic(topic)[index]
        if partition.error:
            self.opened_sooner.append(str(partition))
        return partition

    def of_topic(self, topic: Any) -> list[Partition]:
        served = self._served.get(topic.id)
        if served is None:
            settings = log_settings({}, {})
            served = self._served[topic.id] = [Partition(topic, index, settings, cast(Any, self)) for index in range(topic.partition_count)]
            for partition in served:
                log, _ = Log.open(self.handles, f"{FOLDER}/{partition}", self._segment_bytes, 0, False)
                partition.use_log(cast(Any, ImmediateLog(log)))
        return served


class FakeTransport(BareTransport):
    """The transport of a connection: collects the bytes that the broker writes, and splits them into frames."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.open = True

    def write(self, data: bytes, /) -> None:
        self.data += data

    def writelines(self, parts: list[bytes], /) -> None:
        for part in parts:
            self.data += part

    def frames(self) -> list[bytes]:
        frames = []
        at = 0
        while at < len(self.data):
            size = int.from_bytes(self.data[at : at + 4], "big")
            assert len(self.data) >= at + 4 + size, "part of a frame"
            frames.append(bytes(self.data[at + 4 : at + 4 + size]))
            at += 4 + size
        self.data.clear()
        return frames

    def close(self) -> None:
        self.open = False

    def abort(self) -> None:
        self.open = False


class FetchClient:
    """A client on its own connection."""

    def __init__(self, harness: FetchHarness) -> None:
        self.harness = harness
        self.wire = FakeTransport()
        self.connection = Connection(harness.context, harness.address, "127.0.0.1")
        self.connection.connection_made(self.wire)
        self._unanswered: list[tuple[int, int]] = []

    def send(self, request: Any, version: int) -> None:
        self.send_body(request.API_KEY, version, request.encode(version))

    def send_body(self, key: int, version: int, body: bytes) -> None:
        self._unanswered.append((key, version))
        self.harness.clock.tick()
        self.connection.data_received(encode_request(key, version, 7, "consumer", body))

    def replies(self) -> list[Any]:
        """The replies since the last call."""
        replies = []
        for frame in self.wire.frames():
            key, version = self._unanswered.pop(0)
            at = 4 + response_header_version(key, version)
            reply, end = APIS[key].response.decode(frame, at, version)
            assert end == len(frame)
            replies.append(reply)
        return replies

    def ask(self, request: Any, version: int) -> Any:
        """The reply, which must arrive without waiting for time to pass; a long reply may take some turns of the loop."""
        self.send(request, version)
        for _ in range(1_000):
            if not self.harness.loop.busy:
                break
            self.harness.end_turn()
        (reply,) = self.replies()
        return reply

    def ask_at_once(self, request: Any, version: int) -> Any:
        """The reply, which must be there before the turn ends."""
        self.send(request, version)
        (reply,) = self.replies()
        return reply

    def lose_connection(self) -> None:
        self.connection.connection_lost(None)


class FetchHarness:
    def __init__(self, segment_bytes: int = 1 << 30, authorizer: Authorizer | None = None, bytes_max: int = 57_671_680, workers: Workers | None = None) -> None:
        self.loop = SteppedLoop(100.0)
        self.clock = self.loop.clock()
        self.turn = Turn(cast(Any, self.loop), self.clock)
        self.disk = SimDisk()
        self.disk.make_folder(FOLDER)
        self._ids = 0
        self.topics = TopicRegistry(self._new_id)
        self.finder = FakePartitions(self.topics, self.disk, segment_bytes)
        self.fetches = ParkedFetches(self.turn, self.clock)
        self.turn.add_deadline_handler(self.fetches)
        self.address = Address("PLAINTEXT", "127.0.0.1", 9092)
        self.node = Node(1, "cluster")
        parts: Any = SimpleNamespace(
            leaders=None,
            status=dict,
            drain=None,
            config=SimpleNamespace(fetch_max_bytes=bytes_max),
            node=self.node,
            clock=self.clock,
            authorizer=authorizer or Authorizer(),
            topics=self.topics,
            partitions=self.finder,
            fetches=self.fetches,
            long_requests=LongRequests(self.turn, workers),
        )
        dispatch = Dispatch(200_000)
        dispatch.add_routes(*[module.route(parts) for module in (fetch_api, list_offsets, offset_for_leader_epoch)])
        self.context = ConnectionContext(self.clock, self.turn, dispatch, lambda connection, reason: None, 1 << 27, 1 << 20, 1 << 20)
        self.client = FetchClient(self)
        self.ask = self.client.ask

    def _new_id(self) -> bytes:
        self._ids += 1
        return bytes([0xA0]) * 12 + self._ids.to_bytes(4, "big")

    def create_topic(self, name: str, partitions: int = 1) -> bytes:
        return self.topics.create(name, partitions, {}, 0).id

    def partition(self, name: str, index: int = 0) -> Partition:
        partition = self.finder.find(name, index)
        assert partition is not None
        return partition

    def append(self, name: str, index: int = 0, *batches: bytes) -> None:
        partition = self.partition(name, index)
        for batch in batches or (records_batch(),):
            partition.append(bytearray(batch), read_header(batch, 0))

    def new_epoch(self, name: str, index: int = 0) -> int:
        partition = self.partition(name, index)
        log = partition.log
        assert isinstance(log, Log)
        epoch = log.claim()
        partition.owned_log.epoch = epoch
        return epoch

    def end_turn(self) -> None:
        self.loop.pass_once()

    def pass_ms(self, ms: int) -> None:
        """Time passes, and due timers fire."""
        for _ in range(ms):
            self.loop.advance(0.001)
            self.loop.pass_once()
        self.loop.pass_once()


def fetch(
    *topics: FetchTopic, max_wait_ms: int = 0, min_bytes: int = 1, max_bytes: int = 1 << 20, isolation_level: int = 0, replica: int = -1, **more: Any
) -> FetchRequest:
    state = ReplicaState(replica) if replica != -1 else None
    request = FetchRequest(None, state, replica, max_wait_ms, min_bytes, max_bytes, isolation_level, topics=list(topics))
    for name, value in more.items():
        setattr(request, name, value)
    return request


def fetch_topic(topic: str | bytes, *partitions: FetchPartition) -> FetchTopic:
    return FetchTopic(partitions=list(partitions), **({"topic": topic} if isinstance(topic, str) else {"topic_id": topic}))


def fetch_partition(offset: int, partition: int = 0, most: int = 1 << 20, current: int = -1, fetched: int = -1) -> FetchPartition:
    return FetchPartition(partition, current, offset, fetched, -1, most)


def partition_replies(reply: Any) -> list[tuple[int, int, int, int]]:
    """For each partition: number, error, high watermark, bytes of records."""
    return [
        (partition.partition_index, partition.error_code, partition.high_watermark, len(partition.records)) for topic in reply.responses for partition in topic.partitions
    ]


def offsets_in(records: bytes) -> Sequence[int]:
    offsets: list[int] = []
    at = 0
    while at < len(records):
        header = read_header(records, at)
        offsets += range(header.base_offset, header.next_offset)
        at += header.size
    return offsets
