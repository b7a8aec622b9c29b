"""Administration of topics by the admin classes of three clients: create, describe, alter, add partitions, delete; records and settings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import aiokafka
import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry

from tests.clients.each import kafka
from tests.running import Broker, broker

pytestmark = pytest.mark.once

SECONDS = 10
RECORDS = 10
UNKNOWN = 3


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with broker("--profile", "test", "--set", "auto.create.topics.enable=false", "--set", "log.level=warning") as started:
        yield started


@pytest.fixture(scope="module")
def bootstrap(running: Broker) -> str:
    return f"127.0.0.1:{running.port}"


def fill(bootstrap: str, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    errors: list[Any] = []
    for number in range(RECORDS):
        producer.produce(topic, "value", str(number), partition=0, on_delivery=lambda error, record: errors.append(error))
    assert producer.flush(SECONDS) == 0
    assert errors == [None] * RECORDS


def test_kafka_python_administers_topics(bootstrap: str) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics({"kp": {"num_partitions": 2, "replication_factor": 1}})
    (described,) = admin.describe_topics(["kp"])
    assert (described["name"], len(described["partitions"]), described["partitions"][0]["leader_epoch"]) == ("kp", 2, 0)
    admin.create_partitions({"kp": 3})
    assert len(admin.describe_topics(["kp"])[0]["partitions"]) == 3
    with pytest.raises(kafka.errors.InvalidPartitionsError):
        admin.create_partitions({"kp": 2})
    kind = kafka.admin.ConfigResourceType.TOPIC
    admin.alter_configs([kafka.admin.ConfigResource(kind, "kp", {"retention.ms": "5000"})])
    settings = admin.describe_configs([kafka.admin.ConfigResource(kind, "kp")], config_filter="all")["topic"]["kp"]
    assert settings["retention.ms"]["value"] == "5000"
    assert settings["cleanup.policy"]["value"] == "delete"
    fill(bootstrap, "kp")
    partition = kafka.TopicPartition("kp", 0)
    assert admin.delete_records({partition: 4})[partition]["low_watermark"] == 4
    (directory,) = admin.describe_log_dirs()
    (folder,) = directory["log_dirs"]
    (topic,) = [topic_dir for topic_dir in folder["topics"] if topic_dir["name"] == "kp"]
    assert topic["partitions"][0]["partition_size"] > 0
    assert 0 < folder["usable_bytes"] < folder["total_bytes"]
    admin.delete_topics(["kp"])
    assert "kp" not in admin.list_topics()
    with pytest.raises(kafka.errors.UnknownTopicOrPartitionError):
        admin.delete_topics(["kp"])
    admin.close()


def test_confluent_kafka_administers_topics(bootstrap: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})

    def done(futures: dict[Any, Any]) -> Any:
        (future,) = futures.values()
        return future.result(SECONDS)

    resource, kind = confluent_kafka.admin.ConfigResource, confluent_kafka.admin.ConfigResource.Type
    done(admin.create_topics([confluent_kafka.admin.NewTopic("cf", 2, 1, config={"cleanup.policy": "delete"})]))
    described = done(admin.describe_topics(confluent_kafka.TopicCollection(["cf"]), include_authorized_operations=True))
    assert (described.name, len(described.partitions), described.is_internal) == ("cf", 2, False)
    assert len(described.authorized_operations) == 8
    done(admin.create_partitions([confluent_kafka.admin.NewPartitions("cf", 3)]))
    assert len(admin.list_topics("cf", SECONDS).topics["cf"].partitions) == 3
    entries = [
        ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
    ]
    done(admin.incremental_alter_configs([resource(kind.TOPIC, "cf", incremental_configs=entries)]))
    settings = done(admin.describe_configs([resource(kind.TOPIC, "cf")]))
    assert (settings["retention.ms"].value, settings["retention.ms"].source) == ("5000", 1)
    assert settings["cleanup.policy"].value == "delete,compact"
    assert settings["segment.bytes"].is_default
    ours = done(admin.describe_configs([resource(kind.BROKER, "1")]))
    assert (ours["auto.create.topics.enable"].value, ours["auto.create.topics.enable"].source) == ("false", 4)
    assert ours["auto.create.topics.enable"].is_read_only
    entry = ConfigEntry("log.retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
    with pytest.raises(confluent_kafka.KafkaException, match="none can be changed while it runs"):
        done(admin.incremental_alter_configs([resource(kind.BROKER, "1", incremental_configs=[entry])]))
    fill(bootstrap, "cf")
    partition = confluent_kafka.TopicPartition("cf", 0, 4)
    assert done(admin.delete_records([partition])).low_watermark == 4
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "cf-group"})
    assert consumer.get_watermark_offsets(confluent_kafka.TopicPartition("cf", 0), SECONDS) == (4, RECORDS)
    consumer.commit(offsets=[confluent_kafka.TopicPartition("cf", 0, 6)], asynchronous=False)
    done(admin.delete_topics(["cf"]))
    assert "cf" not in admin.list_topics(timeout=SECONDS).topics
    done(admin.create_topics([confluent_kafka.admin.NewTopic("cf", 1, 1)]))
    (committed,) = consumer.committed([confluent_kafka.TopicPartition("cf", 0)], SECONDS)
    assert committed.offset == confluent_kafka.OFFSET_INVALID  # a recreated topic has no committed offsets
    consumer.close()
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        done(admin.delete_topics(["nowhere"]))
    assert refused.value.args[0].code() == UNKNOWN
    del admin


def test_aiokafka_administers_topics(bootstrap: str) -> None:
    async def administer() -> None:
        admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            created = await admin.create_topics([aiokafka.admin.NewTopic("ai", 2, 1)])
            assert [error[1] for error in created.topic_errors] == [0]
            grown = await admin.create_partitions({"ai": aiokafka.admin.NewPartitions(3)})
            assert [error[1] for error in grown.topic_errors] == [0]
            (described,) = await admin.describe_topics(["ai"])
            assert (described["topic"], len(described["partitions"])) == ("ai", 3)
            kind = aiokafka.admin.config_resource.ConfigResourceType.TOPIC
            resource = aiokafka.admin.config_resource.ConfigResource(kind, "ai", {"retention.ms": "5000"})
            (altered,) = await admin.alter_configs([resource])
            assert [resource[0] for resource in altered.resources] == [0]
            resource = aiokafka.admin.config_resource.ConfigResource(kind, "ai")
            (response,) = await admin.describe_configs([resource])
            settings = {config[0]: config[1] for config in response.resources[0][4]}
            assert (settings["retention.ms"], settings["cleanup.policy"]) == ("5000", "delete")
            await asyncio.to_thread(fill, bootstrap, "ai")
            partition = aiokafka.TopicPartition("ai", 0)
            assert await admin.delete_records({partition: aiokafka.admin.RecordsToDelete(4)}) == {partition: 4}
            deletion = await admin.delete_topics(["ai"])
            assert [error[1] for error in deletion.topic_error_codes] == [0]
            assert "ai" not in await admin.list_topics()
        finally:
            await admin.close()

    asyncio.run(administer())
