"""An idempotent producer like Java's: acks=all, up to five requests in flight, unacknowledged batches are sent again.

A batch keeps its sequence: after a lost connection it is unknown whether it was written, so it is sent again unchanged, in order, and the
broker must detect duplicates. Several partitions may share a request. The producer reports its batches and their replies to the ledger.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from typing import Any, NamedTuple

from protocol.batch import build
from protocol.batch_record import Record
from protocol.compression import Compression
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.soak.actor import ANSWER_SECONDS, Actor, Retry
from tests.soak.record_ledger import Mark, RecordLedger
from tests.soak.wire import Wire

ALL = -1
VERSIONS = (3, 7, 9, 11, 12)  # versions that clients use; zstd needs 7


class Batch(NamedTuple):
    partition: int
    first: Mark
    records: int
    data: bytes


class Flight(NamedTuple):
    correlation_id: int
    request: ProduceRequest
    batches: list[Batch]
    broker_run: int
    fresh: bool


class Producer(Actor):
    def __init__(self, port: int, ledger: RecordLedger, topic: str, partitions: int, number: int, randomness: random.Random) -> None:
        self.name = f"producer-{number}"
        self.steady_run = -1  # the newest run of the broker that acknowledged a new batch
        self._ledger = ledger
        self._topic = topic
        self._version = randomness.choice(VERSIONS)
        self._depth = randomness.choice((1, 2, 5, 5))
        self._compression = randomness.choice([codec for codec in Compression if codec != Compression.ZSTD or self._version >= 7])
        self._id: tuple[int, int] | None = None
        self._numbered = [0] * partitions
        self._unsettled: list[deque[Batch]] = [deque() for _ in range(partitions)]  # by partition: batches in flight, or to be sent again
        # Whether each partition knows this producer; until then only one batch is in flight. An unknown producer may begin with any sequence:
        # if the partition opens between the arrivals of two batches, the second is stored, and the first never can be.
        self._accepting = [False] * partitions
        self._failing: set[int] = set()  # partitions with a failed batch: later batches are out of order
        super().__init__(port, self.name, randomness, ledger.report_violation)

    def __repr__(self) -> str:
        waiting = sum(len(batches) for batches in self._unsettled)
        return f"{self.name} (v{self._version}, id {self._id}, {waiting} batches not acknowledged)"

    async def _work(self, wire: Wire) -> bool:
        if self._id is None:
            await self._identify(wire)
        else:
            await self._produce(wire)
        return True

    async def _identify(self, wire: Wire) -> None:
        reply = await wire.ask(InitProducerIdRequest(None, 60_000), 4, ANSWER_SECONDS)
        if reply.error_code:
            self._ledger.answered(self.name, "InitProducerId", reply.error_code)
            raise Retry
        self._id = reply.producer_id, reply.producer_epoch
        self._ledger.producer_id_assigned(self.name, self._id)

    async def _produce(self, wire: Wire) -> None:
        """Send unsettled batches, then new batches, until a batch fails."""
        repeats = deque(self._rounds())
        flights: deque[Flight] = deque()
        self._failing.clear()
        while True:
            while len(flights) < self._depth and not self._failing:
                batches, fresh = (repeats.popleft(), False) if repeats else (self._new_batches(), True)
                if not batches:
                    break
                flights.append(self._send(wire, batches, fresh))
            if not flights:
                raise Retry  # unacknowledged batches are sent again
            flight = flights.popleft()
            reply = await wire.receive(flight.request, self._version, flight.correlation_id, ANSWER_SECONDS)
            self._take_reply(flight, reply)
            await asyncio.sleep(self._random.choice((0, 0, 0.01, 0.03)))  # so that the reader can keep up

    def _rounds(self) -> list[list[Batch]]:
        """The oldest batch of every partition, then the next of every partition."""
        longest = max(len(batches) for batches in self._unsettled)
        return [[batches[n] for batches in self._unsettled if n < len(batches)] for n in range(longest)]

    def _send(self, wire: Wire, batches: list[Batch], fresh: bool) -> Flight:
        if not fresh:
            self._ledger.count("sent again", len(batches))
        data = [PartitionProduceData(batch.partition, batch.data) for batch in batches]
        request = ProduceRequest(acks=ALL, timeout_ms=30_000, topic_data=[TopicProduceData(self._topic, data)])
        return Flight(wire.send(request, self._version), request, batches, self._ledger.broker_run, fresh)

    def _new_batches(self) -> list[Batch]:
        count = self._random.choice((1, 1, 1, 2, 3))
        ready = [partition for partition, batches in enumerate(self._unsettled) if self._accepting[partition] or not batches]
        chosen = self._random.sample(ready, min(count, len(ready)))
        batches = [self._new_batch(partition) for partition in chosen]
        for batch in batches:
            self._unsettled[batch.partition].append(batch)
        return batches

    def _new_batch(self, partition: int) -> Batch:
        assert self._id is not None
        first, count = self._numbered[partition], self._random.choice((1, 1, 3, 20))
        # Sometimes a large batch, so that some kills interrupt its write.
        size = self._random.choice((0, 10, 100, 100, 1_000, 1_000, 1_000, 10_000 if count > 3 else 100_000))
        filling = self._random.randbytes(size)
        now = int(time.time() * 1000)
        records = [Record(n, now, None, b"%s:%d:%s" % (self.name.encode(), first + n, filling)) for n in range(count)]
        producer_id, epoch = self._id
        data = build(records, compression=self._compression, producer_id=producer_id, producer_epoch=epoch, base_sequence=first)
        self._numbered[partition] += count
        mark = Mark(self.name, first)
        self._ledger.sent(partition, mark, count)
        return Batch(partition, mark, count, data)

    def _take_reply(self, flight: Flight, reply: Any) -> None:
        answers = {partition_response.index: partition_response for partition_response in reply.responses[0].partition_responses}
        assert answers.keys() == {batch.partition for batch in flight.batches}
        for batch in flight.batches:
            answer = answers[batch.partition]
            code = answer.error_code
            if code:
                self._ledger.answered(self.name, "Produce", code)
                if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and batch.partition not in self._failing:
                    self._ledger.report_violation(f"out of order: {batch.first} was refused though all before it was acknowledged")
                self._failing.add(batch.partition)
                continue
            self._accepting[batch.partition] = True
            # This batch need not be the oldest: after a kill the partition may refuse the oldest and accept the next.
            self._unsettled[batch.partition].remove(batch)
            self._ledger.acknowledged(batch.partition, batch.first, batch.records, answer.base_offset)
            if flight.fresh:
                self.steady_run = max(self.steady_run, flight.broker_run)
