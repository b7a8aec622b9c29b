"""Produce over a connection: acks 0, the fast path (repeated layouts, not decoded), failing partitions, authorization."""

from __future__ import annotations

from typing import Any

import pytest

from broker.api.produce import PARTITIONS_PER_STEP
from broker.fastpath.produce import ProduceFastPath
from broker.net.long_requests import TURN_COST_MAX
from broker.security.authorizer import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.group_harness import refusing
from tests.support.produce_batches import THEN, batch, batch_of_three, plain_batch, producer_batch, record
from tests.support.produce_harness import MemoryPartition, ProduceClient, ProduceHarness

pytestmark = pytest.mark.plain  # partitions in memory replace the compiled ones

TOPICS = {"t": (3, {}), "u": (1, {}), "timed": (1, {"message.timestamp.type": "LogAppendTime"})}
VERSIONS = range(3, 14)


@pytest.fixture
def harness() -> ProduceHarness:
    return ProduceHarness(TOPICS)


def request(data: bytes = b"", topic: str = "t", partition: int = 0, acks: int = -1) -> ProduceRequest:
    return ProduceRequest(None, acks, 1000, [TopicProduceData(topic, [PartitionProduceData(partition, data or plain_batch())])])


def partition(harness: ProduceHarness, topic: str = "t", index: int = 0) -> MemoryPartition:
    partition: MemoryPartition | None = harness.partitions.find(topic, index)
    assert partition is not None
    return partition


def partition_reply(reply: Any) -> tuple[int, int, int, int, int]:
    (topic,) = reply.responses
    (part,) = topic.partition_responses
    return part.index, part.error_code, part.base_offset, part.log_append_time_ms, part.log_start_offset


def fast(caller: ProduceClient, version: int = 9, **more: Any) -> ProduceClient:
    """A caller whose connection has built a fast path from two requests: the next request is answered without being decoded."""
    for _ in range(2):
        assert partition_reply(caller.ask(request(**more), version))[1] == 0
    assert fast_path_of(caller)
    return caller


def fast_path_of(caller: ProduceClient) -> ProduceFastPath | None:
    return next((fast_path for fast_path in caller.connection.fast_paths.values() if isinstance(fast_path, ProduceFastPath)), None)


def refuse_decoding(harness: ProduceHarness) -> None:
    def decode(*arguments: Any) -> None:
        raise AssertionError("it was decoded")

    for route in harness.dispatch.routes.values():
        route.decode = decode  # type: ignore[assignment]


# acks 0


@pytest.mark.parametrize("version", [3, 9, 12])
def test_acks_0_gets_no_reply_and_later_requests_are_answered(harness: ProduceHarness, version: int) -> None:
    caller = harness.caller()
    caller.send(*[caller.frame(request(acks=0), version) for _ in range(5)], caller.frame(request(batch_of_three(), acks=1), version))
    (frame,) = caller.replies()
    assert partition_reply(caller.read(request(), version, frame)) == (0, 0, 5, -1, 0 if version >= 5 else -1)
    for _ in range(3):
        caller.send(caller.frame(request(acks=0), version))
    assert caller.replies() == []
    assert partition(harness).high_watermark == 11


@pytest.mark.parametrize("learned", [False, True])
def test_a_failing_produce_with_acks_0_closes_the_connection(harness: ProduceHarness, learned: bool) -> None:
    caller = harness.caller()
    for _ in range(3 * learned):
        caller.send(caller.frame(request(acks=0), 9))
    caller.send(caller.frame(request(plain_batch(crc=1), acks=0), 9), caller.frame(request(), 9))
    assert caller.closed
    assert caller.replies() == []
    assert partition(harness).high_watermark == 3 * learned


# The fast path


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_repeated_produce_is_stored_undecoded_with_the_same_reply(harness: ProduceHarness, version: int, acks: int) -> None:
    decoding, caller = harness.caller(), fast(harness.caller(), version, acks=acks)
    batches = [plain_batch(), batch_of_three(), batch(*[record(number, value=bytes(number)) for number in range(200)])]
    requests = [request(data, partition=index, acks=acks) for data in batches for index in range(3)]
    usual = []
    for sent in requests:
        decoding.connection.drop_fast_paths()
        decoding.send(decoding.frame(sent, version))
        usual += decoding.replies()
    contents = [partition(harness, index=index).batches for index in range(3)]
    for index in range(3):  # empty the partitions, so that the same requests get the same offsets again
        partition(harness, index=index).batches = []
        partition(harness, index=index).high_watermark = 2 if index == 0 else 0
    refuse_decoding(harness)
    caller._correlation_id = 0
    caller.send(*[caller.frame(sent, version) for sent in requests])
    assert caller.replies() == usual
    contents[0] = contents[0][2:]
    assert [partition(harness, index=index).batches for index in range(3)] == contents


def test_with_append_time_a_repeated_produce_gets_the_time() -> None:
    harness = ProduceHarness(TOPICS, ms=THEN)
    caller = fast(harness.caller(), topic="timed")
    refuse_decoding(harness)
    assert partition_reply(caller.ask(request(topic="timed"), 9)) == (0, 0, 2, THEN, 0)


def test_a_duplicate_batch_on_the_fast_path_gets_its_first_offset(harness: ProduceHarness) -> None:
    caller = harness.caller()
    assert partition_reply(caller.ask(request(producer_batch(0)), 9)) == (0, 0, 0, -1, 0)
    assert partition_reply(caller.ask(request(producer_batch(1)), 9)) == (0, 0, 1, -1, 0)
    refuse_decoding(harness)
    assert partition_reply(caller.ask(request(producer_batch(2)), 9)) == (0, 0, 2, -1, 0)
    assert partition_reply(caller.ask(request(producer_batch(1)), 9)) == (0, 0, 1, THEN, 0)
    assert partition(harness).high_watermark == 3


def test_a_produce_that_differs_takes_the_usual_path(harness: ProduceHarness) -> None:
    caller = fast(harness.caller())
    assert partition_reply(caller.ask(request(topic="u"), 9)) == (0, 0, 0, -1, 0)
    assert partition_reply(caller.ask(request(acks=1), 9)) == (0, 0, 2, -1, 0)
    assert partition_reply(caller.ask(request(), 8)) == (0, 0, 3, -1, 0)
    assert partition_reply(caller.ask(request(), 9, "another client")) == (0, 0, 4, -1, 0)
    two_partitions = ProduceRequest(None, -1, 1000, [TopicProduceData("t", [PartitionProduceData(index, plain_batch()) for index in range(2)])])
    (topic,) = caller.ask(two_partitions, 9).responses
    assert [(part.index, part.base_offset) for part in topic.partition_responses] == [(0, 5), (1, 0)]


def test_bytes_after_the_batch_are_checked(harness: ProduceHarness) -> None:
    caller = fast(harness.caller())
    caller.send(caller.frame(request(), 9)[:-1] + b"\1")  # an unknown tagged field
    assert caller.closed
    assert partition(harness).high_watermark == 2


def test_a_produce_larger_than_requests_may_be_closes_the_connection(harness: ProduceHarness) -> None:
    caller = fast(harness.caller())
    frame = caller.frame(request(batch(record(0, value=bytes(1_000)))), 9)
    for allowed in (len(frame), len(frame) - 1):
        harness.context.frame_bytes_max = caller.connection._framer._frame_bytes_max = allowed
        caller.send(frame)
        assert caller.closed is (allowed < len(frame))
    assert partition(harness).high_watermark == 3


def test_a_produce_with_a_long_front_gets_no_fast_path(harness: ProduceHarness) -> None:
    caller = harness.caller()
    for number in range(4):
        assert partition_reply(caller.ask(request(), 9, "c" * 1100))[2] == number
    assert fast_path_of(caller) is None


def test_a_deleted_or_recreated_topic_is_not_written_by_the_fast_path(harness: ProduceHarness) -> None:
    caller = fast(harness.caller())
    harness.topics.delete("t", 0)
    assert partition_reply(caller.ask(request(), 9)) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)
    harness.topics.create("t", 1, {}, 0)
    assert partition_reply(caller.ask(request(), 9)) == (0, 0, 0, -1, 0)


# By topic id, with the replies of Kafka 4.4.0 (which has the topics of a reply in the order of a hash table)


def by_id(*topics: tuple[bytes, list[int]], acks: int = -1) -> ProduceRequest:
    return ProduceRequest(None, acks, 1000, [TopicProduceData("", [PartitionProduceData(index, plain_batch()) for index in indexes], id) for id, indexes in topics])


def answers(reply: Any) -> list[tuple[bytes, list[tuple[int, int, int]]]]:
    return [(topic.topic_id, [(part.index, part.error_code, part.base_offset) for part in topic.partition_responses]) for topic in reply.responses]


def test_partitions_of_unknown_ids_are_refused_and_the_others_stored(harness: ProduceHarness) -> None:
    t, u = (harness.topics.by_name[name].id for name in ("t", "u"))
    unknown, zero = b"?" * 16, bytes(16)
    reply = harness.caller().ask(by_id((t, [0, 3]), (unknown, [0, 1]), (u, [0]), (zero, [0]), (unknown, [2])), 13)
    refused = (unknown, [(0, 100, -1), (1, 100, -1), (2, 100, -1)])
    assert answers(reply) == [(t, [(0, 0, 0), (3, 3, -1)]), refused, (u, [(0, 0, 0)]), (zero, [(0, 100, -1)])]


def test_a_topic_named_by_id_is_checked_like_one_named_by_name() -> None:
    harness = ProduceHarness(TOPICS, refusing((Operation.WRITE, ResourceType.TOPIC, "t")))
    t, u = (harness.topics.by_name[name].id for name in ("t", "u"))
    reply = harness.caller().ask(by_id((t, [0, 9]), (u, [0])), 13)
    assert answers(reply) == [(t, [(0, 29, -1), (9, 29, -1)]), (u, [(0, 0, 0)])]


def test_acks_0_by_an_unknown_id_closes_the_connection(harness: ProduceHarness) -> None:
    caller = harness.caller()
    caller.send(caller.frame(by_id((b"?" * 16, [0]), acks=0), 13))
    assert caller.closed


def test_a_recreated_topic_is_not_written_by_its_former_id(harness: ProduceHarness) -> None:
    former = harness.topics.by_name["t"].id
    caller = harness.caller()
    for number in range(3):
        assert answers(caller.ask(by_id((former, [0])), 13)) == [(former, [(0, 0, number)])]
    assert fast_path_of(caller)
    harness.topics.delete("t", 0)
    harness.topics.create("t", 1, {}, 0)
    for _ in range(3):
        assert answers(caller.ask(by_id((former, [0])), 13)) == [(former, [(0, ErrorCode.UNKNOWN_TOPIC_ID, -1)])]
    assert partition(harness).batches == []
    new = harness.topics.by_name["t"].id
    assert answers(caller.ask(by_id((former, [0]), (new, [0])), 13)) == [(former, [(0, 100, -1)]), (new, [(0, 0, 0)])]


def test_a_topic_recreated_while_a_long_request_is_read_is_not_written(harness: ProduceHarness) -> None:
    former = harness.topics.by_name["t"].id
    caller = harness.caller()
    many = by_id((former, [*[9] * (2 * TURN_COST_MAX * PARTITIONS_PER_STEP), 0]))
    caller.send(caller.frame(many, 13))
    for _ in range(3):  # its batches are looked at, and then stored: each takes two turns
        harness.loop.pass_once()
    assert caller.replies() == []
    harness.topics.delete("t", 0)
    harness.topics.create("t", 3, {}, 0)
    harness.settle()
    (frame,) = caller.replies()
    assert answers(caller.read(many, 13, frame)) == [(former, [(9, 100, -1), (0, 100, -1)])]
    assert partition(harness).batches == []


# Failing partitions


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_produce_reports_why_a_partition_is_unusable(harness: ProduceHarness, error: ErrorCode, learned: bool) -> None:
    caller = fast(harness.caller()) if learned else harness.caller()
    before = partition(harness).high_watermark
    partition(harness).error = error
    assert partition_reply(caller.ask(request(), 9)) == (0, error, -1, -1, -1)
    partition(harness).error = 0
    assert partition_reply(caller.ask(request(), 9)) == (0, 0, before, -1, 0)


@pytest.mark.parametrize("learned", [False, True])
def test_a_failing_append_gets_a_retriable_error(harness: ProduceHarness, learned: bool) -> None:
    caller = fast(harness.caller()) if learned else harness.caller()
    before = partition(harness).high_watermark
    partition(harness).appends_fail = True
    for _ in range(2):
        assert partition_reply(caller.ask(request(producer_batch(0)), 9)) == (0, ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, -1)
    partition(harness).appends_fail = False
    assert partition_reply(caller.ask(request(producer_batch(0)), 9)) == (0, 0, before, -1, 0)


def test_the_reply_has_the_log_start_offset(harness: ProduceHarness) -> None:
    partition(harness).start_offset = 40
    partition(harness).high_watermark = 50
    caller = harness.caller()
    for number in range(3):
        assert partition_reply(caller.ask(request(), 9)) == (0, 0, 50 + number, -1, 40)
    assert partition_reply(caller.ask(request(plain_batch(base_offset=1)), 9)) == (0, ErrorCode.INVALID_RECORD, -1, -1, 40)


# Authorization


def test_without_the_right_to_write_a_topic_its_existence_stays_hidden() -> None:
    harness = ProduceHarness(TOPICS, refusing((Operation.WRITE, ResourceType.TOPIC, "t"), (Operation.WRITE, ResourceType.TOPIC, "nothing")))
    caller = harness.caller()
    for _ in range(3):
        assert partition_reply(caller.ask(request(), 9)) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1, -1)
        assert partition_reply(caller.ask(request(topic="nothing"), 9)) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1, -1)
        assert partition_reply(caller.ask(request(topic="u"), 9))[1] == 0
    assert partition(harness).batches == []


def test_the_fast_path_of_produce_checks_rights_again_after_a_change(harness: ProduceHarness) -> None:
    caller = fast(harness.caller())
    fast_path: Any = fast_path_of(caller)
    fast_path._authorizer = harness.produce.args[0].__self__._authorizer = refusing((Operation.WRITE, ResourceType.TOPIC, "t"))
    assert partition_reply(caller.ask(request(), 9)) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1, -1)


# Transactions


def test_each_transactional_id_is_refused_with_one_log_line(harness: ProduceHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr("broker.topics.transactions.log.warning", lambda event, transactional_id: lines.append(transactional_id))
    monkeypatch.setattr("broker.topics.transactions.IDS_LOGGED_MAX", 2)
    caller = fast(harness.caller())
    for id in ("one", "two", "one", "three"):
        produce = ProduceRequest(id, -1, 1000, [TopicProduceData("t", [PartitionProduceData(0, producer_batch(0, attributes=16))])])
        assert partition_reply(caller.ask(produce, 9)) == (0, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1, -1, -1)
    assert partition_reply(caller.ask(request(producer_batch(0, attributes=16)), 9))[1] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert lines == ["one", "two"]
    assert partition(harness).high_watermark == 2
