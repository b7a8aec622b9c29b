"""Waiting fetches: the events that complete them, and the state that they free."""

from __future__ import annotations

import pytest

from broker.runtime.turn import NEVER
from broker.topics.waiting_fetches import ANSWERED_PER_TURN
from protocol.errors import ErrorCode
from simulator.world import SECOND
from tests.support.fetch_harness import (
    FetchClient,
    FetchHarness,
    fetch,
    fetch_partition,
    fetch_topic,
    offsets_in,
    partition_replies,
    records_batch,
)

SIZE = len(records_batch())


@pytest.fixture
def harness() -> FetchHarness:
    """Topic t of two partitions, two batches of one record in the first."""
    harness = FetchHarness()
    harness.create_topic("t", 2)
    harness.append("t", 0, *[records_batch()] * 2)
    return harness


def no_fetch_waits(harness: FetchHarness) -> bool:
    return not len(harness.fetches) and not any(partition.waiters for topic in harness.topics.by_name.values() for partition in harness.finder.of_topic(topic))


def test_a_fetch_at_the_end_waits_for_its_maximum_wait(harness: FetchHarness) -> None:
    harness.client.send(fetch(fetch_topic("t", fetch_partition(2)), max_wait_ms=50), 12)
    harness.pass_ms(49)
    assert harness.client.replies() == []
    harness.pass_ms(1)
    (reply,) = harness.client.replies()
    assert partition_replies(reply) == [(0, 0, 2, 0)]
    assert no_fetch_waits(harness)


@pytest.mark.parametrize("wait", [0, -1, -(1 << 31)])
def test_a_fetch_without_a_wait_is_answered_at_once(harness: FetchHarness, wait: int) -> None:
    assert partition_replies(harness.ask(fetch(fetch_topic("t", fetch_partition(2)), max_wait_ms=wait), 12)) == [(0, 0, 2, 0)]


@pytest.mark.parametrize("least", [0, -1, -(1 << 31)])
def test_a_fetch_of_nothing_does_not_wait(harness: FetchHarness, least: int) -> None:
    assert partition_replies(harness.ask(fetch(fetch_topic("t", fetch_partition(2)), max_wait_ms=500, min_bytes=least), 12)) == [(0, 0, 2, 0)]


def test_an_append_is_answered_at_the_end_of_its_turn(harness: FetchHarness) -> None:
    harness.client.send(fetch(fetch_topic("t", fetch_partition(2), fetch_partition(0, 1)), max_wait_ms=500), 12)
    harness.append("t", 0)
    assert harness.client.replies() == []
    harness.append("t", 1)
    harness.end_turn()
    (reply,) = harness.client.replies()
    assert partition_replies(reply) == [(0, 0, 3, SIZE), (1, 0, 1, SIZE)]
    assert no_fetch_waits(harness)
    assert harness.client.connection.on_lost is None


def test_a_fetch_waits_for_min_bytes_over_all_partitions(harness: FetchHarness) -> None:
    harness.client.send(fetch(fetch_topic("t", fetch_partition(1), fetch_partition(0, 1)), max_wait_ms=500, min_bytes=4 * SIZE), 12)
    for index in (1, 0):
        harness.append("t", index)
        harness.end_turn()
        assert harness.client.replies() == []
    harness.append("t", 1)
    harness.end_turn()
    (reply,) = harness.client.replies()
    assert partition_replies(reply) == [(0, 0, 3, 2 * SIZE), (1, 0, 2, 2 * SIZE)]


def test_available_bytes_count_up_to_the_partition_limit(harness: FetchHarness) -> None:
    """As in Kafka, a batch that exceeds the limit is not sent, but the bytes below the limit count for min.bytes."""
    harness.client.send(fetch(fetch_topic("t", fetch_partition(0, most=SIZE)), max_wait_ms=30, min_bytes=SIZE + 1), 12)
    harness.append("t", 0)
    harness.pass_ms(29)
    assert harness.client.replies() == []
    harness.pass_ms(1)
    assert partition_replies(harness.client.replies()[0]) == [(0, 0, 3, SIZE)]
    assert partition_replies(harness.ask(fetch(fetch_topic("t", fetch_partition(0, most=SIZE + 1)), max_wait_ms=30, min_bytes=SIZE + 1), 12)) == [(0, 0, 3, SIZE)]


def test_a_fetch_below_min_bytes_gets_the_available_records_after_its_wait(harness: FetchHarness) -> None:
    harness.client.send(fetch(fetch_topic("t", fetch_partition(0)), max_wait_ms=20, min_bytes=1 << 20), 12)
    harness.append("t", 0)
    harness.pass_ms(20)
    (reply,) = harness.client.replies()
    assert offsets_in(reply.responses[0].partitions[0].records) == [0, 1, 2]


def test_a_partition_error_is_answered_without_waiting(harness: FetchHarness) -> None:
    request = fetch(fetch_topic("t", fetch_partition(2), fetch_partition(9, 1)), max_wait_ms=500)
    assert partition_replies(harness.ask(request, 12)) == [(0, 0, 2, 0), (1, ErrorCode.OFFSET_OUT_OF_RANGE, -1, 0)]


def test_an_unknown_topic_does_not_end_the_wait(harness: FetchHarness) -> None:
    harness.client.send(fetch(fetch_topic("t", fetch_partition(2)), fetch_topic("?", fetch_partition(0)), max_wait_ms=10), 12)
    harness.pass_ms(9)
    assert harness.client.replies() == []
    harness.pass_ms(1)
    assert partition_replies(harness.client.replies()[0]) == [(0, 0, 2, 0), (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, 0)]


def test_a_diverging_epoch_is_answered_without_waiting(harness: FetchHarness) -> None:
    first = harness.partition("t").leader_epoch
    harness.new_epoch("t")
    (partition,) = harness.ask(fetch(fetch_topic("t", fetch_partition(7, fetched=first)), max_wait_ms=500), 12).responses[0].partitions
    assert partition.diverging_epoch.end_offset == 2


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR])
def test_an_unloaded_or_failing_partition_is_reported_at_once(harness: FetchHarness, error: ErrorCode) -> None:
    harness.client.send(fetch(fetch_topic("t", fetch_partition(2), fetch_partition(0, 1)), max_wait_ms=500), 12)
    partition = harness.partition("t", 1)
    partition.error = error
    partition.wake()
    harness.end_turn()
    assert partition_replies(harness.client.replies()[0]) == [(0, 0, 2, 0), (1, error, -1, 0)]
    assert no_fetch_waits(harness)


def test_a_fetch_from_a_closed_segment_does_not_wait() -> None:
    harness = FetchHarness(segment_bytes=3 * SIZE)
    harness.create_topic("t")
    harness.append("t", 0, *[records_batch()] * 4)
    assert partition_replies(harness.ask(fetch(fetch_topic("t", fetch_partition(1)), max_wait_ms=500, min_bytes=1 << 20), 12)) == [(0, 0, 4, 2 * SIZE)]
    harness.client.send(fetch(fetch_topic("t", fetch_partition(3)), max_wait_ms=500, min_bytes=1 << 20), 12)
    harness.append("t", 0, *[records_batch()] * 3)
    harness.end_turn()
    assert partition_replies(harness.client.replies()[0]) == [(0, 0, 7, 3 * SIZE)]


def test_a_closed_connection_leaves_no_waiting_fetch(harness: FetchHarness) -> None:
    harness.client.send(fetch(fetch_topic("t", fetch_partition(2), fetch_partition(0, 1)), max_wait_ms=500), 12)
    assert len(harness.fetches) == 1
    harness.append("t", 0)
    harness.client.lose_connection()
    assert no_fetch_waits(harness)
    harness.pass_ms(501)
    assert harness.client.replies() == []
    assert len(harness.fetches._heap) == 0


def test_all_requests_that_wait_for_a_partition_are_answered(harness: FetchHarness) -> None:
    clients = [FetchClient(harness) for _ in range(10)]
    for client in clients:
        client.send(fetch(fetch_topic("t", fetch_partition(2)), max_wait_ms=500), 12)
    harness.append("t", 0)
    harness.end_turn()
    assert [partition_replies(reply) for client in clients for reply in client.replies()] == [[(0, 0, 3, SIZE)]] * 10


def test_many_fetches_completed_at_once_do_not_block_other_connections(harness: FetchHarness) -> None:
    clients = [FetchClient(harness) for _ in range(2 * ANSWERED_PER_TURN + 1)]

    def answered_in_one_turn() -> int:
        harness.end_turn()
        return sum(len(client.replies()) for client in clients)

    for client in clients:
        client.send(fetch(fetch_topic("t", fetch_partition(2)), max_wait_ms=500), 12)
    harness.append("t", 0)
    assert [answered_in_one_turn() for _ in range(4)] == [ANSWERED_PER_TURN, ANSWERED_PER_TURN, 1, 0]
    for client in clients:
        client.send(fetch(fetch_topic("t", fetch_partition(3)), max_wait_ms=500), 12)
    harness.loop.advance(0.5)
    first = 0
    while not first:
        first = answered_in_one_turn()
    assert first == ANSWERED_PER_TURN
    assert sum(answered_in_one_turn() for _ in range(10)) == ANSWERED_PER_TURN + 1


def test_early_completed_fetches_do_not_accumulate(harness: FetchHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.topics.waiting_fetches.ENDED_ENTRIES_MIN", 50)
    second_client = FetchClient(harness)
    second_client.send(fetch(fetch_topic("t", fetch_partition(0, 1)), max_wait_ms=(1 << 31) - 1), 12)
    for end in range(2, 200):
        harness.client.send(fetch(fetch_topic("t", fetch_partition(end)), max_wait_ms=(1 << 31) - 1), 12)
        harness.append("t", 0)
        harness.end_turn()
        assert len(harness.client.replies()) == 1
    assert len(harness.fetches._heap) <= 102
    assert len(harness.fetches) == 1


def test_nothing_is_due_without_waiters(harness: FetchHarness) -> None:
    assert harness.fetches.wake_at == NEVER
    harness.client.send(fetch(fetch_topic("t", fetch_partition(2)), max_wait_ms=70), 12)
    assert harness.fetches.wake_at == harness.clock.now + 70
    harness.pass_ms(70)
    assert harness.fetches.wake_at == NEVER


def test_a_later_fetch_with_a_shorter_wait_is_answered_first(harness: FetchHarness) -> None:
    second_client = FetchClient(harness)
    harness.client.send(fetch(fetch_topic("t", fetch_partition(2)), max_wait_ms=40), 12)
    second_client.send(fetch(fetch_topic("t", fetch_partition(2)), max_wait_ms=10), 12)
    harness.pass_ms(10)
    assert (len(second_client.replies()), len(harness.client.replies())) == (1, 0)
    harness.pass_ms(30)
    assert len(harness.client.replies()) == 1


def test_a_machine_that_slept_answers_when_the_time_has_passed_awake(harness: FetchHarness) -> None:
    harness.client.send(fetch(fetch_topic("t", fetch_partition(2)), max_wait_ms=40), 12)
    harness.loop.wall_offset_ns += 3_600 * SECOND
    harness.pass_ms(39)
    assert harness.client.replies() == []
    harness.pass_ms(2)
    assert len(harness.client.replies()) == 1


def test_requests_after_a_waiting_fetch_wait_for_its_reply(harness: FetchHarness) -> None:
    harness.client.send(fetch(fetch_topic("t", fetch_partition(2)), max_wait_ms=20), 12)
    harness.client.send(fetch(fetch_topic("t", fetch_partition(0))), 12)
    harness.pass_ms(19)
    assert harness.client.replies() == []
    harness.pass_ms(1)
    harness.end_turn()
    assert [partition_replies(reply) for reply in harness.client.replies()] == [[(0, 0, 2, 0)], [(0, 0, 2, 2 * SIZE)]]


def test_a_long_reply_to_a_waiting_request_is_sent_in_pieces(harness: FetchHarness) -> None:
    harness.client.send(fetch(fetch_topic("t", fetch_partition(2)), max_wait_ms=500, min_bytes=300_000), 12)
    harness.append("t", 0, *[records_batch(padding=100_000)] * 4)
    for _ in range(3):
        harness.end_turn()
    (reply,) = harness.client.replies()
    assert offsets_in(reply.responses[0].partitions[0].records) == [2, 3, 4, 5]


@pytest.mark.usefixtures("planted_defect")
@pytest.mark.plain
def test_a_failing_waiting_fetch_is_answered_and_removed(harness: FetchHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.client.send(fetch(fetch_topic("t", fetch_partition(2)), max_wait_ms=500), 12)
    monkeypatch.setattr(type(harness.partition("t")), "start_offset", property(lambda self: 1 // 0))
    harness.append("t", 0)
    harness.end_turn()
    (reply,) = harness.client.replies()
    assert reply.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert partition_replies(reply) == [(0, -1, -1, 0)]
    assert no_fetch_waits(harness)
