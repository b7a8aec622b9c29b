"""Produce behind a connection: without a reply, by shape, with partitions that refuse, and who may write."""

from __future__ import annotations

from typing import Any

import pytest

from broker.security.authorizer import Operation, Resource
from protocol.errors import ErrorCode
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.group_desk import Refusing
from tests.support.produce_batches import THEN, batch, of_producer, plain_batch, record, three
from tests.support.produce_desk import Caller, Desk, MemoryPartition

TOPICS = {"t": (3, {}), "u": (1, {}), "timed": (1, {"message.timestamp.type": "LogAppendTime"})}
VERSIONS = range(3, 13)


@pytest.fixture
def desk() -> Desk:
    return Desk(TOPICS)


def request(data: bytes = b"", topic: str = "t", partition: int = 0, acks: int = -1) -> ProduceRequest:
    return ProduceRequest(None, acks, 1000, [TopicProduceData(topic, [PartitionProduceData(partition, data or plain_batch())])])


def partition(desk: Desk, topic: str = "t", index: int = 0) -> MemoryPartition:
    found: MemoryPartition | None = desk.partitions.find(topic, index)
    assert found is not None
    return found


def told(reply: Any) -> tuple[int, int, int, int, int]:
    (topic,) = reply.responses
    (part,) = topic.partition_responses
    return part.index, part.error_code, part.base_offset, part.log_append_time_ms, part.log_start_offset


def by_shape(caller: Caller, version: int = 9, **more: Any) -> Caller:
    """Its connection has seen two requests, so the next one need not be decoded."""
    for _ in range(2):
        assert told(caller.ask(request(**more), version))[1] == 0
    shape: Any = caller.connection.produce_template
    assert shape.learned
    return caller


def nothing_is_decoded(desk: Desk) -> None:
    def decode(*arguments: Any) -> None:
        raise AssertionError("it was decoded")

    for route in desk.dispatch.routes.values():
        route.decode = decode  # type: ignore[assignment]


# acks 0


@pytest.mark.parametrize("version", [3, 9, 12])
def test_with_acks_0_nothing_is_answered_and_the_next_requests_are(desk: Desk, version: int) -> None:
    caller = desk.caller()
    caller.send(*[caller.frame(request(acks=0), version) for _ in range(5)], caller.frame(request(three(), acks=1), version))
    (frame,) = caller.replies()
    assert told(caller.read(request(), version, frame)) == (0, 0, 5, -1, 0 if version >= 5 else -1)
    for _ in range(3):
        caller.send(caller.frame(request(acks=0), version))
    assert caller.replies() == []
    assert partition(desk).end_offset == 11


@pytest.mark.parametrize("learned", [False, True])
def test_with_acks_0_what_fails_ends_the_connection(desk: Desk, learned: bool) -> None:
    caller = desk.caller()
    for _ in range(3 * learned):
        caller.send(caller.frame(request(acks=0), 9))
    caller.send(caller.frame(request(plain_batch(crc=1), acks=0), 9), caller.frame(request(), 9))
    assert caller.closed
    assert caller.replies() == []
    assert partition(desk).end_offset == 3 * learned


# By shape


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_of_the_same_shape_is_stored_and_answered_undecoded_to_the_same_bytes(desk: Desk, version: int, acks: int) -> None:
    decoding, caller = desk.caller(), by_shape(desk.caller(), version, acks=acks)
    batches = [plain_batch(), three(), batch(*[record(number, value=bytes(number)) for number in range(200)])]
    asked = [request(data, partition=index, acks=acks) for data in batches for index in range(3)]
    usual = []
    for one in asked:
        decoding.connection.produce_template = None
        decoding.send(decoding.frame(one, version))
        usual += decoding.replies()
    contents = [partition(desk, index=index).batches for index in range(3)]
    for index in range(3):  # once more from the beginning
        partition(desk, index=index).batches = []
        partition(desk, index=index).end_offset = 2 if index == 0 else 0
    nothing_is_decoded(desk)
    caller._correlation_id = 0
    caller.send(*[caller.frame(one, version) for one in asked])
    assert caller.replies() == usual
    contents[0] = contents[0][2:]
    assert [partition(desk, index=index).batches for index in range(3)] == contents


def test_where_the_broker_sets_the_time_a_request_of_the_same_shape_is_told_it() -> None:
    desk = Desk(TOPICS, ms=THEN)
    caller = by_shape(desk.caller(), topic="timed")
    nothing_is_decoded(desk)
    assert told(caller.ask(request(topic="timed"), 9)) == (0, 0, 2, THEN, 0)


def test_a_batch_that_was_sent_before_is_answered_by_shape_as_it_was_then(desk: Desk) -> None:
    caller = desk.caller()
    assert told(caller.ask(request(of_producer(0)), 9)) == (0, 0, 0, -1, 0)
    assert told(caller.ask(request(of_producer(1)), 9)) == (0, 0, 1, -1, 0)
    nothing_is_decoded(desk)
    assert told(caller.ask(request(of_producer(2)), 9)) == (0, 0, 2, -1, 0)
    assert told(caller.ask(request(of_producer(1)), 9)) == (0, 0, 1, THEN, 0)
    assert partition(desk).end_offset == 3


def test_a_request_of_another_shape_goes_the_usual_way(desk: Desk) -> None:
    caller = by_shape(desk.caller())
    assert told(caller.ask(request(topic="u"), 9)) == (0, 0, 0, -1, 0)
    assert told(caller.ask(request(acks=1), 9)) == (0, 0, 2, -1, 0)
    assert told(caller.ask(request(), 8)) == (0, 0, 3, -1, 0)
    assert told(caller.ask(request(), 9, "another client")) == (0, 0, 4, -1, 0)
    two = ProduceRequest(None, -1, 1000, [TopicProduceData("t", [PartitionProduceData(index, plain_batch()) for index in range(2)])])
    (topic,) = caller.ask(two, 9).responses
    assert [(part.index, part.base_offset) for part in topic.partition_responses] == [(0, 5), (1, 0)]


def test_what_stands_behind_the_batch_is_looked_at(desk: Desk) -> None:
    caller = by_shape(desk.caller())
    caller.send(caller.frame(request(), 9)[:-1] + b"\1")  # a tagged field that is not there
    assert caller.closed
    assert partition(desk).end_offset == 2


def test_what_is_kept_of_a_request_has_a_bound(desk: Desk) -> None:
    caller = desk.caller()
    for number in range(4):
        assert told(caller.ask(request(), 9, "c" * 1100))[2] == number
    shape: Any = caller.connection.produce_template
    assert not shape.learned


def test_a_topic_that_was_deleted_or_made_anew_is_not_written_by_shape(desk: Desk) -> None:
    caller = by_shape(desk.caller())
    desk.topics.delete("t", 0)
    assert told(caller.ask(request(), 9)) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)
    desk.topics.create("t", 1, {}, 0)
    assert told(caller.ask(request(), 9)) == (0, 0, 0, -1, 0)


# Partitions that refuse


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_a_partition_that_cannot_be_used_says_why(desk: Desk, error: ErrorCode, learned: bool) -> None:
    caller = by_shape(desk.caller()) if learned else desk.caller()
    before = partition(desk).end_offset
    partition(desk).error = error
    assert told(caller.ask(request(), 9)) == (0, error, -1, -1, -1)
    partition(desk).error = 0
    assert told(caller.ask(request(), 9)) == (0, 0, before, -1, 0)


@pytest.mark.parametrize("learned", [False, True])
def test_an_append_that_fails_is_told_so_that_it_is_tried_again(desk: Desk, learned: bool) -> None:
    caller = by_shape(desk.caller()) if learned else desk.caller()
    before = partition(desk).end_offset
    partition(desk).refuses = True
    for _ in range(2):
        assert told(caller.ask(request(of_producer(0)), 9)) == (0, ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, -1)
    partition(desk).refuses = False
    assert told(caller.ask(request(of_producer(0)), 9)) == (0, 0, before, -1, 0)


def test_where_a_log_starts_is_told_with_what_it_took_and_with_what_it_looked_at(desk: Desk) -> None:
    partition(desk).start_offset = 40
    partition(desk).end_offset = 50
    caller = desk.caller()
    for number in range(3):
        assert told(caller.ask(request(), 9)) == (0, 0, 50 + number, -1, 40)
    assert told(caller.ask(request(plain_batch(base_offset=1)), 9)) == (0, ErrorCode.INVALID_RECORD, -1, -1, 40)


# Who may


def test_who_may_not_write_a_topic_is_told_so_whether_it_is_there_or_not() -> None:
    desk = Desk(TOPICS, Refusing((Operation.WRITE, Resource.TOPIC, "t"), (Operation.WRITE, Resource.TOPIC, "nothing")))
    caller = desk.caller()
    for _ in range(3):
        assert told(caller.ask(request(), 9)) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1, -1)
        assert told(caller.ask(request(topic="nothing"), 9)) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1, -1)
        assert told(caller.ask(request(topic="u"), 9))[1] == 0
    assert partition(desk).batches == []


def test_a_shape_asks_again_when_not_everybody_may_write_any_more(desk: Desk) -> None:
    caller = by_shape(desk.caller())
    shape: Any = caller.connection.produce_template
    refusing = Refusing((Operation.WRITE, Resource.TOPIC, "t"))
    shape._authorizer = desk.produce.__self__._authorizer = refusing
    assert told(caller.ask(request(), 9)) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1, -1)


# Transactions


def test_transactions_are_refused_with_one_line_for_each_id(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr("broker.topics.transactions.log.warning", lambda event, transactional_id: lines.append(transactional_id))
    monkeypatch.setattr("broker.topics.transactions.IDS_LOGGED_MAX", 2)
    caller = by_shape(desk.caller())
    for id in ("one", "two", "one", "three"):
        asked = ProduceRequest(id, -1, 1000, [TopicProduceData("t", [PartitionProduceData(0, of_producer(0, attributes=16))])])
        assert told(caller.ask(asked, 9)) == (0, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1, -1, -1)
    assert told(caller.ask(request(of_producer(0, attributes=16)), 9))[1] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert lines == ["one", "two"]
    assert partition(desk).end_offset == 2
