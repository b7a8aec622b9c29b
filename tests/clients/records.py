"""Producers and consumers of real clients behind one small interface."""

from __future__ import annotations

import asyncio
import subprocess
import uuid
import warnings
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import aiokafka
import confluent_kafka

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas through importlib.resources.read_text
    import kafka

RECORDS_PROBE = Path(__file__).parent / "java" / "RecordsProbe.java"
SECONDS = 20.0
MESSAGE_BYTES_MAX = 12_000_000
BEGINNING, END = -2, -1  # where to read from, besides an offset
PAUSED_SECONDS = 0.3  # how long a paused partition is watched
Result = TypeVar("Result")


class Sent(NamedTuple):
    value: bytes
    timestamp: int = -1  # -1: the client's own


class Read(NamedTuple):
    offset: int
    value: bytes


class RecordClient(Protocol):
    def produce(self, topic: str, records: Sequence[Sent], compression: str = "none", idempotent: bool = False) -> list[int]:
        """Produce to partition 0, in order; returns the offsets."""

    def consume(self, topic: str, start: int, count: int) -> list[Read]:
        """Read `count` records of partition 0 from offset `start`, or from BEGINNING or END."""

    def offset_at(self, topic: str, timestamp: int) -> int | None:
        """The offset of the first record of partition 0 with at least this timestamp."""

    def bounds(self, topic: str) -> tuple[int, int]:
        """Beginning and end of partition 0."""

    def consume_with_a_pause(self, topic: str, count: int) -> tuple[int, int]:
        """Of `count` records, the number that arrives while the partition is paused, and the number after it is resumed."""

    def after_end(self, topic: str, value: bytes) -> Read:
        """Position a consumer at the end of the log, produce a record, and return the first record that the consumer reads."""

    def close(self) -> None: ...


class KafkaPython:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            max_partition_fetch_bytes=MESSAGE_BYTES_MAX,
            enable_auto_commit=False,
            consumer_timeout_ms=int(SECONDS * 1000),
        )

    def produce(self, topic: str, records: Sequence[Sent], compression: str = "none", idempotent: bool = False) -> list[int]:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self._bootstrap,
            compression_type=None if compression == "none" else compression,
            enable_idempotence=idempotent,
            acks="all",
            linger_ms=5,
            max_request_size=MESSAGE_BYTES_MAX,
        )
        try:
            sent = [producer.send(topic, record.value, partition=0, timestamp_ms=record.timestamp if record.timestamp >= 0 else None) for record in records]
            return [future.get(SECONDS).offset for future in sent]
        finally:
            producer.close(SECONDS)

    def _assign_at(self, topic: str, start: int) -> kafka.TopicPartition:
        partition = kafka.TopicPartition(topic, 0)
        self._consumer.assign([partition])
        if start == BEGINNING:
            self._consumer.seek_to_beginning(partition)
        elif start == END:
            self._consumer.seek_to_end(partition)
        else:
            self._consumer.seek(partition, start)
        return partition

    def consume(self, topic: str, start: int, count: int) -> list[Read]:
        self._assign_at(topic, start)
        read: list[Read] = []
        while len(read) < count:
            record = next(self._consumer)
            read.append(Read(record.offset, record.value))
        return read

    def offset_at(self, topic: str, timestamp: int) -> int | None:
        partition = kafka.TopicPartition(topic, 0)
        offset = self._consumer.offsets_for_times({partition: timestamp})[partition]
        return offset.offset if offset is not None else None

    def bounds(self, topic: str) -> tuple[int, int]:
        partition = kafka.TopicPartition(topic, 0)
        return self._consumer.beginning_offsets([partition])[partition], self._consumer.end_offsets([partition])[partition]

    def consume_with_a_pause(self, topic: str, count: int) -> tuple[int, int]:
        partition = self._assign_at(topic, BEGINNING)
        self._consumer.pause(partition)
        paused = sum(map(len, self._consumer.poll(PAUSED_SECONDS * 1000).values()))
        self._consumer.resume(partition)
        resumed = 0
        while resumed < count:
            resumed += sum(map(len, self._consumer.poll(SECONDS * 1000).values()))
        return paused, resumed

    def after_end(self, topic: str, value: bytes) -> Read:
        self._consumer.position(self._assign_at(topic, END))
        self.produce(topic, [Sent(value)])
        record = next(self._consumer)
        return Read(record.offset, record.value)

    def close(self) -> None:
        self._consumer.close()


class Aiokafka:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._loop = asyncio.new_event_loop()
        self._consumer = self._run(self._started())

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._loop.run_until_complete(asyncio.wait_for(work, SECONDS))

    async def _started(self) -> aiokafka.AIOKafkaConsumer:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            enable_auto_commit=False,
            max_partition_fetch_bytes=MESSAGE_BYTES_MAX,
            fetch_max_bytes=2 * MESSAGE_BYTES_MAX,
        )
        await consumer.start()
        return consumer

    def produce(self, topic: str, records: Sequence[Sent], compression: str = "none", idempotent: bool = False) -> list[int]:
        return self._run(self._produce(topic, records, compression, idempotent))

    async def _produce(self, topic: str, records: Sequence[Sent], compression: str, idempotent: bool) -> list[int]:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            compression_type=None if compression == "none" else compression,
            enable_idempotence=idempotent,
            acks="all",
            linger_ms=5,
            max_request_size=MESSAGE_BYTES_MAX,
        )
        await producer.start()
        try:
            stamps = [record.timestamp if record.timestamp >= 0 else None for record in records]
            sent = [await producer.send(topic, record.value, partition=0, timestamp_ms=stamp) for record, stamp in zip(records, stamps, strict=True)]
            return [(await future).offset for future in sent]
        finally:
            await producer.stop()

    async def _assign_at(self, topic: str, start: int) -> aiokafka.TopicPartition:
        partition = aiokafka.TopicPartition(topic, 0)
        self._consumer.assign([partition])
        if start == BEGINNING:
            await self._consumer.seek_to_beginning(partition)
        elif start == END:
            await self._consumer.seek_to_end(partition)
        else:
            self._consumer.seek(partition, start)
        return partition

    def consume(self, topic: str, start: int, count: int) -> list[Read]:
        return self._run(self._consume(topic, start, count))

    async def _consume(self, topic: str, start: int, count: int) -> list[Read]:
        await self._assign_at(topic, start)
        read: list[Read] = []
        while len(read) < count:
            record = await self._consumer.getone()
            read.append(Read(record.offset, record.value))
        return read

    def offset_at(self, topic: str, timestamp: int) -> int | None:
        partition = aiokafka.TopicPartition(topic, 0)
        offset = self._run(self._consumer.offsets_for_times({partition: timestamp}))[partition]
        return offset.offset if offset is not None else None

    def bounds(self, topic: str) -> tuple[int, int]:
        partition = aiokafka.TopicPartition(topic, 0)
        beginning = self._run(self._consumer.beginning_offsets([partition]))
        return beginning[partition], self._run(self._consumer.end_offsets([partition]))[partition]

    def consume_with_a_pause(self, topic: str, count: int) -> tuple[int, int]:
        return self._run(self._pausing(topic, count))

    async def _pausing(self, topic: str, count: int) -> tuple[int, int]:
        partition = await self._assign_at(topic, BEGINNING)
        self._consumer.pause(partition)
        paused = sum(map(len, (await self._consumer.getmany(timeout_ms=int(PAUSED_SECONDS * 1000))).values()))
        self._consumer.resume(partition)
        resumed = 0
        while resumed < count:
            resumed += sum(map(len, (await self._consumer.getmany(timeout_ms=1000)).values()))
        return paused, resumed

    def after_end(self, topic: str, value: bytes) -> Read:
        return self._run(self._after_end(topic, value))

    async def _after_end(self, topic: str, value: bytes) -> Read:
        await self._consumer.position(await self._assign_at(topic, END))
        await self._produce(topic, [Sent(value)], "none", False)
        record = await self._consumer.getone()
        return Read(record.offset, record.value)

    def close(self) -> None:
        self._run(self._consumer.stop())
        self._loop.close()


class Confluent:
    def __init__(self, bootstrap: str) -> None:
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "reconnect.backoff.max.ms": 200,
            "message.max.bytes": MESSAGE_BYTES_MAX,
        }
        self._consumer = confluent_kafka.Consumer(
            self._settings
            | {
                "group.id": "reads what it assigns itself",
                "enable.auto.commit": False,
                "max.partition.fetch.bytes": MESSAGE_BYTES_MAX,
                "auto.offset.reset": "error",
            }
        )

    def produce(self, topic: str, records: Sequence[Sent], compression: str = "none", idempotent: bool = False) -> list[int]:
        offsets: list[int] = []

        def delivered(error: object, message: confluent_kafka.Message) -> None:
            assert error is None, error
            offset = message.offset()
            assert offset is not None
            offsets.append(offset)

        producer = confluent_kafka.Producer(
            self._settings | {"compression.type": compression, "enable.idempotence": idempotent, "acks": "all", "linger.ms": 5}
        )
        for record in records:
            stamp: dict[str, Any] = {"timestamp": record.timestamp} if record.timestamp >= 0 else {}
            producer.produce(topic, record.value, partition=0, on_delivery=delivered, **stamp)
        assert producer.flush(SECONDS) == 0
        return offsets

    def _assign_at(self, topic: str, start: int) -> confluent_kafka.TopicPartition:
        partition = confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING if start == BEGINNING else start)
        self._consumer.assign([partition])
        return partition

    def _next_message(self) -> confluent_kafka.Message:
        message = self._consumer.poll(SECONDS)
        assert message is not None
        assert message.error() is None, message.error()
        return message

    def consume(self, topic: str, start: int, count: int) -> list[Read]:
        self._assign_at(topic, start)
        messages = [self._next_message() for _ in range(count)]
        return [Read(message.offset() or 0, message.value() or b"") for message in messages]

    def offset_at(self, topic: str, timestamp: int) -> int | None:
        (offset,) = self._consumer.offsets_for_times([confluent_kafka.TopicPartition(topic, 0, timestamp)], timeout=SECONDS)
        return offset.offset if offset.offset >= 0 else None

    def bounds(self, topic: str) -> tuple[int, int]:
        low, high = self._consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=SECONDS)
        return low, high

    def consume_with_a_pause(self, topic: str, count: int) -> tuple[int, int]:
        partition = self._assign_at(topic, BEGINNING)
        self._consumer.pause([partition])
        paused = len(self._consumer.consume(count, PAUSED_SECONDS))
        self._consumer.resume([partition])
        return paused, len([self._next_message() for _ in range(count)])

    def after_end(self, topic: str, value: bytes) -> Read:
        self._assign_at(topic, self.bounds(topic)[1])  # librdkafka would look END up only while it polls, after the record was sent
        self.produce(topic, [Sent(value)])
        message = self._next_message()
        return Read(message.offset() or 0, message.value() or b"")

    def close(self) -> None:
        self._consumer.close()


class Java:
    """Kafka's own KafkaProducer and KafkaConsumer, in a JVM that reads commands from its standard input."""

    def __init__(self, probe: subprocess.Popen[str], bootstrap: str) -> None:
        self._probe = probe
        self._name = uuid.uuid4().hex
        self._do("open", bootstrap)

    def _do(self, word: str, *arguments: object) -> list[str]:
        assert self._probe.stdin is not None
        assert self._probe.stdout is not None
        self._probe.stdin.write("\t".join((word, self._name, *map(str, arguments))) + "\n")
        self._probe.stdin.flush()
        line = self._probe.stdout.readline()
        assert line.startswith("ok\t"), line
        return line.rstrip("\n").split("\t")[1:]

    def produce(self, topic: str, records: Sequence[Sent], compression: str = "none", idempotent: bool = False) -> list[int]:
        """Values are passed to the JVM as a word and a count, so that large values make no long lines."""
        words: list[object] = []
        for record in records:
            word = record.value[: len(record.value) // self._times(record.value)]
            words += [word.decode(), self._times(record.value), record.timestamp]
        return list(map(int, self._do("produce", topic, compression, str(idempotent).lower(), *words)))

    @staticmethod
    def _times(value: bytes) -> int:
        return len(value) if value.count(value[:1]) == len(value) else 1

    def consume(self, topic: str, start: int, count: int) -> list[Read]:
        words = self._do("consume", topic, start, count)
        return [Read(int(words[at]), words[at + 1].encode() * int(words[at + 2])) for at in range(0, len(words), 3)]

    def offset_at(self, topic: str, timestamp: int) -> int | None:
        offset = int(self._do("offset_at", topic, timestamp)[0])
        return offset if offset >= 0 else None

    def bounds(self, topic: str) -> tuple[int, int]:
        low, high = map(int, self._do("bounds", topic))
        return low, high

    def consume_with_a_pause(self, topic: str, count: int) -> tuple[int, int]:
        paused, resumed = map(int, self._do("pausing", topic, count, int(PAUSED_SECONDS * 1000)))
        return paused, resumed

    def after_end(self, topic: str, value: bytes) -> Read:
        offset, read = self._do("after_end", topic, value.decode())
        return Read(int(offset), read.encode())

    def close(self) -> None:
        self._do("close")
