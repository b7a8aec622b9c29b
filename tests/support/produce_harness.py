"""The code behind a connection that accepts Produce requests, in one thread: real connections, dispatch and handlers, over
partitions in memory that fail when the test says so.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from struct import pack, unpack
from types import SimpleNamespace
from typing import Any, cast

from broker.api import init_producer_id, produce
from broker.internal_topics import CONSUMER_OFFSETS
from broker.net.connection import Connection, ConnectionContext
from broker.net.dispatch import Dispatch
from broker.net.long_requests import LongRequests
from broker.runtime.clock import Clock
from broker.runtime.node import Address
from broker.runtime.turn import Turn
from broker.security.authorizer import Authorizer
from broker.topics.append import CheckTimeBudget
from broker.topics.appender import Appender
from broker.topics.batch_checker import Job, check_at_once
from broker.topics.batch_checker_process import CheckResult
from broker.topics.batch_queues import BatchQueues
from broker.topics.producer_ids import RegistryProducerIds
from broker.topics.registry import Topic, TopicRegistry
from broker.topics.settings import LogSettings, log_settings
from broker.topics.transactions import TransactionRefusals
from protocol.apis import APIS
from protocol.batch import BatchHeader, stamp
from protocol.messages.produce import ProduceRequest
from storage import AppendFailed, Producers
from tests.support.headers import encode_request, response_header_version
from tests.support.stepped_loop import SteppedLoop
from tests.support.transports import BareTransport

DIALLED = Address("PLAIN", "here.example", 9092)


class MemoryPartition:
    """The interface of `broker.topics.partitions.Partition` for writers."""

    batch_bytes_max = 1 << 20

    def __init__(self, topic: Topic, index: int, settings: LogSettings) -> None:
        self.topic = topic
        self.index = index
        self.settings = settings
        self.error = 0
        self.assigns_offsets_at_once = True
        self.appends_fail = False  # as on a full disk
        self.start_offset = 0
        self.high_watermark = 0
        self.producers = Producers()
        self.batch_queue: deque[Any] | None = None
        self.batches: list[bytes] = []

    def __str__(self) -> str:
        return f"{self.topic.name}-{self.index}"

    def append(self, batch: bytearray, header: BatchHeader) -> int:
        assert isinstance(batch, bytearray)
        assert header.size == len(batch)
        if self.appends_fail:
            raise AppendFailed("the disk is full")
        offset = self.high_watermark
        stamp(batch, 0, offset, 0)
        self.batches.append(bytes(batch))
        self.high_watermark += header.last_offset_delta + 1
        if header.producer_id >= 0:
            self.producers.note(header, offset)
        return offset

    def append_async(self, batch: bytearray, header: BatchHeader, done: Callable[[int | AppendFailed], None]) -> None:
        result: int | AppendFailed
        try:
            result = self.append(batch, header)
        except AppendFailed as failure:
            result = failure
        done(result)

    @property
    def data(self) -> bytes:
        return b"".join(self.batches)


class MemoryPartitions:
    def __init__(self, topics: TopicRegistry) -> None:
        self._topics = topics
        self._partitions: dict[tuple[bytes, int], MemoryPartition] = {}

    def find(self, name: str, index: int) -> MemoryPartition | None:
        topic = self._topics.by_name.get(name)
        if topic is None or not 0 <= index < topic.partition_count:
            return None
        partition = self._partitions.get((topic.id, index))
        if partition is None:
            partition = self._partitions[topic.id, index] = MemoryPartition(topic, index, log_settings(topic.settings, {}))
        return partition


class Registry:
    """A stand-in for the journal of the topic registry: it holds replies until the test releases them."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.writable = True
        self.held: list[Any] = []

    def end_turn(self) -> None:
        """Do nothing: the test releases held replies."""

    def hold_reply(self, held: Any) -> None:
        self.held.append(held)

    def release_replies(self) -> None:
        held, self.held = self.held, []
        for reply in held:
            reply.release()

    def fail_replies(self, error: int = 56) -> None:
        held, self.held = self.held, []
        for reply in held:
            reply.fail(error)


class MemoryChecker:
    """A stand-in for the checker processes (`broker.topics.batch_checker`). While `outcomes` is not empty, a check returns its next item."""

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque()
        self.checked = 0
        self.outcomes: deque[CheckResult] = deque()

    def submit(self, job: Job) -> None:
        self.jobs.append(job)

    def check(self) -> None:
        """Check the first batch of the queue."""
        job = self.jobs.popleft()
        self.checked += 1
        if self.outcomes:
            job.done(self.outcomes.popleft())
        else:
            job.done(check_at_once(job))


class FakeTransport(BareTransport):
    """A connection's transport: the written bytes, and whether it was closed."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True


class ProduceHarness:
    """A broker with these topics: their partitions and their settings. Its clock is real unless `ms` is set."""

    def __init__(self, topics: dict[str, tuple[int, dict[str, str]]], authorizer: Authorizer | None = None, ms: int | None = None, moves: bool = False) -> None:
        """`moves`: the clock's deadlines follow the loop's time; its wall time stays."""
        self.loop = SteppedLoop()
        self.clock = Clock() if ms is None else Clock(lambda: ms * 1_000_000, lambda: ms * 1_000_000)
        if ms is not None and moves:
            self.clock = Clock(lambda: ms * 1_000_000, lambda: round(self.loop.time() * 1_000_000_000))
        self.topics = TopicRegistry(iter(pack(">qq", 7, number) for number in range(1 << 20)).__next__)
        self.topics.create(CONSUMER_OFFSETS, 1, {"cleanup.policy": "compact"}, 0)
        for name, (partitions, settings) in topics.items():
            self.topics.create(name, partitions, settings, 0)
        self.turn = Turn(cast(AbstractEventLoop, self.loop), self.clock)
        self.registry = Registry(self.turn)
        self.partitions = self.make_partitions()
        self.transactions = TransactionRefusals()
        self.dispatch = Dispatch(1 << 20)
        self.checker = MemoryChecker()
        check_budget = CheckTimeBudget(self.turn, lambda: 0)  # zero time used: with a real clock, a busy machine would send batches to the checker
        appender = Appender(self.clock, check_budget)
        self.batch_queues = BatchQueues(self.checker, appender, self.turn, self.clock)
        parts: Any = SimpleNamespace(
            long_requests=LongRequests(self.turn),
            leaders=None,
            status=dict,
            drain=None,
            clock=self.clock,
            authorizer=authorizer or Authorizer(),
            topics=self.topics,
            registry_journal=self.registry,
            producer_ids=RegistryProducerIds(self.topics, self.registry),  # type: ignore[arg-type]
            partitions=self.partitions,
            transaction_refusals=self.transactions,
            check_budget=check_budget,
            appender=appender,
            batch_queues=self.batch_queues,
        )
        self.dispatch.add_routes(produce.route(parts), init_producer_id.route(parts))
        self.produce: Any = self.dispatch.routes[ProduceRequest.API_KEY].handle
        self.context = ConnectionContext(self.clock, self.turn, self.dispatch, lambda connection, reason: None, 100 << 20, 1 << 20, 1 << 20)

    def make_partitions(self) -> Any:
        return MemoryPartitions(self.topics)

    def caller(self) -> ProduceClient:
        return ProduceClient(self)

    def settle(self) -> None:
        """Run until no check and no end-of-turn work is left."""
        while self.loop.busy or self.checker.jobs:
            self.loop.pass_once()
            while self.checker.jobs:
                self.checker.check()


class ProduceClient:
    """A client, on its own connection."""

    def __init__(self, harness: ProduceHarness) -> None:
        self.harness = harness
        self.connection = Connection(harness.context, DIALLED, "peer")
        self.wire = FakeTransport()
        self.connection.connection_made(self.wire)
        self._correlation_id = 0

    @property
    def closed(self) -> bool:
        return self.wire.closed

    def send(self, *frames: bytes) -> None:
        self.connection.data_received(b"".join(pack(">i", len(frame)) + frame for frame in frames))

    def replies(self) -> list[bytes]:
        """The frames since the last call."""
        data = bytes(self.wire.written)
        self.wire.written.clear()
        frames = []
        while data:
            (size,) = unpack(">i", data[:4])
            frames.append(data[4 : 4 + size])
            data = data[4 + size :]
        return frames

    def frame(self, request: Any, version: int, client_id: str | None = "client") -> bytes:
        """The request, after its length. Topics without an id get theirs, in versions that send it."""
        self._correlation_id += 1
        if isinstance(request, ProduceRequest) and version >= 13:
            for topic in request.topic_data:
                topic.topic_id = self.harness.topics.id_of(topic.name) or topic.topic_id
        return encode_request(request.API_KEY, version, self._correlation_id, client_id, request.encode(version))[4:]

    def ask(self, request: Any, version: int, client_id: str | None = "client") -> Any:
        """The reply; None if there is none."""
        self.send(self.frame(request, version, client_id))
        self.harness.settle()
        replies = self.replies()
        assert len(replies) <= 1
        return self.read(request, version, replies[0]) if replies else None

    def read(self, request: Any, version: int, frame: bytes) -> Any:
        assert unpack(">i", frame[:4])[0] <= self._correlation_id
        at = 4 + response_header_version(request.API_KEY, version)
        reply, end = APIS[request.API_KEY].response.decode(frame, at, version)
        assert end == len(frame)
        return reply
