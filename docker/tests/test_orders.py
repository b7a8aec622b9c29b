# test_orders.py: tests with a real broker. Each has its own topic and group, so they run in any order and in parallel.
from uuid import uuid4

import pytest
from kafka import KafkaConsumer, KafkaProducer


@pytest.fixture
def topic():
    return f"orders-{uuid4()}"


@pytest.fixture
def consumer(kafka, topic):
    settings = {"bootstrap_servers": kafka, "auto_offset_reset": "earliest", "consumer_timeout_ms": 10_000}
    consumer = KafkaConsumer(topic, group_id=f"billing-{uuid4()}", group_instance_id="billing-1", **settings)
    yield consumer
    consumer.close()


@pytest.mark.parametrize("count", [1, 100])
def test_orders_arrive_as_they_were_sent(kafka, topic, consumer, count):
    sent = [f"order {number}".encode() for number in range(count)]
    producer = KafkaProducer(bootstrap_servers=kafka)
    for order in sent:
        producer.send(topic, order)
    producer.close()
    assert [next(consumer).value for _ in sent] == sent
