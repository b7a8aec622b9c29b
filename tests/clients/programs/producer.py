"""A producer by a client of Python: it sends numbered records at a steady pace, and reports the acknowledged ones with their offsets.

The first argument names the client. Commands and events are lines of JSON as in life.py: `start` with the settings, and `finish`, which
ends when each record is acknowledged or refused.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple, Protocol

import aiokafka
import confluent_kafka
import kafka
import kafka.errors
from confluent_kafka import KafkaException

from tests.clients.programs.life import read_commands, report

DELIVERY_SECONDS = 60.0
LINGER_MS = 2


class Settings(NamedTuple):
    bootstrap: str
    name: str  # the client id too
    topic: str
    partitions: int
    pause_seconds: float


class Producer(Protocol):
    def send(self, value: str, partition: int) -> None: ...
    def finish(self) -> None: ...


def report_stored(value: str, partition: int, offset: int) -> None:
    report("stored", value=value, partition=partition, offset=offset)


def report_refused(value: str, error: object) -> None:
    report("refused", value=value, text=str(error))


class KafkaPython:
    def __init__(self, settings: Settings) -> None:
        self._topic = settings.topic
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=settings.bootstrap,
            client_id=settings.name,
            enable_idempotence=True,
            acks="all",
            linger_ms=LINGER_MS,
            reconnect_backoff_max_ms=500,
        )

    def send(self, value: str, partition: int) -> None:
        sent = self._producer.send(self._topic, value.encode(), partition=partition)
        sent.add_callback(lambda stored: report_stored(value, partition, stored.offset))
        sent.add_errback(lambda error: report_refused(value, error))

    def finish(self) -> None:
        self._producer.flush(DELIVERY_SECONDS)


class Aiokafka:
    def __init__(self, settings: Settings) -> None:
        self._topic = settings.topic
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._sending: set[Any] = set()
        self._producer = asyncio.run_coroutine_threadsafe(self._start(settings), self._loop).result()

    async def _start(self, settings: Settings) -> aiokafka.AIOKafkaProducer:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=settings.bootstrap, client_id=settings.name, enable_idempotence=True, acks="all", linger_ms=LINGER_MS
        )
        await producer.start()
        return producer

    async def _send(self, value: str, partition: int) -> None:
        try:
            stored = await self._producer.send_and_wait(self._topic, value.encode(), partition=partition)
        except aiokafka.errors.KafkaError as error:
            report_refused(value, error)
        else:
            report_stored(value, partition, stored.offset)

    def send(self, value: str, partition: int) -> None:
        sent = asyncio.run_coroutine_threadsafe(self._send(value, partition), self._loop)
        self._sending.add(sent)
        sent.add_done_callback(self._sending.discard)

    def finish(self) -> None:
        for sent in list(self._sending):
            sent.result(DELIVERY_SECONDS)


class Confluent:
    def __init__(self, settings: Settings) -> None:
        self._topic = settings.topic
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": settings.bootstrap,
                "client.id": settings.name,
                "enable.idempotence": True,
                "linger.ms": LINGER_MS,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

    def send(self, value: str, partition: int) -> None:
        self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
        self._producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        value = message.value().decode()
        if error is None:
            report_stored(value, message.partition(), message.offset())
        else:
            report_refused(value, error)

    def finish(self) -> None:
        self._producer.flush(DELIVERY_SECONDS)


CLIENTS: dict[str, Callable[[Settings], Producer]] = {"kafka-python": KafkaPython, "aiokafka": Aiokafka, "confluent-kafka": Confluent}


def main(client: str) -> None:
    commands = read_commands()
    command = commands.get()
    assert command.pop("do") == "start"
    settings = Settings(**command)
    producer = CLIENTS[client](settings)
    report("started")
    for number in count():
        if not commands.empty():
            break
        value = f"{client}-{number}"
        try:
            producer.send(value, number % settings.partitions)
        except (KafkaException, kafka.errors.KafkaError) as error:
            report_refused(value, error)
            break
        time.sleep(settings.pause_seconds)
    producer.finish()
    report("finished")
    commands.get()
    commands.get()  # until standard input ends


if __name__ == "__main__":
    main(sys.argv[1])
