"""Batches too expensive to check in the loop: order is kept in their partition and connection, and others do not wait."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial as bound
from typing import Any

import pytest

from broker.api import produce
from broker.topics import batch_queues
from broker.topics.append import CheckTimeBudget
from broker.topics.batch_checker_process import CheckFailed
from broker.topics.batch_checks import UNLIMITED, Checked, TooMuchWork, prepare
from protocol.batch import BatchHeader, iterate_headers
from protocol.errors import ErrorCode
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from storage import AppendFailed
from tests.protocol.nasty_batches import LAYOUTS, body
from tests.support.produce_batches import THEN, batch, plain_batch, producer_batch, record
from tests.support.produce_harness import MemoryPartition, ProduceClient, ProduceHarness

pytestmark = pytest.mark.plain  # partitions in memory replace the compiled ones

COUNT = 4_000  # more records than the loop checks one by one
IN_TURN = body(LAYOUTS["keys null and empty in turn"], COUNT)
NOW = THEN


def heavy(**fields: int) -> bytes:
    return batch(raw=IN_TURN, **({"record_count": COUNT, "last_offset_delta": COUNT - 1} | fields))


def request(*parts: tuple[int, bytes], acks: int = -1, topic: str = "t") -> ProduceRequest:
    return ProduceRequest(None, acks, 1000, [TopicProduceData(topic, [PartitionProduceData(index, data) for index, data in parts])])


def sent(harness: ProduceHarness, caller: ProduceClient, *parts: tuple[int, bytes], acks: int = -1, topic: str = "t") -> ProduceRequest:
    """Send a request and run one pass of the loop, but no check of an expensive batch."""
    produce_request = request(*parts, acks=acks, topic=topic)
    caller.send(caller.frame(produce_request, 9))
    harness.loop.pass_once()
    return produce_request


def errors_and_offsets(caller: ProduceClient, version: int = 9) -> list[tuple[int, int]]:
    """Error and offset of every partition in the replies so far."""
    results = []
    for frame in caller.replies():
        reply = caller.read(request(), version, frame)
        results += [(part.error_code, part.base_offset) for topic in reply.responses for part in topic.partition_responses]
    return results


def partition(harness: ProduceHarness, index: int = 0, topic: str = "t") -> MemoryPartition:
    partition: MemoryPartition | None = harness.partitions.find(topic, index)
    assert partition is not None
    return partition


@pytest.fixture
def harness() -> ProduceHarness:
    return ProduceHarness({"t": (200, {}), "gzip": (1, {"compression.type": "gzip"})}, ms=NOW)


class SilentLog:
    """Makes a partition assign offsets when the test says so, as a log in JetStream does."""

    def __init__(self, partition: MemoryPartition) -> None:
        self.waiting: deque[Callable[[], None]] = deque()
        self._append = partition.append_async
        partition.assigns_offsets_at_once = False
        partition.batch_queue = deque()
        partition.append_async = self.append_async  # type: ignore[method-assign]

    def append_async(self, batch: bytearray, header: BatchHeader, done: Callable[[int | AppendFailed], None]) -> None:
        self.waiting.append(bound(self._append, batch, header, done))

    def acknowledge(self) -> None:
        self.waiting.popleft()()


@pytest.fixture
def timed() -> ProduceHarness:
    return ProduceHarness({"t": (200, {})}, ms=NOW, moves=True)


def test_a_batch_that_its_log_does_not_acknowledge_is_answered_by_its_timeout(timed: ProduceHarness) -> None:
    log = SilentLog(partition(timed))
    caller = timed.caller()
    sent(timed, caller, (0, plain_batch()))
    timed.settle()
    timed.loop.jump(0.9)
    timed.settle()
    assert (len(log.waiting), errors_and_offsets(caller)) == (1, [])
    timed.loop.jump(0.1)
    timed.settle()
    assert errors_and_offsets(caller) == [(ErrorCode.REQUEST_TIMED_OUT, -1)]
    log.acknowledge()
    timed.settle()
    assert errors_and_offsets(caller) == []
    sent(timed, caller, (0, plain_batch()))
    timed.settle()
    log.acknowledge()
    timed.settle()
    assert errors_and_offsets(caller) == [(0, 1)]
    assert timed.batch_queues._bytes == 0


def test_a_batch_that_waits_for_its_producers_earlier_batch_is_not_appended_after_its_timeout(timed: ProduceHarness) -> None:
    log = SilentLog(partition(timed))
    first, again, other = timed.caller(), timed.caller(), timed.caller()
    sent(timed, first, (0, producer_batch(0)))
    timed.settle()
    sent(timed, again, (0, producer_batch(0)))
    sent(timed, other, (0, plain_batch()))
    timed.settle()
    assert len(log.waiting) == 1
    timed.loop.jump(1.0)
    timed.settle()
    assert [errors_and_offsets(caller) for caller in (first, again, other)] == [[(ErrorCode.REQUEST_TIMED_OUT, -1)]] * 3
    log.acknowledge()
    timed.settle()
    assert not log.waiting
    assert timed.batch_queues._bytes == 0
    sent(timed, again, (0, producer_batch(0)))
    timed.settle()
    assert errors_and_offsets(again) == [(0, 0)], "the batch is stored once"


def test_a_batch_in_a_directory_has_no_timeout(timed: ProduceHarness) -> None:
    caller = timed.caller()
    sent(timed, caller, (0, heavy()))
    timed.loop.jump(60.0)
    assert errors_and_offsets(caller) == []
    timed.settle()
    assert errors_and_offsets(caller) == [(0, 0)]


def test_an_expensive_batch_is_checked_in_another_process_and_stored_unchanged(harness: ProduceHarness) -> None:
    caller = harness.caller()
    sent(harness, caller, (0, heavy()))
    assert (len(harness.checker.jobs), errors_and_offsets(caller)) == (1, [])
    harness.settle()
    assert errors_and_offsets(caller) == [(0, 0)]
    assert partition(harness).high_watermark == COUNT


def test_later_batches_of_the_partition_wait_for_a_batch_under_check(harness: ProduceHarness) -> None:
    slow, same_partition, other_partition = harness.caller(), harness.caller(), harness.caller()
    sent(harness, slow, (0, heavy()), (1, plain_batch()))
    sent(harness, same_partition, (0, plain_batch()))
    sent(harness, other_partition, (2, plain_batch()))
    assert (errors_and_offsets(slow), errors_and_offsets(same_partition), errors_and_offsets(other_partition)) == ([], [], [(0, 0)])
    assert partition(harness, 1).high_watermark == 1
    harness.settle()
    assert (errors_and_offsets(slow), errors_and_offsets(same_partition)) == ([(0, 0), (0, 0)], [(0, COUNT)])


def test_later_requests_of_the_connection_wait_for_a_batch_under_check(harness: ProduceHarness) -> None:
    caller = harness.caller()
    frames = [caller.frame(request((index, data)), 9) for index, data in ((0, heavy()), (1, plain_batch()), (0, plain_batch()))]
    caller.send(*frames)
    harness.loop.pass_once()
    assert partition(harness, 1).high_watermark == 0
    harness.settle()
    assert errors_and_offsets(caller) == [(0, 0), (0, 0), (0, COUNT)]


def test_sequences_of_an_idempotent_producer_are_checked_in_the_order_of_the_appends(harness: ProduceHarness) -> None:
    first, second, duplicate = harness.caller(), harness.caller(), harness.caller()
    big = heavy(producer_id=7, producer_epoch=0, base_sequence=0)
    sent(harness, first, (0, big))
    sent(harness, second, (0, producer_batch(COUNT)))
    sent(harness, duplicate, (0, big))
    harness.settle()
    assert (errors_and_offsets(first), errors_and_offsets(second), errors_and_offsets(duplicate)) == ([(0, 0)], [(0, COUNT)], [(0, 0)])
    assert partition(harness).high_watermark == COUNT + 1


def test_a_batch_refused_late_gets_the_reply_of_an_immediate_check(harness: ProduceHarness) -> None:
    caller = harness.caller()
    sent(harness, caller, (0, heavy(record_count=COUNT + 1, last_offset_delta=COUNT)))
    harness.settle()
    assert errors_and_offsets(caller) == [(ErrorCode.INVALID_RECORD, -1)]
    assert partition(harness).high_watermark == 0


def test_with_acks_0_a_late_check_continues_or_closes_the_connection(harness: ProduceHarness) -> None:
    good, bad = harness.caller(), harness.caller()
    sent(harness, good, (0, heavy()), acks=0)
    sent(harness, bad, (1, heavy(crc=1)), acks=0)
    sent(harness, bad, (2, heavy(record_count=1, last_offset_delta=0)), acks=0)
    harness.settle()
    assert (errors_and_offsets(good), good.closed, partition(harness).high_watermark) == ([], False, COUNT)
    assert (errors_and_offsets(bad), bad.closed) == ([], True)
    sent(harness, good, (0, plain_batch()))
    assert errors_and_offsets(good) == [(0, COUNT)]


def test_a_deleted_or_suspended_partition_gets_no_queued_batch(harness: ProduceHarness) -> None:
    for index, error in enumerate((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR)):
        slow, next_caller = harness.caller(), harness.caller()
        sent(harness, slow, (index, heavy()))
        sent(harness, next_caller, (index, plain_batch()))
        partition(harness, index).error = error
        harness.settle()
        assert (errors_and_offsets(slow), errors_and_offsets(next_caller)) == ([(error, -1)], [(error, -1)])
        assert partition(harness, index).high_watermark == 0


def test_a_disk_error_fails_only_its_queued_batch(harness: ProduceHarness) -> None:
    slow, next_caller = harness.caller(), harness.caller()
    sent(harness, slow, (0, heavy()))
    sent(harness, next_caller, (0, plain_batch()))
    partition(harness).appends_fail = True
    harness.checker.check()
    partition(harness).appends_fail = False
    harness.settle()
    assert (errors_and_offsets(slow), errors_and_offsets(next_caller)) == ([(ErrorCode.KAFKA_STORAGE_ERROR, -1)], [(0, 0)])


def test_a_failed_check_gets_a_retriable_error_and_the_next_is_checked(harness: ProduceHarness) -> None:
    first, second = harness.caller(), harness.caller()
    sent(harness, first, (0, heavy()))
    sent(harness, second, (0, heavy()))
    harness.checker.outcomes.append(CheckFailed("it was killed"))
    harness.settle()
    assert (errors_and_offsets(first), errors_and_offsets(second)) == ([(ErrorCode.REQUEST_TIMED_OUT, -1)], [(0, 0)])


@pytest.mark.usefixtures("planted_defect")
def test_a_defect_in_a_check_fails_only_its_batch(harness: ProduceHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = harness.caller(), harness.caller()
    sent(harness, first, (0, heavy()))
    sent(harness, second, (0, plain_batch()))
    harness.checker.outcomes.append(Checked(0, b"no batch"))
    harness.settle()
    assert (errors_and_offsets(first), errors_and_offsets(second)) == ([(ErrorCode.UNKNOWN_SERVER_ERROR, -1)], [(0, 0)])


def test_no_reply_is_made_for_a_closed_connection(harness: ProduceHarness) -> None:
    for acks, is_needed in ((1, False), (0, True)):
        caller = harness.caller()
        sent(harness, caller, (0, heavy()), acks=acks)
        caller.connection.connection_lost(None)
        (job,) = harness.checker.jobs
        assert job.is_needed() is is_needed
        harness.settle()


def test_batches_over_the_waiting_limit_get_a_retriable_error(harness: ProduceHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    data = heavy()
    monkeypatch.setattr(batch_queues, "WAITING_BYTES_MAX", 2 * (len(data) + batch_queues.WAITING_BATCH_BYTES))
    callers = [harness.caller() for _ in range(4)]
    for index, caller in enumerate(callers):
        sent(harness, caller, (index, data))
    assert [errors_and_offsets(caller) for caller in callers] == [[], [], [(ErrorCode.REQUEST_TIMED_OUT, -1)], [(ErrorCode.REQUEST_TIMED_OUT, -1)]]
    harness.settle()
    assert [errors_and_offsets(caller) for caller in callers[:2]] == [[(0, 0)], [(0, 0)]]
    assert harness.batch_queues._bytes == 0
    monkeypatch.setattr(batch_queues, "WAITING_BYTES_MAX", 1)  # the limit does not apply to a single waiting batch
    sent(harness, callers[3], (3, data))
    harness.settle()
    assert errors_and_offsets(callers[3]) == [(0, 0)]


def test_a_stop_answers_waiting_batches_without_appending(harness: ProduceHarness) -> None:
    slow, next_caller, refused = harness.caller(), harness.caller(), harness.caller()
    sent(harness, slow, (0, heavy()))
    sent(harness, next_caller, (0, plain_batch()))
    (job,) = harness.checker.jobs
    harness.batch_queues.stop()
    harness.loop.pass_once()
    expected = [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert (errors_and_offsets(slow), errors_and_offsets(next_caller)) == (expected, expected)
    harness.settle()
    assert partition(harness).high_watermark == 0
    sent(harness, refused, (1, heavy()))
    assert errors_and_offsets(refused) == [(ErrorCode.REQUEST_TIMED_OUT, -1)]
    assert job.is_needed()


@pytest.mark.parametrize("version", [9, 13])
def test_a_request_with_many_batches_is_processed_in_several_turns(harness: ProduceHarness, version: int) -> None:
    caller = harness.caller()
    caller.send(caller.frame(request(*[(index, plain_batch()) for index in range(200)]), version))
    appended = [sum(partition(harness, index).high_watermark for index in range(200))]
    while appended[-1] < 200:
        harness.loop.pass_once()
        appended.append(sum(partition(harness, index).high_watermark for index in range(200)))
    assert appended == [produce.APPENDS_MAX, produce.APPENDS_MAX + batch_queues.APPENDS_PER_TURN, 192, 200]
    harness.settle()
    assert errors_and_offsets(caller, version) == [(0, 0)] * 200


def test_log_append_time_is_the_time_of_the_append(harness: ProduceHarness) -> None:
    timed = ProduceHarness({"timed": (1, {"message.timestamp.type": "LogAppendTime"})}, ms=NOW)
    caller = timed.caller()
    sent(timed, caller, (0, heavy()), topic="timed")
    timed.clock.wall = NOW + 5_000
    timed.settle()
    (header,) = iterate_headers(partition(timed, topic="timed").data, 0, len(partition(timed, topic="timed").data))
    assert header.max_timestamp == NOW + 5_000


class Time:
    """A clock that advances by `step_ns` at each reading, so that a check seems to take that long."""

    def __init__(self, step_ns: int) -> None:
        self.ns = 0
        self.step_ns = step_ns

    def __call__(self) -> int:
        self.ns += self.step_ns
        return self.ns


class Turns:
    def __init__(self) -> None:
        self.noted: list[Any] = []

    def call_at_turn_end(self, actor: Any) -> None:
        self.noted.append(actor)


def test_checks_of_one_pass_share_a_time_limit(harness: ProduceHarness) -> None:
    turns = Turns()
    check_budget = CheckTimeBudget(turns, Time(2_000_000))
    settings = partition(harness).settings
    data = batch(record(value=bytes(2_000)))

    def checks() -> int:
        for done in range(100):
            try:
                check_budget.prepare(data, 0, len(data), settings, NOW, "t-0")
            except TooMuchWork:
                return done
        return 100

    assert (checks(), checks()) == (3, 0)
    assert turns.noted == [check_budget]
    check_budget.end_turn()
    assert checks() == 3


@pytest.mark.plain
def test_a_batch_over_the_time_limit_is_not_checked_twice_in_one_pass(harness: ProduceHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def counted(*arguments: Any) -> Any:
        tried.append(arguments)
        return prepare(*arguments)

    caller = harness.caller()
    for _ in range(3):
        sent(harness, caller, (0, plain_batch()))
    monkeypatch.setattr("broker.topics.append.prepare", counted)
    sent(harness, caller, (0, heavy()))
    assert (len(tried), len(harness.checker.jobs)) == (1, 1)


# Long random use.

BODIES: dict[str, Callable[[], bytes]] = {
    "small": lambda: plain_batch(),
    "irregular": lambda: batch(*[record(number, value=bytes(number % 7)) for number in range(50)]),
    "alike": lambda: batch(*[record(number) for number in range(60)]),
    "gzip": lambda: batch(*[record(number, value=bytes(number)) for number in range(40)], codec=1),
    "heavy": heavy,
    "wrong": lambda: heavy(crc=3),
    "count wrong": lambda: batch(record(), record_count=2, last_offset_delta=1),
}


class Unlimited(CheckTimeBudget):
    def prepare(self, data: bytes, at: int, size: int, settings: Any, now: int, name: object) -> Any:
        return prepare(data, at, size, settings, now, name, UNLIMITED)


def at_once(monkeypatch: pytest.MonkeyPatch, topics: dict[str, tuple[int, dict[str, str]]]) -> ProduceHarness:
    """A broker that checks every batch in the loop, on arrival."""
    monkeypatch.setattr("tests.support.produce_harness.CheckTimeBudget", Unlimited)
    return ProduceHarness(topics, ms=NOW)


def choices(seed: int) -> Iterator[tuple[int, str, int, str]]:
    chance = random.Random(seed)
    for _ in range(120):
        yield chance.randrange(4), chance.choice(["t", "t", "gzip"]), chance.randrange(2), chance.choice(list(BODIES))


@pytest.mark.once
@pytest.mark.plain
@pytest.mark.parametrize("seed", range(6))
def test_late_and_immediate_checks_give_the_same_logs_and_replies(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    topics: dict[str, tuple[int, dict[str, str]]] = {"t": (2, {}), "gzip": (2, {"compression.type": "gzip"})}
    late = ProduceHarness(topics, ms=NOW)
    plain = at_once(monkeypatch, topics)
    chance = random.Random(seed)
    callers = [late.caller() for _ in range(4)]
    immediate_callers = [plain.caller() for _ in range(4)]
    expected: list[list[tuple[int, int]]] = [[] for _ in callers]
    results: list[list[tuple[int, int]]] = [[] for _ in callers]
    sequences: dict[tuple[str, int], int] = {}
    checked = 0
    for producer, topic, index, kind in choices(seed):
        while callers[producer].connection.busy:  # one request in flight for each producer, so that the order of appends is known
            late.loop.pass_once()
            if late.checker.jobs:
                late.checker.check()
        data = BODIES[kind]()
        if chance.random() < 0.3 and kind == "heavy":
            sequence = sequences.get((topic, index), 0)
            data = heavy(producer_id=9, producer_epoch=0, base_sequence=sequence)
            sequences[topic, index] = sequence + COUNT
        callers[producer].send(callers[producer].frame(request((index, data), topic=topic), 9))
        immediate_callers[producer].send(immediate_callers[producer].frame(request((index, data), topic=topic), 9))
        for _ in range(chance.randrange(3)):
            late.loop.pass_once()
            if late.checker.jobs and chance.random() < 0.5:
                late.checker.check()
        plain.loop.pass_once()
        expected[producer] += errors_and_offsets(immediate_callers[producer])
        results[producer] += errors_and_offsets(callers[producer])
        checked = late.checker.checked
    late.settle()
    plain.settle()
    for producer, caller in enumerate(callers):
        results[producer] += errors_and_offsets(caller)
        expected[producer] += errors_and_offsets(immediate_callers[producer])
    assert results == expected
    for topic in topics:
        for index in range(2):
            assert partition(late, index, topic).data == partition(plain, index, topic).data
    assert checked > 10
    assert plain.checker.checked == 0
