"""A consumer configured for the newer group protocol (KIP-848), which the broker does not offer, behaves as docs/testing.md says."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from tests.running import broker

pytestmark = [pytest.mark.clients, pytest.mark.once]


@pytest.mark.parametrize(("protocol", "received"), [("consumer", False), ("classic", True)])
def test_librdkafka_reports_nothing_about_the_missing_group_protocol(protocol: str, received: bool) -> None:
    errors: list[KafkaError] = []
    with broker("--profile", "test") as started:
        address = f"127.0.0.1:{started.port}"
        producer = Producer({"bootstrap.servers": address})
        producer.produce("orders", b"order")
        assert producer.flush(10) == 0
        settings = {"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest", "error_cb": errors.append}
        consumer = Consumer(settings | {"group.protocol": protocol})
        consumer.subscribe(["orders"])
        until = time.monotonic() + (20 if received else 3)
        message = None
        while message is None and time.monotonic() < until:
            message = consumer.poll(0.1)
        assert (message is not None) == bool(consumer.assignment()) == received
        consumer.close()
    assert errors == [] or received
