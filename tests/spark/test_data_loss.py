from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.spark.copying import Copy
from tests.spark.outside import KafkaClient
from tests.spark.session import SparkTopics, await_that, finish

pytestmark = pytest.mark.spark

LOST = "Some data may have been lost because they are not available in Kafka any more"


def test_a_stream_whose_next_records_were_deleted_fails_or_continues_with_the_remaining(
    kafka: SparkTopics, outside: KafkaClient, topic: str, tmp_path: Path
) -> None:
    for name in (topic, f"{topic}-copy"):
        outside.create(name, 2)
    copy = Copy(kafka, tmp_path, topic)
    outside.send(topic, range(100), partitions=2)
    finish(copy.writer(availableNow=True))
    outside.send(topic, range(100, 200), partitions=2)
    outside.delete_before(topic, 0, 75)
    with pytest.raises(Exception, match=LOST):
        finish(copy.writer(availableNow=True))
    careless = Copy(kafka, tmp_path, topic, failOnDataLoss="false")
    finish(careless.writer(availableNow=True))
    assert set(copy.copied()) == {*range(100), *range(101, 200, 2), *range(150, 200, 2)}


def test_a_range_whose_beginning_was_deleted_fails_or_starts_at_the_remaining(kafka: SparkTopics, outside: KafkaClient, topic: str) -> None:
    outside.create(topic)
    outside.send(topic, range(100))
    outside.delete_before(topic, 0, 60)
    range_options = {"startingOffsets": json.dumps({topic: {"0": 50}}), "endingOffsets": json.dumps({topic: {"0": 70}})}
    with pytest.raises(Exception, match=LOST):
        kafka.values(topic, **range_options)
    assert kafka.values(topic, **range_options, failOnDataLoss="false") == list(range(60, 70))


def test_a_stream_whose_topic_was_recreated_fails_or_starts_again(kafka: SparkTopics, outside: KafkaClient, topic: str, tmp_path: Path) -> None:
    outside.create(f"{topic}-copy")
    outside.create(topic)
    copy = Copy(kafka, tmp_path, topic)
    outside.send(topic, range(100))
    finish(copy.writer(availableNow=True))
    outside.delete(topic)
    outside.create(topic)
    outside.send(topic, range(1000, 1010))
    with pytest.raises(Exception, match="offset was changed from 100 to 10"):
        finish(copy.writer(availableNow=True))
    careless = Copy(kafka, tmp_path, topic, failOnDataLoss="false")
    finish(careless.writer(availableNow=True))
    outside.send(topic, range(1010, 1020))
    finish(careless.writer(availableNow=True))
    assert copy.copied() == [*range(100), *range(1010, 1020)]  # it went on at the end of the new topic, and skipped ten records


def test_holes_that_compaction_left_are_no_loss(kafka: SparkTopics, outside: KafkaClient, topic: str, tmp_path: Path) -> None:
    outside.create(topic, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0")
    outside.create(f"{topic}-copy")
    copy = Copy(kafka, tmp_path, topic)
    outside.send(topic, range(60), keys=60)
    finish(copy.writer(availableNow=True))
    for numbers, keys in ((range(60, 120), 60), (range(120, 180), 2), (range(180, 181), 1)):
        time.sleep(0.15)  # the segment is old enough to be closed by the next record
        outside.send(topic, numbers, keys=keys)
    expected = [*range(62, 120), 178, 179, 180]
    await_that(lambda: kafka.values(topic) == expected, lambda: kafka.records(topic))
    assert [record.offset for record in kafka.records(topic)] == expected
    finish(copy.writer(availableNow=True))
    assert copy.copied() == [*range(60), *expected]
