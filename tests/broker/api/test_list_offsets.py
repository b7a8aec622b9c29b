"""Offsets by position, time and leader epoch; recorded/test_fetch.py compares the replies with Kafka's."""

from __future__ import annotations

from typing import Any

import pytest

from broker.net.long_requests import TURN_COST_MAX
from broker.security.authorizer import Operation, ResourceType
from protocol.batch import Compression, Record, build
from protocol.batch_times import UNPACKED_AT_ONCE_MAX
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic
from tests.support.fetch_harness import FetchClient, FetchHarness, records_batch
from tests.support.group_harness import refusing
from tests.support.held_workers import HeldWorkers
from tests.support.topic_logs import disk_log

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


@pytest.fixture
def harness() -> FetchHarness:
    """Topic t of two partitions; three batches of two records in the first, a second apart."""
    harness = FetchHarness()
    harness.create_topic("t", 2)
    harness.append("t", 0, *[records_batch(2, timestamp=1_000 * number) for number in (1, 2, 3)])
    return harness


def listing(name: str, *partitions: tuple[int, int], current: int = -1) -> ListOffsetsRequest:
    return ListOffsetsRequest(-1, 0, [ListOffsetsTopic(name, [ListOffsetsPartition(index, current, timestamp) for index, timestamp in partitions])], 500)


def offsets_found(reply: Any) -> list[tuple[int, int, int]]:
    return [(partition.error_code, partition.offset, partition.timestamp) for topic in reply.topics for partition in topic.partitions]


def epochs_request(*topics: tuple[str, int, int]) -> OffsetForLeaderEpochRequest:
    return OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic(name, [OffsetForLeaderPartition(index, -1, epoch)]) for name, index, epoch in topics])


def test_the_earliest_pending_upload_is_known_from_version_11_and_nowhere_without_tiers(harness: FetchHarness) -> None:
    """As in Kafka 4.4.0 for topics that are not tiered."""
    asked = listing("t", (0, -6), (1, -6), (9, -6))
    assert offsets_found(harness.ask(asked, 10)) == [(ErrorCode.UNSUPPORTED_VERSION, -1, -1)] * 3
    assert offsets_found(harness.ask(asked, 11)) == [(0, -1, -1), (0, -1, -1), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)]
    assert offsets_found(harness.ask(listing("t", (0, -7), (0, LATEST)), 11)) == [(ErrorCode.INVALID_REQUEST, -1, -1)]
    assert offsets_found(harness.ask(listing("t", (0, -7)), 11)) == [(ErrorCode.UNSUPPORTED_VERSION, -1, -1)]


@pytest.mark.plain
def test_list_offsets_finds_nothing_above_the_high_watermark(harness: FetchHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """This state occurs in __consumer_offsets, whose high watermark is the durable offset and may be below the end of the log."""
    monkeypatch.setattr(type(harness.partition("t")), "high_watermark", property(lambda self: 4))
    reply = harness.ask(listing("t", (0, LATEST)), 10)
    assert offsets_found(reply) == [(0, 4, -1)]
    assert offsets_found(harness.ask(listing("t", (0, MAX_TIMESTAMP)), 10)) == [(0, -1, -1)]
    assert offsets_found(harness.ask(listing("t", (0, 2_001)), 10)) == [(0, 3, 2_001)]
    assert offsets_found(harness.ask(listing("t", (0, 3_000)), 10)) == [(0, -1, -1)]


def test_lookups_in_many_logs_do_not_block_other_connections(harness: FetchHarness) -> None:
    harness.create_topic("many", 3 * TURN_COST_MAX)
    harness.append("many", 0)
    second_client = FetchClient(harness)
    harness.client.send(listing("many", *[(index, 0) for index in range(3 * TURN_COST_MAX)]), 10)
    assert harness.client.replies() == []
    assert offsets_found(second_client.ask(listing("t", (0, 2_000)), 10)) == [(0, 2, 2_000)]
    for _ in range(4):
        harness.end_turn()
    (reply,) = harness.client.replies()
    assert offsets_found(reply) == [(0, 0, 1_000)] + [(0, -1, -1)] * (3 * TURN_COST_MAX - 1)
    assert len(offsets_found(harness.ask(listing("many", *[(index, LATEST) for index in range(3 * TURN_COST_MAX)]), 10))) == 3 * TURN_COST_MAX


def test_a_closed_connection_ends_its_lookups(harness: FetchHarness) -> None:
    harness.create_topic("many", 3 * TURN_COST_MAX)
    harness.client.send(listing("many", *[(index, 0) for index in range(3 * TURN_COST_MAX)]), 10)
    harness.client.lose_connection()
    harness.end_turn()
    harness.end_turn()
    assert not harness.loop.busy


def large_batch(codec: Compression) -> bytes:
    """Four records of half a megabyte: more than is decompressed at once."""
    return build([Record(number, 10_000 + number, None, bytes(UNPACKED_AT_ONCE_MAX // 2)) for number in range(4)], compression=codec)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_a_thread_decompresses_a_large_batch_and_other_connections_are_answered_meanwhile(codec: Compression) -> None:
    workers = HeldWorkers()
    harness = FetchHarness(workers=workers)
    harness.create_topic("t", 2)
    harness.append("t", 0, records_batch(2, timestamp=1_000), large_batch(codec), records_batch(2, timestamp=20_000))
    second_client = FetchClient(harness)
    harness.client.send(listing("t", (0, 10_003), (1, LATEST)), 10)
    harness.client.send(listing("t", (0, 20_001)), 10)
    for _ in range(5):
        harness.end_turn()
        assert harness.client.replies() == []
        assert offsets_found(second_client.ask(listing("t", (0, 20_001)), 10)) == [(0, 7, 20_001)]
    assert not harness.loop.busy, "a request that waits for the thread needs no turns"
    workers.run()
    for _ in range(5):
        harness.end_turn()
    assert [offsets_found(reply) for reply in harness.client.replies()] == [[(0, 5, 10_003), (0, 0, -1)], [(0, 7, 20_001)]]


def lookup_in_thread() -> tuple[FetchHarness, HeldWorkers]:
    """A lookup that waits for the thread to decompress its batch."""
    workers = HeldWorkers()
    harness = FetchHarness(workers=workers)
    harness.create_topic("t")
    harness.append("t", 0, large_batch(Compression.ZSTD))
    harness.client.send(listing("t", (0, 10_003)), 10)
    return harness, workers


def test_a_lookup_whose_connection_ended_is_not_continued_after_the_thread() -> None:
    harness, workers = lookup_in_thread()
    harness.end_turn()
    harness.client.lose_connection()
    workers.run()
    harness.end_turn()
    assert not harness.loop.busy
    assert not workers.jobs


def test_a_defect_in_the_thread_fails_the_request_alone(planted_defect: None) -> None:
    harness, workers = lookup_in_thread()
    harness.end_turn()
    workers.jobs.pop()[1](MemoryError())
    harness.end_turn()
    (reply,) = harness.client.replies()
    assert offsets_found(reply) == [(ErrorCode.UNKNOWN_SERVER_ERROR, -1, -1)]


def test_the_thread_may_end_before_the_next_turn() -> None:
    harness, workers = lookup_in_thread()
    workers.run()
    harness.end_turn()
    harness.end_turn()
    (reply,) = harness.client.replies()
    assert offsets_found(reply) == [(0, 3, 10_003)]


@pytest.fixture
def slow(harness: FetchHarness) -> FetchHarness:
    """A log whose time lookups read the whole segment: the index names only the first record, which is deleted."""
    harness.create_topic("slow")
    harness.append("slow", 0, records_batch(timestamp=9_000), *[records_batch(padding=20, timestamp=1_000)] * 30_000)
    disk_log(harness.partition("slow")).delete_before(1)
    return harness


def test_a_lookup_through_a_whole_segment_does_not_block_other_connections(slow: FetchHarness) -> None:
    asking = [FetchClient(slow) for _ in range(5)]
    for client in asking:
        client.send(listing("slow", (0, 5_000)), 10)
        client.send(listing("t", (0, 2_000)), 10)  # waits on its connection for the reply to the slow lookup
    turns = 0
    answered: list[Any] = []
    while len(answered) < 10:
        assert offsets_found(FetchClient(slow).ask_at_once(listing("t", (0, LATEST)), 10)) == [(0, 6, -1)]
        slow.end_turn()
        turns += 1
        answered += [reply for client in asking for reply in client.replies()]
    assert turns > 15
    assert sorted(offsets_found(reply) for reply in answered) == [[(0, -1, -1)]] * 5 + [[(0, 2, 2_000)]] * 5


@pytest.mark.parametrize(("error", "answered"), [(ErrorCode.KAFKA_STORAGE_ERROR, 56), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 3)])
def test_a_partition_suspended_or_deleted_during_a_lookup_is_reported(slow: FetchHarness, error: ErrorCode, answered: int) -> None:
    slow.client.send(listing("slow", (0, 5_000)), 10)
    slow.end_turn()
    assert slow.client.replies() == []
    slow.partition("slow").error = error
    for _ in range(3):
        slow.end_turn()
    (reply,) = slow.client.replies()
    assert offsets_found(reply) == [(answered, -1, -1)]


def test_a_record_deleted_during_a_lookup_is_not_returned(slow: FetchHarness) -> None:
    slow.append("slow", 0, records_batch(timestamp=7_000), records_batch(timestamp=7_500))
    slow.client.send(listing("slow", (0, 5_000)), 10)
    slow.end_turn()
    disk_log(slow.partition("slow")).delete_before(30_002)
    reply = None
    while reply is None:
        slow.end_turn()
        reply = next(iter(slow.client.replies()), None)
    assert offsets_found(reply) == [(0, 30_002, 7_500)]


def test_a_closed_connection_releases_the_segments_of_its_lookups(slow: FetchHarness) -> None:
    slow.client.send(listing("slow", (0, 5_000)), 10)
    (segment,) = disk_log(slow.partition("slow"))._segments
    assert segment.readers == 1
    slow.client.lose_connection()
    slow.end_turn()
    assert segment.readers == 0
    assert not slow.loop.busy


@pytest.mark.usefixtures("planted_defect")
def test_a_failing_lookup_is_answered(harness: FetchHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.create_topic("many", 2 * TURN_COST_MAX)
    harness.client.send(listing("many", *[(index, 0) for index in range(2 * TURN_COST_MAX)]), 10)
    monkeypatch.setattr(harness.finder, "find", lambda name, index: 1 // 0)
    for _ in range(5):
        harness.end_turn()
    (reply,) = harness.client.replies()
    assert {answer[0] for answer in offsets_found(reply)} == {ErrorCode.UNKNOWN_SERVER_ERROR}


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR])
def test_list_offsets_reports_an_unusable_partition(harness: FetchHarness, error: ErrorCode) -> None:
    harness.partition("t", 1).error = error
    assert offsets_found(harness.ask(listing("t", (1, LATEST), (0, LATEST)), 10)) == [(error, -1, -1), (0, 6, -1)]
    (partition,) = harness.ask(epochs_request(("t", 1, 0)), 4).topics[0].partitions
    assert (partition.error_code, partition.leader_epoch, partition.end_offset) == (error, -1, -1)


def test_a_failing_read_is_reported(harness: FetchHarness) -> None:
    harness.disk.unreadable = "t-0"
    assert offsets_found(harness.ask(listing("t", (0, 2_000)), 10)) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)]
    assert offsets_found(harness.ask(listing("t", (0, LATEST)), 10)) == [(0, 6, -1)]


def test_topics_without_describe_right_are_refused_after_the_others() -> None:
    harness = FetchHarness(authorizer=refusing((Operation.DESCRIBE, ResourceType.TOPIC, "secret")))
    for name in ("open", "secret"):
        harness.create_topic(name)
        harness.append(name)
    request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(name, [ListOffsetsPartition(0, -1, LATEST)]) for name in ("secret", "open")], 0)
    reply = harness.ask(request, 10)
    assert [(topic.name, topic.partitions[0].error_code) for topic in reply.topics] == [("open", 0), ("secret", ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    reply = harness.ask(epochs_request(("secret", 0, 0), ("open", 0, 0)), 4)
    assert [(topic.topic, topic.partitions[0].error_code, topic.partitions[0].end_offset) for topic in reply.topics] == [
        ("open", 0, 1),
        ("secret", ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1),
    ]
