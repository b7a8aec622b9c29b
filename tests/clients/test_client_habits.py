"""Peculiarities of single clients: old versions, consumers that discover topics, guessed versions, Kafka's own tool."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import pytest

from protocol.apis import APIS
from tests.clients.each import Aiokafka, Confluent, KafkaPython, kafka
from tests.oracle import run_java
from tests.running import Broker, broker

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with broker("--profile", "test", "--set", "auto.create.topics.enable=false") as started:
        yield started


@pytest.fixture(scope="module")
def bootstrap(running: Broker) -> str:
    address = f"127.0.0.1:{running.port}"
    client = Confluent(address)
    client.create("known", 3, {})
    client.close()
    return address


def test_kafka_python_is_served_on_the_standard_loop_too() -> None:
    with broker("--profile", "test", "--set", "event.loop=asyncio") as running:
        client = KafkaPython(f"localhost:{running.port}")
        client.create("orders", 3, {"retention.ms": "1000"})
        assert client.cluster().brokers == {1: ("127.0.0.1", running.port)}
        assert client.topics()["orders"].partitions == 3
        assert client.partitions_as_producer("automatic") == 1
        client.close()


@pytest.mark.parametrize("version", [(0, 11), (1, 0), (2, 0), (2, 6), (3, 9), (4, 3)], ids=str)
def test_kafka_python_configured_for_an_older_or_newer_broker_works(bootstrap: str, version: tuple[int, ...]) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap, api_version=version)
    name = f"for-{'.'.join(map(str, version))}"
    created = admin.create_topics({name: {"num_partitions": 2, "replication_factor": 1}})
    assert created["topics"][0]["error_code"] == 0
    assert {"known", name} <= set(admin.list_topics())
    assert admin.describe_cluster()["controller_id"] == 1
    admin.close()


def test_kafka_python_takes_the_table_for_that_of_4_3(bootstrap: str) -> None:
    """The client infers a broker version from the supported API versions, and enables its features for that version."""
    advertised = {key: api.advertised for key, api in APIS.items()}
    assert kafka.protocol.broker_version_data.BrokerVersionData(api_versions=advertised).broker_version == (4, 3)
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap)
    assert consumer.config["api_version"] >= (1, 0)
    consumer.close()


def test_consumers_find_topics_and_their_partitions(bootstrap: str) -> None:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap)
    assert "known" in consumer.topics()
    assert "__consumer_offsets" not in consumer.topics()  # Metadata marks it as internal
    assert consumer.partitions_for_topic("known") == {0, 1, 2}
    consumer.close()
    assert asyncio.run(aiokafka_sees(bootstrap)) == {0, 1, 2}
    listening = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "lookers", "log_level": 0})
    assert len(listening.list_topics(timeout=10).topics["known"].partitions) == 3
    listening.close()


async def aiokafka_sees(bootstrap: str) -> set[int] | None:
    consumer = aiokafka.AIOKafkaConsumer("known", bootstrap_servers=bootstrap)
    await consumer.start()
    try:
        assert "known" in await consumer.topics()
        partitions: set[int] | None = consumer.partitions_for_topic("known")
        return partitions
    finally:
        await consumer.stop()


@pytest.mark.parametrize("version", ["0.8.0", "0.9.0", "0.10.2", "2.0.0"])
def test_librdkafka_configured_for_an_old_broker_works_without_api_versions(bootstrap: str, version: str) -> None:
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": bootstrap,
        "api.version.request": "false",
        "broker.version.fallback": version,
        "log_level": 0,
    }
    metadata = confluent_kafka.admin.AdminClient(settings).list_topics(timeout=10)
    assert len(metadata.topics["known"].partitions) == 3


def test_without_automatic_creation_clients_report_a_missing_topic(bootstrap: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    missing = producer.list_topics("missing", timeout=10).topics["missing"]
    assert missing.error.code() == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
    asker = Aiokafka(bootstrap)
    assert asker.partitions_as_producer("missing") == 0
    asker.close()
    sender = kafka.KafkaProducer(bootstrap_servers=bootstrap, max_block_ms=200, enable_idempotence=False)
    with pytest.raises(kafka.errors.KafkaTimeoutError):
        sender.partitions_for("missing")
    sender.close(timeout=1)


@pytest.mark.kafka
def test_kafkas_own_tool_makes_and_lists_topics() -> None:
    with broker("--profile", "test") as running:
        tool = ("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", f"localhost:{running.port}")
        run_java(*tool, "--create", "--topic", "made-by-tool", "--partitions", "2", "--config", "retention.ms=1000")
        assert "made-by-tool" in run_java(*tool, "--list").split()
        client = Confluent(f"127.0.0.1:{running.port}")
        assert client.topics()["made-by-tool"].partitions == 2
        client.close()
