from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from tests.running import Broker, broker
from tests.spark.copying import SOON, Copy
from tests.spark.outside import KafkaClient
from tests.spark.session import SparkTopics, await_that, finish, running

pytestmark = pytest.mark.spark


def test_existing_records_are_streamed_once_in_small_batches(kafka: SparkTopics, outside: KafkaClient, topic: str, tmp_path: Path) -> None:
    for name in (topic, f"{topic}-copy"):
        outside.create(name, 3)
    copy = Copy(kafka, tmp_path, topic, maxOffsetsPerTrigger=600)
    outside.send(topic, range(1500), partitions=3)
    query = finish(copy.writer(availableNow=True))
    assert [progress["numInputRows"] for progress in query.recentProgress] == [600, 600, 300]
    outside.send(topic, range(1500, 1800), partitions=3)
    finish(copy.writer(availableNow=True))
    assert copy.copied() == list(range(1800))
    # The rows name their partitions, and rows of one partition stay in order.
    assert kafka.values(f"{topic}-copy") == kafka.values(topic)


@pytest.mark.parametrize("fetching", ["admin", "group"])
def test_later_records_are_streamed_and_a_query_continues_at_its_checkpoint(
    kafka: SparkTopics, outside: KafkaClient, topic: str, tmp_path: Path, fetching: str
) -> None:
    for name in (topic, f"{topic}-copy"):
        outside.create(name, 2)
    kafka.spark.conf.set("spark.sql.streaming.kafka.useDeprecatedOffsetFetching", str(fetching == "group").lower())
    copy = Copy(kafka, tmp_path, topic, groupIdPrefix=topic)
    try:
        with running(copy.writer(**SOON)) as query:
            for wave in range(1, 4):
                outside.send(topic, range((wave - 1) * 100, wave * 100), partitions=2)
                copy.await_ends(query, {0: wave * 50, 1: wave * 50})
            # Spark looks up offsets with an admin client or, if so configured, as the only member of a group.
            assert any(group.startswith(topic) for group in outside.groups()) == (fetching == "group")
        outside.send(topic, range(300, 400), partitions=2)
        with running(copy.writer(**SOON)) as query:
            outside.send(topic, range(400, 500), partitions=2)
            copy.await_ends(query, {0: 250, 1: 250})
    finally:
        kafka.spark.conf.unset("spark.sql.streaming.kafka.useDeprecatedOffsetFetching")
    assert copy.copied() == list(range(500))


def test_a_new_partition_is_read_from_its_beginning(kafka: SparkTopics, outside: KafkaClient, topic: str, tmp_path: Path) -> None:
    outside.create(topic)
    outside.create(f"{topic}-copy", 3)
    copy = Copy(kafka, tmp_path, topic)
    outside.send(topic, range(30))
    with running(copy.writer(**SOON)) as query:
        copy.await_ends(query, {0: 30})
        outside.grow(topic, 3)
        outside.send(topic, range(30, 60), partitions=3)
        copy.await_ends(query, {0: 40, 1: 10, 2: 10})
    assert copy.copied() == list(range(60))


def test_a_stream_outlives_an_orderly_restart_and_a_kill_of_the_broker(spark: Any, tmp_path: Path, topic: str) -> None:
    port = 0
    with contextlib.ExitStack() as brokers:

        def start() -> Broker:
            settings = ("--profile", "test", "--data", str(tmp_path / "data"))
            return brokers.enter_context(broker(*settings, "--listen", f"127.0.0.1:{port}"))

        serving = start()
        port = serving.port
        kafka = SparkTopics(spark, f"127.0.0.1:{port}")
        outside = KafkaClient(kafka.bootstrap)
        for name in (topic, f"{topic}-copy"):
            outside.create(name, 2)
        copy = Copy(kafka, tmp_path, topic, maxOffsetsPerTrigger=100)
        outside.send(topic, range(1000), partitions=2)
        with running(copy.writer(**SOON)) as query:
            await_that(lambda: 0 < copy.position(query) < 1000, lambda: query.lastProgress)
            serving.stop()
            serving = start()
            outside.send(topic, range(1000, 2000), partitions=2)
            await_that(lambda: copy.position(query) >= 1000, lambda: query.lastProgress)
            serving.kill()  # with eight batches or so to go
            serving = start()
            outside.send(topic, range(2000, 2100), partitions=2)
            copy.await_ends(query, {0: 1050, 1: 1050})
        everything = [*range(0, 2100, 2), *range(1, 2100, 2)]
        assert kafka.values(topic) == everything
        assert kafka.values(copy.target) == everything  # no loss, no duplicates, in order
        # A later start continues from the checkpoint too.
        outside.send(topic, range(2100, 2120), partitions=2)
        finish(copy.writer(availableNow=True))
        assert copy.copied() == list(range(2120))
