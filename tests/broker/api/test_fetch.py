"""Fetch: records, refusals and replies; recorded/test_fetch.py compares limits, offsets, epochs and the order of partitions with Kafka's."""

from __future__ import annotations

import pytest

from broker.security.authorizer import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.fetch import LeaderIdAndEpoch, NodeEndpoint
from simulator.disk import SimFile
from storage.swap import remove_deleted
from tests.support.fetch_harness import (
    NO_ID,
    FetchHarness,
    fetch,
    fetch_partition,
    fetch_topic,
    offsets_in,
    partition_replies,
    records_batch,
)
from tests.support.group_harness import refusing
from tests.support.topic_logs import disk_log

SIZE = len(records_batch())
EVERY_VERSION = range(4, 19)


@pytest.fixture
def harness() -> FetchHarness:
    """Topic t of two partitions; five batches of one record in the first."""
    harness = FetchHarness()
    harness.create_topic("t", 2)
    harness.append("t", 0, *[records_batch()] * 5)
    return harness


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_fetch_returns_the_records_in_every_version(harness: FetchHarness, version: int) -> None:
    topic = fetch_topic("t" if version < 13 else harness.topics.by_name["t"].id, fetch_partition(2), fetch_partition(0, 1))
    reply = harness.ask(fetch(topic), version)
    assert (reply.error_code, reply.session_id, reply.node_endpoints) == (0, 0, [])
    (answered,) = reply.responses
    assert (answered.topic, answered.topic_id) == (topic.topic, topic.topic_id)
    full, empty = answered.partitions
    assert (full.partition_index, full.error_code, full.high_watermark, full.last_stable_offset) == (0, 0, 5, 5)
    assert full.log_start_offset == (0 if version >= 5 else -1)
    assert full.records == harness.partition("t").read(2, 1 << 20)
    assert offsets_in(full.records) == [2, 3, 4]
    assert (empty.partition_index, empty.error_code, empty.high_watermark, empty.records) == (1, 0, 0, b"")
    for partition in (full, empty):
        assert partition.aborted_transactions is None
        assert partition.preferred_read_replica == -1
        assert (partition.diverging_epoch, partition.current_leader, partition.snapshot_id) == (None, None, None)


@pytest.mark.parametrize("known", [-1, 0, 4, (1 << 63) - 1])
def test_the_high_watermark_that_a_replica_knows_changes_nothing(harness: FetchHarness, known: int) -> None:
    """KIP-1166 is for replicas; for a client, Kafka 4.4.0 ignores the field too."""
    id = harness.topics.by_name["t"].id
    topic = fetch_topic(id, fetch_partition(2))
    topic.partitions[0].high_watermark = known
    assert harness.ask(fetch(topic), 18) == harness.ask(fetch(fetch_topic(id, fetch_partition(2))), 17)


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_fetch_errors_are_answered_in_every_version(harness: FetchHarness, version: int) -> None:
    ids = version >= 13
    topic = harness.topics.by_name["t"].id if ids else "t"
    reply = harness.ask(fetch(fetch_topic(topic, fetch_partition(9)), fetch_topic(b"?" * 16 if ids else "?", fetch_partition(0))), version)
    first, second = reply.responses
    assert [partition.error_code for partition in first.partitions] == [ErrorCode.OFFSET_OUT_OF_RANGE]
    assert [partition.error_code for partition in second.partitions] == [
        ErrorCode.UNKNOWN_TOPIC_ID if ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]
    for result, transactions in ((first.partitions[0], None), (second.partitions[0], [])):
        assert (result.high_watermark, result.last_stable_offset, result.log_start_offset, result.records) == (-1, -1, -1, b"")
        assert result.aborted_transactions == transactions


def test_the_brokers_fetch_limit_overrides_the_requests() -> None:
    harness = FetchHarness(bytes_max=7 * SIZE)
    harness.create_topic("t", 2)
    for index in range(2):
        harness.append("t", index, *[records_batch()] * 5)
    topic = fetch_topic("t", fetch_partition(0), fetch_partition(0, 1))
    assert partition_replies(harness.ask(fetch(topic, max_bytes=1 << 30), 12)) == [(0, 0, 5, 5 * SIZE), (1, 0, 5, 2 * SIZE)]
    # The broker's fetch limit caps the minimum of bytes too, so this fetch does not wait.
    assert partition_replies(harness.ask(fetch(topic, max_bytes=1 << 30, min_bytes=1 << 30, max_wait_ms=500), 12)) == [(0, 0, 5, 5 * SIZE), (1, 0, 5, 2 * SIZE)]


def test_a_fenced_reply_names_the_leader(harness: FetchHarness) -> None:
    epoch = harness.new_epoch("t")
    topic = fetch_topic(harness.topics.by_name["t"].id, fetch_partition(0, current=epoch - 1), fetch_partition(0, 1, current=epoch + 7))
    reply = harness.ask(fetch(topic), 16)
    assert [partition.current_leader for partition in reply.responses[0].partitions] == [LeaderIdAndEpoch(1, epoch), None]
    assert reply.node_endpoints == [NodeEndpoint(1, "127.0.0.1", 9092, None)]
    assert harness.ask(fetch(topic), 15).node_endpoints == []


@pytest.mark.plain
def test_records_above_the_high_watermark_are_neither_sent_nor_out_of_range(harness: FetchHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """This state occurs in __consumer_offsets, whose high watermark is the durable offset and may be below the end of the log."""
    monkeypatch.setattr(type(harness.partition("t")), "high_watermark", property(lambda self: 3))
    for offset, error, size in ((1, 0, 2 * SIZE), (3, 0, 0), (4, 0, 0), (5, 0, 0), (6, ErrorCode.OFFSET_OUT_OF_RANGE, 0)):
        assert partition_replies(harness.ask(fetch(fetch_topic("t", fetch_partition(offset))), 12)) == [(0, error, -1 if error else 3, size)]


def test_the_zero_topic_id_is_unknown(harness: FetchHarness) -> None:
    assert partition_replies(harness.ask(fetch(fetch_topic(NO_ID, fetch_partition(0))), 13)) == [(0, ErrorCode.UNKNOWN_TOPIC_ID, -1, 0)]


def test_a_fetch_of_an_unopened_partition_gets_an_error_and_opens_it_sooner(harness: FetchHarness) -> None:
    harness.partition("t", 1).error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition_replies(harness.ask(fetch(fetch_topic("t", fetch_partition(0, 1)), max_wait_ms=500), 12)) == [(1, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, 0)]
    assert harness.finder.opened_sooner == ["t-1"]


def test_fetch_without_the_right_to_read_is_refused() -> None:
    harness = FetchHarness(authorizer=refusing((Operation.READ, ResourceType.TOPIC, "secret"), (Operation.CLUSTER_ACTION, ResourceType.CLUSTER, None)))
    for name in ("open", "secret"):
        harness.create_topic(name)
        harness.append(name)
    reply = harness.ask(fetch(fetch_topic("secret", fetch_partition(0)), fetch_topic("open", fetch_partition(0))), 12)
    assert partition_replies(reply) == [(0, 0, 1, SIZE), (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, 0)]
    reply = harness.ask(fetch(fetch_topic("open", fetch_partition(0)), replica=3), 12)
    assert partition_replies(reply) == [(0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, 0)]
    by_id = [fetch_topic(harness.topics.by_name[name].id, fetch_partition(0)) for name in ("secret", "open")]
    assert [partition_reply[1] for partition_reply in partition_replies(harness.ask(fetch(*by_id), 13))] == [0, ErrorCode.TOPIC_AUTHORIZATION_FAILED]


# Long and short replies.


def test_a_long_reply_has_the_bytes_of_a_short_reply(harness: FetchHarness) -> None:
    harness.create_topic("much", 3)
    for index in range(3):
        harness.append("much", index, *[records_batch(padding=90_000)] * 20)
    for version in (4, 11, 12, 17):
        topic = "much" if version < 13 else harness.topics.by_name["much"].id
        reply = harness.ask(fetch(fetch_topic(topic, *[fetch_partition(2, index, 1 << 30) for index in range(3)]), max_bytes=1 << 30), version)
        for partition in reply.responses[0].partitions:
            assert offsets_in(partition.records) == list(range(2, 20))
            assert partition.records == harness.partition("much", partition.partition_index).read(2, 1 << 30)


def test_a_long_reply_continues_after_its_segment_was_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.net.long_replies.PIECE_BYTES", 100_000)
    harness = FetchHarness(segment_bytes=1_000_000)
    harness.create_topic("t")
    harness.append("t", 0, *[records_batch(padding=90_000)] * 20)
    log = disk_log(harness.partition("t"))
    expected = log.read(0, 1 << 30)
    harness.client.send(fetch(fetch_topic("t", fetch_partition(0, most=1 << 30)), max_bytes=1 << 30), 12)
    harness.end_turn()
    segment = log._segments[0]
    remove_deleted(harness.disk, log.folder, log.drop_old(5_000, 0, 0))
    assert not harness.disk.exists(segment.log_path)
    for _ in range(20):
        harness.end_turn()
    (reply,) = harness.client.replies()
    assert reply.responses[0].partitions[0].records == expected
    assert segment.readers == 0


def test_records_are_read_once_and_not_copied(harness: FetchHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = records_batch(padding=10_000)
    harness.append("t", 1, *[batch] * 100)
    first = harness.ask(fetch(fetch_topic("t", fetch_partition(0, 1, 500_000))), 12).responses[0].partitions[0].records
    read: list[int] = []
    written: list[list[int]] = []
    plainly = SimFile.read

    def counted(file: SimFile, at: int, size: int) -> bytes:
        read.append(size)
        return plainly(file, at, size)

    monkeypatch.setattr(SimFile, "read", counted)
    harness.client.wire.writelines = lambda parts: written.append([len(part) for part in parts])  # type: ignore[method-assign]
    harness.client.send(fetch(fetch_topic("t", fetch_partition(offsets_in(first)[-1] + 1, 1, 500_000))), 12)
    harness.end_turn()
    assert [len(parts) for parts in written] == [3], "the bytes before the records, the records, the bytes after them"
    assert read == [61, written[0][1]], "the batch header at the position from the index is checked before the records are read"


def test_a_failing_read_is_reported(harness: FetchHarness) -> None:
    harness.disk.unreadable = "t-0"
    request = fetch(fetch_topic("t", fetch_partition(0), fetch_partition(0, 1)))
    assert partition_replies(harness.ask(request, 12)) == [(0, ErrorCode.KAFKA_STORAGE_ERROR, -1, 0), (1, 0, 0, 0)]


def test_a_long_reply_with_unreadable_records_closes_the_connection(harness: FetchHarness) -> None:
    harness.append("t", 1, *[records_batch(padding=1 << 20)] * 3)
    harness.client.send(fetch(fetch_topic("t", fetch_partition(0, 1, 1 << 30)), max_bytes=1 << 30), 12)
    file = harness.disk.open("/data/t-1/00000000000000000000.log")
    file.truncate(1 << 20)
    for _ in range(5):
        harness.end_turn()
    assert not harness.client.wire.open
    harness.client.lose_connection()
    assert "cannot be read any further" in harness.client.connection.reason
