"""Reads every partition of the topic as it grows, and sometimes again from the beginning; the ledger checks the records.

A fetch waits for records, so some kills happen during waiting fetches. Checksums of batches are verified, and an incomplete last batch is
left for the next fetch, as clients do.
"""

from __future__ import annotations

import random
from typing import Any

from protocol.batch import records, validate
from protocol.errors import ProtocolError
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.soak.actor import ANSWER_SECONDS, Actor, Retry
from tests.soak.record_ledger import Mark, RecordLedger
from tests.soak.wire import Wire

WAIT_MS = 300
REREAD_SHARE = 0.1  # the share of lost connections after which it reads from the beginning
VERSIONS = (4, 11, 12, 17)  # requests by topic name, and in the newest version by id
BY_ID_FROM = 13


class Reader(Actor):
    def __init__(self, port: int, ledger: RecordLedger, topic: str, partitions: int, randomness: random.Random) -> None:
        self.checked_run = -1  # the newest run of the broker in which it has read all records from before the restart
        self._ledger = ledger
        self._topic = topic
        self._topic_id = b""
        self.positions = [0] * partitions
        self._version = randomness.choice(VERSIONS)
        super().__init__(port, "reader", randomness, ledger.report_violation)

    def __repr__(self) -> str:
        return f"the reader (v{self._version}, at {self.positions})"

    async def _connected(self, wire: Wire) -> None:
        self._version = self._random.choice(VERSIONS)
        await self._learn_id(wire)
        if self._random.random() < REREAD_SHARE:
            self.positions = [0] * len(self.positions)

    async def _learn_id(self, wire: Wire) -> None:
        topic = (await wire.ask(MetadataRequest([MetadataRequestTopic(name=self._topic)]), 12, ANSWER_SECONDS)).topics[0]
        if topic.error_code or self._topic_id not in (b"", topic.topic_id):
            self._ledger.report_violation(f"the topic: error {topic.error_code}, id {topic.topic_id.hex()} after {self._topic_id.hex()}")
        self._topic_id = topic.topic_id

    async def _work(self, wire: Wire) -> bool:
        bytes_max = self._random.choice((1, 100_000, 1_000_000, 1_000_000))
        broker_run = self._ledger.broker_run
        ends = [self._ledger.end(partition) for partition in range(len(self.positions))]
        partitions = [FetchPartition(partition, fetch_offset=at, partition_max_bytes=bytes_max) for partition, at in enumerate(self.positions)]
        topic = FetchTopic(topic_id=self._topic_id, partitions=partitions) if self._version >= BY_ID_FROM else FetchTopic(topic=self._topic, partitions=partitions)
        request = FetchRequest(max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=10_000_000, topics=[topic])
        reply = await wire.ask(request, self._version, ANSWER_SECONDS)
        if reply.error_code:
            self._ledger.report_violation(f"Fetch was answered with {reply.error_code}")
        answers = {partition.partition_index: partition for topic in reply.responses for partition in topic.partitions}
        served = [self._take_partition(partition, answers[partition], end) for partition, end in enumerate(ends)]
        if not all(served):
            raise Retry
        if self._ledger.read_up_to_the_restart(self.positions):
            self.checked_run = max(self.checked_run, broker_run)
        return True

    def _take_partition(self, partition: int, answer: Any, end: int) -> bool:
        if answer.error_code:
            self._ledger.answered(f"{self!r} in partition {partition}", "Fetch", answer.error_code)
            return False
        self._ledger.high_watermark(partition, answer.high_watermark, end)
        try:
            self._read(partition, whole_batches(answer.records or b""))
        except ProtocolError as error:
            self._ledger.report_violation(f"corrupt: partition {partition} behind {self.positions[partition]}: {error}")
        return True

    def _read(self, partition: int, data: bytes) -> None:
        at = 0
        while at < len(data):
            header = validate(data, at, len(data))
            for record in records(data, at):
                if record.offset < self.positions[partition]:
                    continue
                assert record.value is not None
                producer, number, _ = record.value.split(b":", 2)
                self._ledger.read(partition, record.offset, Mark(producer.decode(), int(number)))
            self.positions[partition] = header.next_offset
            at += header.size


def whole_batches(data: bytes) -> bytes:
    """The data without an incomplete last batch."""
    at = 0
    while at + 12 <= len(data) and (end := at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")) <= len(data):
        at = end
    return data[:at]
