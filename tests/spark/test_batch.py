from __future__ import annotations

import json
import time

import pytest

from protocol.batch import read_header
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.running import Client
from tests.spark.outside import KafkaClient
from tests.spark.session import Record, SparkTopics

pytestmark = pytest.mark.spark

ROWS = 4000
PARTITIONS = 4
NUMBERED = "cast(id as string) value"
AGAIN_SOON = {"fetchOffset.retryIntervalMs": "50"}  # Spark retries a missing topic three times


def test_rows_are_read_back_with_key_value_headers_and_partition(kafka: SparkTopics, outside: KafkaClient, topic: str) -> None:
    outside.create(topic, PARTITIONS)
    rows = kafka.spark.range(0, ROWS, 1, PARTITIONS).selectExpr(
        "if(id % 10 = 0, null, concat('k', id)) key",
        "if(id % 7 = 0, null, concat('value ', id)) value",
        f"cast(id % {PARTITIONS} as int) partition",
        "if(id % 3 = 0, null, array(struct('h' as key, encode(concat('1-', id), 'utf-8') as value),"
        " struct('h' as key, encode('', 'utf-8') as value), struct('null' as key, cast(null as binary) as value))) headers",
    )
    before = time.time()
    kafka.write(rows, topic)
    read = kafka.records(topic)
    assert [(row.partition, row.offset) for row in read] == [(p, o) for p in range(PARTITIONS) for o in range(ROWS // PARTITIONS)]
    assert sorted((row._replace(offset=0) for row in read), key=repr) == sorted(map(expected, range(ROWS)), key=repr)
    bounds = kafka.read(topic).selectExpr("min(timestamp)", "max(timestamp)", "sum(timestampType)").first()
    assert int(before * 1000) <= bounds[0].timestamp() * 1000 <= bounds[1].timestamp() * 1000 <= time.time() * 1000
    assert bounds[2] == 0


def expected(number: int) -> Record:
    headers = (("h", b"1-%d" % number), ("h", b""), ("null", None))
    return Record(
        partition=number % PARTITIONS,
        offset=0,
        key=None if number % 10 == 0 else b"k%d" % number,
        value=None if number % 7 == 0 else b"value %d" % number,
        headers=() if number % 3 == 0 else headers,
    )


def test_writing_creates_a_missing_topic_and_each_key_has_its_partition(kafka: SparkTopics, outside: KafkaClient, topic: str) -> None:
    assert topic not in outside.topics()
    kafka.write(kafka.spark.range(300).selectExpr("cast(id % 20 as string) key", NUMBERED), topic)
    read = kafka.records(topic)
    assert sorted(int(row.value or b"") for row in read) == list(range(300))
    assert {row.partition for row in read} == {0, 1, 2}  # the default number of partitions of this broker
    assert len({(row.key, row.partition) for row in read}) == 20


def test_written_batches_have_producer_sequences(kafka: SparkTopics, outside: KafkaClient, topic: str) -> None:
    outside.create(topic)
    kafka.write(kafka.spark.range(10).selectExpr(NUMBERED), topic)
    with Client(int(kafka.bootstrap.rpartition(":")[2])) as client:
        request = FetchRequest(topics=[FetchTopic(topic=topic, partitions=[FetchPartition(0, partition_max_bytes=1000)])], session_epoch=-1)
        (answered,) = client.ask(request, 12).responses
    header = read_header(answered.partitions[0].records, 0)
    assert header.producer_id >= 0
    assert header.base_sequence == 0


def test_rows_may_name_their_topics(kafka: SparkTopics, topic: str) -> None:
    kafka.write(kafka.spark.range(100).selectExpr(f"concat('{topic}-', id % 2) topic", NUMBERED))
    for partition in (0, 1):
        assert sorted(kafka.values(f"{topic}-{partition}")) == list(range(partition, 100, 2))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_rows_are_read_back(kafka: SparkTopics, outside: KafkaClient, topic: str, codec: str) -> None:
    outside.create(topic)
    kafka.write(kafka.spark.range(0, 1000, 1, 1).selectExpr("concat(repeat('0', 100), id) value"), topic, kafka_compression_type=codec)
    assert kafka.values(topic, kafka_isolation_level="read_committed") == list(range(1000))


def test_a_row_that_is_too_large_for_the_topic_fails_the_write(kafka: SparkTopics, outside: KafkaClient, topic: str) -> None:
    outside.create(topic, max_message_bytes="20000")
    rows = kafka.spark.range(1).selectExpr("repeat('x', 30000) value")
    with pytest.raises(Exception, match="RecordTooLargeException: The request included a message larger than"):
        kafka.write(rows, topic)
    assert kafka.records(topic) == []


def test_reading_a_missing_topic_fails_and_does_not_create_it(kafka: SparkTopics, outside: KafkaClient, topic: str) -> None:
    with pytest.raises(Exception, match="UnknownTopicOrPartitionException"):
        kafka.records(topic, **AGAIN_SOON)
    assert topic not in outside.topics()


def test_reading_is_limited_to_the_offsets_of_its_options(kafka: SparkTopics, outside: KafkaClient, topic: str) -> None:
    outside.create(topic, 2)
    outside.send(topic, range(200), partitions=2)  # even numbers in partition 0, odd ones in 1
    outside.delete_before(topic, 1, 10)

    def values(start: object, end: object) -> list[int]:
        offsets = [where if isinstance(where, str) else json.dumps({topic: where}) for where in (start, end)]
        return kafka.values(topic, startingOffsets=offsets[0], endingOffsets=offsets[1])

    assert values("earliest", "latest") == [*range(0, 200, 2), *range(21, 200, 2)]
    assert values({"0": 40, "1": 50}, {"0": 43, "1": 50}) == [80, 82, 84]
    assert values({"0": 98, "1": -2}, {"0": -1, "1": 12}) == [196, 198, 21, 23]
    assert values({"0": 100, "1": 99}, "latest") == [199]


def test_reading_begins_and_ends_at_points_in_time(kafka: SparkTopics, outside: KafkaClient, topic: str) -> None:
    outside.create(topic, 2)
    began = int(time.time() * 1000) - 60_000
    outside.send(topic, range(100), partitions=2, timestamp=began)  # number n has timestamp began + n, and partition n % 2
    everything = [*range(0, 100, 2), *range(1, 100, 2)]
    assert kafka.values(topic, startingTimestamp=began) == everything
    assert kafka.values(topic, startingTimestamp=began + 91, endingTimestamp=began + 95) == [92, 94, 91, 93]
    by_partition = {
        "startingOffsetsByTimestamp": json.dumps({topic: {"0": began + 97, "1": began + 90}}),
        "endingOffsetsByTimestamp": json.dumps({topic: {"0": began + 1000, "1": began + 94}}),
    }
    assert kafka.values(topic, **by_partition) == [98, 91, 93]
    with pytest.raises(Exception, match="No offset matched from request of topic-partition"):
        kafka.values(topic, startingTimestamp=began + 100, **AGAIN_SOON)
    assert kafka.values(topic, startingTimestamp=began + 100, startingOffsetsByTimestampStrategy="latest") == []


def test_topics_are_found_by_pattern_and_partitions_by_name(kafka: SparkTopics, outside: KafkaClient, topic: str) -> None:
    for partition in (1, 2):
        outside.create(f"{topic}-{partition}", 2)
        outside.send(f"{topic}-{partition}", range(partition * 100, partition * 100 + 20), partitions=2)
    assert sorted(kafka.values(subscribePattern=f"{topic}-.*")) == [*range(100, 120), *range(200, 220)]
    assert sorted(kafka.values(assign=json.dumps({f"{topic}-1": [1], f"{topic}-2": [0]}))) == [*range(101, 120, 2), *range(200, 220, 2)]


def test_ranges_of_one_partition_are_read_by_several_tasks(kafka: SparkTopics, outside: KafkaClient, topic: str) -> None:
    outside.create(topic)
    outside.send(topic, range(3000))
    frame = kafka.read(topic, minPartitions=7, kafka_fetch_max_bytes=5000, kafka_max_partition_fetch_bytes=3000, kafka_max_poll_records=50)
    assert frame.rdd.getNumPartitions() == 7
    assert sorted(int(row.value) for row in frame.selectExpr("cast(value as string) value").collect()) == list(range(3000))
