"""Producers with real clients that continue while nodes are killed, and a check that the log has all acknowledged records."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

import confluent_kafka
from confluent_kafka import TopicPartition

from tests.clients.members import ClientKind, Event, MemberProcess
from tests.running import wait_until

FINISH_SECONDS = 60.0
READ_SECONDS = 60.0
PAUSE_SECONDS = 0.02  # between two records of a producer


class Producer:
    """One producer; `stored` has its acknowledged records."""

    def __init__(self, kind: ClientKind, host: MemberProcess) -> None:
        self.kind = kind
        self.name = f"{kind.name}-producer"
        self.stored: dict[str, tuple[int, int]] = {}  # partition and offset by value
        self.refused: list[Event] = []
        self.finished = False
        self._host = host
        host.add(self)

    def add_event(self, event: Event) -> None:
        match event["event"]:
            case "stored":
                self.stored[event["value"]] = (event["partition"], event["offset"])
            case "refused":
                self.refused.append(event)
            case "finished":
                self.finished = True

    def start(self, bootstrap: str, topic: str, partitions: int) -> None:
        settings = {"bootstrap": bootstrap, "name": self.name, "topic": topic, "partitions": partitions, "pause_seconds": PAUSE_SECONDS}
        self._host.write({"do": "start"} | settings)

    def finish(self) -> None:
        """Send no more records, and wait until all are acknowledged or refused."""
        process = self._host.process
        with suppress(BrokenPipeError):
            self._host.write({"do": "finish"})
        wait_until(lambda: self.finished or process.poll() is not None, FINISH_SECONDS, 0.05, lambda: (self.name, self._host.output()[-2000:]))


def broken_promises(senders: Sequence[Producer], log: dict[tuple[int, int], str]) -> list[str]:
    """The violations: lost or refused records, values that the log has twice, producers that ended or got no acknowledgement."""
    wrong = []
    for sender in senders:
        lost = [value for value, partition in sender.stored.items() if log.get(partition) != value]
        if lost:
            wrong.append(f"{len(lost)} of {len(sender.stored)} records that were acknowledged to {sender.name} are not in the log, such as {lost[:3]}")
        if sender.refused:
            wrong.append(f"{len(sender.refused)} records of {sender.name} were refused, first {sender.refused[0]}")
        if not sender.stored:
            wrong.append(f"no record of {sender.name} was acknowledged")
        if not sender.finished:
            wrong.append(f"{sender.name} has ended by itself")
    if twice := [value for value, times in Counter(log.values()).items() if times > 1]:
        wrong.append(f"{len(twice)} records of idempotent producers are in the log twice, such as {twice[:3]}")
    return wrong


def read_log(bootstrap: str, topic: str, partitions: int) -> dict[tuple[int, int], str]:
    """All values of a topic, by partition and offset."""
    values: dict[tuple[int, int], str] = {}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "reads everything", "enable.auto.commit": False, "log_level": 0})
    try:
        ends = {partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), READ_SECONDS)[1] for partition in range(partitions)}
        unread_partitions = {partition for partition, end in ends.items() if end}
        consumer.assign([TopicPartition(topic, partition, 0) for partition in unread_partitions])
        until = time.monotonic() + READ_SECONDS
        while unread_partitions:
            assert time.monotonic() < until, (unread_partitions, ends)
            for message in consumer.consume(1_000, 0.5):
                assert message.error() is None, message.error()
                partition, offset, value = message.partition(), message.offset(), message.value()
                if partition is None or offset is None or value is None:
                    raise AssertionError(message)
                values[partition, offset] = value.decode()
                if offset + 1 >= ends[partition]:
                    unread_partitions.discard(partition)
    finally:
        consumer.close()
    return values
