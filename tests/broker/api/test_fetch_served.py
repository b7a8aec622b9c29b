"""Fetches on a started broker: completed by other clients' requests, at the end of a topic, and at the stop of the broker."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.running import Broker, Client, broker
from tests.support.fetch_harness import fetch, fetch_partition, fetch_topic, offsets_in, partition_replies, records_batch
from tests.support.peers import LOOPS, STOP_SECONDS, defects, serve_options

pytestmark = pytest.mark.once

LONG_MS = 8_000
PARKED_SECONDS = 0.05  # by then the fetch has arrived


@pytest.fixture(scope="module")
def started() -> Iterator[Broker]:
    with broker(*serve_options("uvloop", "offsets.topic.num.partitions=1", "group.initial.rebalance.delay.ms=0", "log.level=warning")) as ours:
        yield ours
        assert not defects(ours)


@pytest.fixture
def consumer(started: Broker) -> Iterator[Client]:
    with Client(started.port) as client:
        yield client


@pytest.fixture
def other(started: Broker) -> Iterator[Client]:
    with Client(started.port) as client:
        yield client


def make(client: Client, name: str) -> None:
    assert client.ask(CreateTopicsRequest([CreatableTopic(name, 1, 1, [], [])], 5000), 7).topics[0].error_code == 0


def produce(client: Client, name: str, batch: bytes) -> None:
    request = ProduceRequest(None, -1, 5000, [TopicProduceData(name, [PartitionProduceData(0, batch)])])
    assert client.ask(request, 9).responses[0].partition_responses[0].error_code == 0


def test_a_produce_of_another_client_completes_a_waiting_fetch(consumer: Client, other: Client) -> None:
    make(other, "woken")
    for number in range(3):
        consumer.send(fetch(fetch_topic("woken", fetch_partition(number)), max_wait_ms=LONG_MS), 12)
        time.sleep(PARKED_SECONDS)
        produce(other, "woken", records_batch())
        (topic,) = consumer.receive(FetchRequest(), 12).responses
        assert offsets_in(topic.partitions[0].records) == [number]


def test_the_offsets_topic_returns_commits_once_durable(consumer: Client, other: Client) -> None:
    topics = [OffsetCommitRequestTopic("committed", [OffsetCommitRequestPartition(0, 5)])]
    make(other, "committed")
    other.ask(OffsetCommitRequest("group", -1, "", None, -1, topics), 7)  # the first one after a deletion also notes the deletion
    end = partition_replies(consumer.ask(fetch(fetch_topic("__consumer_offsets", fetch_partition(0))), 12))[0][2]
    consumer.send(fetch(fetch_topic("__consumer_offsets", fetch_partition(end)), max_wait_ms=LONG_MS), 12)
    time.sleep(PARKED_SECONDS)
    assert other.ask(OffsetCommitRequest("group", -1, "", None, -1, topics), 7).topics[0].partitions[0].error_code == 0
    ((_, error, high_watermark, size),) = partition_replies(consumer.receive(FetchRequest(), 12))
    assert (error, high_watermark) == (0, end + 1)
    assert size > 0


def test_the_notes_topic_can_be_fetched_but_not_produced_to(consumer: Client, other: Client) -> None:
    assert partition_replies(consumer.ask(fetch(fetch_topic("__coordinator_notes", fetch_partition(0))), 12)) == [(0, 0, 0, 0)]  # no records yet, but the log exists
    consumer.send(fetch(fetch_topic("__coordinator_notes", fetch_partition(0)), max_wait_ms=LONG_MS), 12)
    time.sleep(PARKED_SECONDS)
    protocols = [JoinGroupRequestProtocol("range", b"")]
    assert other.ask(JoinGroupRequest("noted", 10_000, 10_000, "", None, "consumer", protocols), 3).error_code == 0
    ((_, error, high_watermark, size),) = partition_replies(consumer.receive(FetchRequest(), 12))
    assert (error, size > 0) == (0, True)
    assert high_watermark > 0
    batch = PartitionProduceData(0, records_batch())
    refused = other.ask(ProduceRequest(None, -1, 5000, [TopicProduceData("__coordinator_notes", [batch])]), 9)
    assert refused.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert other.ask(DeleteTopicsRequest([], ["__coordinator_notes"], 5000), 5).responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_fetch_of_a_topic_that_is_deleted_is_answered_at_once(consumer: Client, other: Client) -> None:
    make(other, "deleted")
    consumer.send(fetch(fetch_topic("deleted", fetch_partition(0)), max_wait_ms=LONG_MS), 12)
    time.sleep(PARKED_SECONDS)
    assert other.ask(DeleteTopicsRequest([], ["deleted"], 5000), 5).responses[0].error_code == 0
    begin = time.monotonic()
    assert partition_replies(consumer.receive(FetchRequest(), 12)) == [(0, 3, -1, 0)]
    assert time.monotonic() - begin < LONG_MS / 2_000


@pytest.mark.parametrize("loop", LOOPS)
def test_a_large_fetch_arrives_whole_and_delays_neither_other_clients_nor_the_stop(loop: str) -> None:
    with broker(*serve_options(loop, "log.level=warning")) as ours, Client(ours.port) as consumer, Client(ours.port) as second_client:
        make(second_client, "large")
        batch = records_batch(padding=900_000)
        for _ in range(20):
            produce(second_client, "large", batch)
        consumer.send(fetch(fetch_topic("large", fetch_partition(0, most=1 << 30)), max_bytes=1 << 30), 12)
        time.sleep(PARKED_SECONDS)  # the client does not read: the reply stays in the broker
        assert second_client.ask(MetadataRequest([]), 12).topics == []
        (topic,) = consumer.receive(FetchRequest(), 12).responses
        assert offsets_in(topic.partitions[0].records) == list(range(20))
        consumer.send(fetch(fetch_topic("large", fetch_partition(20)), max_wait_ms=600_000), 12)
        time.sleep(PARKED_SECONDS)
        begin = time.monotonic()
        assert ours.stop() == 0
        assert time.monotonic() - begin < STOP_SECONDS
        assert not defects(ours)
