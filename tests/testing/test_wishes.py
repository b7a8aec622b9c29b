"""What people have asked other test tools for, with an unchanged client and without a proxy or a container.

A broker that goes and comes back at the same address with its data; errors of the broker in the code under test, as its client reports them; a script of
faults by occurrence, with a barrier; a member that is lost now; two clients of different kinds before one cluster.
"""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from tenure.testing import Cluster, NotReached

kafka_python = pytest.importorskip("kafka", reason="kafka-python is not installed for this Python")
errors = pytest.importorskip("kafka.errors", reason="kafka-python is not installed for this Python")

SECONDS = 60


@pytest.fixture(autouse=True)
def close_leaked_sockets() -> Iterator[None]:
    """kafka-python leaves sockets of refused connections open: a later test would fail with their ResourceWarning."""
    yield
    for candidate in gc.get_objects():
        if type(candidate) is socket.socket and candidate.family == socket.AF_INET and candidate.fileno() >= 0:
            try:
                candidate.getpeername()
            except OSError:
                candidate.close()


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def producer_of(kafka: Cluster, opened: ExitStack, **more: Any) -> Any:
    return opened.enter_context(closing(kafka_python.KafkaProducer(**kafka.clients.kafka_python(**more))))


def consumer_of(kafka: Cluster, opened: ExitStack, **more: Any) -> Any:
    settings = kafka.clients.kafka_python(group_id="billing", auto_offset_reset="earliest", consumer_timeout_ms=SECONDS * 1000, **more)
    return opened.enter_context(closing(kafka_python.KafkaConsumer("orders", **settings)))


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_consumer_reads_on_when_the_broker_is_back_at_its_address(kafka: Cluster, opened: ExitStack, how: str) -> None:
    kafka.topic("orders")
    producer, consumer = producer_of(kafka, opened), consumer_of(kafka, opened)
    for number in range(5):
        producer.send("orders", b"%d" % number).get(SECONDS)
    read = [next(consumer).value for _ in range(5)]
    consumer.commit()
    kafka.restart(how, away=0.3)
    for number in range(5, 10):
        producer.send("orders", b"%d" % number).get(SECONDS)
    read += [next(consumer).value for _ in range(5)]
    assert read == [b"%d" % number for number in range(10)]
    consumer.commit()
    kafka.assert_each_record_once("orders", "billing")


@pytest.mark.parametrize(("error", "raised"), [("TOPIC_AUTHORIZATION_FAILED", "TopicAuthorizationFailedError"), ("MESSAGE_TOO_LARGE", "MessageSizeTooLargeError")])
def test_an_error_of_the_broker_reaches_the_code_under_test(kafka: Cluster, opened: ExitStack, error: str, raised: str) -> None:
    kafka.topic("orders")
    producer = producer_of(kafka, opened, enable_idempotence=False)
    with kafka.fault(api="Produce", topic="orders", error=error), pytest.raises(getattr(errors, raised)):
        producer.send("orders", b"1").get(SECONDS)
    producer.send("orders", b"2").get(SECONDS)
    assert [record["value"] for record in kafka.records("orders")] == ["2"]


def test_a_commit_of_a_lost_member_fails_and_its_records_are_read_again(kafka: Cluster, opened: ExitStack) -> None:
    kafka.topic("orders")
    kafka.write("orders", "1")
    consumer = consumer_of(kafka, opened, enable_auto_commit=False)
    assert next(consumer).value == b"1"
    kafka.group("billing").members[0].expire()
    with pytest.raises((errors.CommitFailedError, errors.KafkaError)):
        consumer.commit()
    assert kafka.group("billing").committed("orders") == -1
    assert next(consumer).value == b"1"
    consumer.commit()
    assert kafka.group("billing").committed("orders") == 1


def test_a_script_of_faults_by_occurrence_with_a_barrier(kafka: Cluster, opened: ExitStack) -> None:
    """The first record arrives, the second is refused, the third waits at the barrier, the fourth arrives; and the script was used up."""
    kafka.topic("orders")
    producer = producer_of(kafka, opened, enable_idempotence=False, retries=0)
    refused = kafka.fault(api="Produce", topic="orders", skip=1, error="INVALID_RECORD")
    barrier = kafka.fault(api="Produce", topic="orders", skip=1, hold=True)
    producer.send("orders", b"1").get(SECONDS)
    with pytest.raises(errors.KafkaError):
        producer.send("orders", b"2").get(SECONDS)
    third = producer.send("orders", b"3")
    barrier.wait()
    assert [record["value"] for record in kafka.records("orders")] == ["1"]
    barrier.release()
    third.get(SECONDS)
    producer.send("orders", b"4").get(SECONDS)
    assert [record["value"] for record in kafka.records("orders")] == ["1", "3", "4"]
    assert [fault["left"] for fault in kafka.end_faults()] == [0, 0] == [refused.last_report["left"] - 1, barrier.last_report["left"] - 1]


def test_clients_of_two_kinds_share_a_group(kafka: Cluster, opened: ExitStack) -> None:
    confluent = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed for this Python")
    kafka.topic("orders", 2)
    other = confluent.Consumer(kafka.clients.confluent(**{"group.id": "billing", "client.id": "librdkafka", "auto.offset.reset": "earliest"}))
    opened.callback(other.close)
    other.subscribe(["orders"])
    consumer = consumer_of(kafka, opened, client_id="python")
    ended = threading.Event()
    opened.callback(ended.set)

    def poll() -> None:
        while not ended.is_set():
            other.poll(0.05)

    polling = threading.Thread(target=poll)
    polling.start()
    opened.callback(polling.join)
    opened.callback(ended.set)
    while not kafka.groups() or {member.client_id for member in kafka.group("billing").members} != {"python", "librdkafka"} or kafka.group("billing").state != "Stable":
        consumer.poll(50)
    assert kafka.wait_group("billing", assigned=2)["state"] == "Stable"
    with pytest.raises(NotReached):
        kafka.wait_group("billing", assigned=3, timeout=0.05)
    assert {kafka.group("billing").owner("orders", partition).client_id for partition in range(2)} == {"python", "librdkafka"}  # type: ignore[union-attr]
