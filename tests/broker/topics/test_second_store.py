"""Topics over a second store: slow, failing, in memory. broker/topics treats both stores alike."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.api import delete_records, fetch, list_offsets
from broker.net.long_requests import LongRequests
from broker.runtime.node import Node
from broker.security.authorizer import Authorizer
from broker.settings.load import load_config
from broker.topics.partition import Partition
from broker.topics.partitions import Partitions
from broker.topics.retention import Retention
from broker.topics.waiting_fetches import ParkedFetches
from protocol.batch import Record, build, read_header
from protocol.errors import ErrorCode
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from storage import LogId, TopicLog, Unreadable
from tests.support.memory_logs import MemoryTopicLog, MemoryTopicStore
from tests.support.produce_harness import ProduceClient, ProduceHarness

VERSION = 9


class SecondHarness(ProduceHarness):
    """The real partitions, over logs that are not files."""

    partitions: Partitions

    def __init__(self, store: MemoryTopicStore, **topics: int) -> None:
        self.store = store
        super().__init__({name: (partitions, {}) for name, partitions in topics.items()}, ms=1_000)
        fetches = ParkedFetches(self.turn, self.clock)
        self.fetches = fetches
        parts: Any = SimpleNamespace(
            leaders=None,
            status=dict,
            drain=None,
            config=SimpleNamespace(fetch_max_bytes=1 << 20),
            node=Node(1, "cluster"),
            clock=self.clock,
            authorizer=Authorizer(),
            topics=self.topics,
            partitions=self.partitions,
            topic_store=store,
            fetches=fetches,
            long_requests=LongRequests(self.turn),
        )
        self.dispatch.add_routes(fetch.route(parts), list_offsets.route(parts), delete_records.route(parts))
        for name, count in topics.items():
            for index in range(count):
                self.partitions.find(name, index)

    def make_partitions(self) -> Partitions:
        return Partitions(self.topics, cast(Any, self.registry), self.store, cast(Any, self.loop), {})

    def log(self, name: str, index: int = 0) -> MemoryTopicLog:
        return self.store.logs[LogId(name, index)]

    def find(self, name: str, index: int = 0) -> Partition:
        partition = self.partitions.find(name, index)
        assert partition is not None
        return partition


def batch(*values: str, producer: int = -1, sequence: int = -1) -> bytes:
    records = [Record(at, 1_000 + at, b"k", value.encode(), []) for at, value in enumerate(values)]
    return build(records, producer_id=producer, producer_epoch=0 if producer >= 0 else -1, base_sequence=sequence)


def produce(name: str, *batches: tuple[int, bytes]) -> ProduceRequest:
    return ProduceRequest(None, -1, 5_000, [TopicProduceData(name, [PartitionProduceData(index, data) for index, data in batches])])


def answers(caller: ProduceClient, request: ProduceRequest, frames: list[bytes]) -> list[list[tuple[int, int]]]:
    """Error and offset of each partition, reply by reply."""
    replies = [caller.read(request, VERSION, frame) for frame in frames]
    return [[(part.error_code, part.base_offset) for topic in reply.responses for part in topic.partition_responses] for reply in replies]


def test_a_batch_is_answered_after_a_slow_log_committed_it() -> None:
    harness = SecondHarness(MemoryTopicStore(immediate=False), t=2)
    caller = harness.caller()
    request = produce("t", (0, batch("a", "b")), (1, batch("c")))
    caller.send(caller.frame(request, VERSION))
    harness.settle()
    assert caller.replies() == []
    harness.log("t", 1).write_next()
    assert caller.replies() == []
    assert harness.find("t").high_watermark == 0
    harness.log("t", 0).write_next()
    assert answers(caller, request, caller.replies()) == [[(0, 0), (0, 0)]]
    assert (harness.find("t").high_watermark, harness.find("t", 1).high_watermark) == (2, 1)


def test_batches_of_many_connections_are_under_way_to_a_slow_log_together_and_in_order() -> None:
    harness = SecondHarness(MemoryTopicStore(immediate=False), t=1)
    callers = [harness.caller() for _ in range(4)]
    requests = [produce("t", (0, batch(*"xy"[: 1 + number % 2]))) for number in range(4)]
    for caller, request in zip(callers, requests, strict=True):
        caller.send(caller.frame(request, VERSION))
    harness.settle()
    assert len(harness.log("t").waiting) == 4
    replies = []
    for _ in range(4):
        harness.log("t").write_next()
        replies += [answers(caller, request, caller.replies()) for caller, request in zip(callers, requests, strict=True)]
    assert [reply for reply in replies if reply] == [[[(0, 0)]], [[(0, 1)]], [[(0, 3)]], [[(0, 4)]]]


def test_the_next_batch_of_a_producer_waits_for_the_previous_reply() -> None:
    harness = SecondHarness(MemoryTopicStore(immediate=False), t=1)
    callers = [harness.caller() for _ in range(4)]
    batches = [batch("a", producer=7, sequence=0), batch("b", producer=8, sequence=0), batch("c", producer=7, sequence=1), batch("d")]
    requests = [produce("t", (0, data)) for data in batches]
    for caller, request in zip(callers, requests, strict=True):
        caller.send(caller.frame(request, VERSION))
    harness.settle()
    log = harness.log("t")
    assert len(log.waiting) == 2
    log.append_failure = "no quorum"
    log.write_next()
    log.append_failure = ""
    harness.settle()
    while log.waiting:
        log.write_next()
        harness.settle()
    replies = [answers(caller, request, caller.replies()) for caller, request in zip(callers, requests, strict=True)]
    # The refused batch left nothing known about producer 7, so any first sequence is accepted.
    assert replies == [[[(ErrorCode.KAFKA_STORAGE_ERROR, -1)]], [[(0, 0)]], [[(0, 1)]], [[(0, 2)]]]


def test_a_slow_log_that_refuses_one_batch_accepts_the_next() -> None:
    harness = SecondHarness(MemoryTopicStore(immediate=False), t=1)
    caller, second_caller = harness.caller(), harness.caller()
    request = produce("t", (0, batch("a")))
    for client in (caller, second_caller):
        client.send(client.frame(request, VERSION))
    harness.settle()
    harness.log("t").append_failure = "no quorum"
    harness.log("t").write_next()
    harness.log("t").append_failure = ""
    harness.settle()
    harness.log("t").write_next()
    assert answers(caller, request, caller.replies()) == [[(ErrorCode.KAFKA_STORAGE_ERROR, -1)]]
    assert answers(second_caller, request, second_caller.replies()) == [[(0, 0)]]


def test_a_duplicate_batch_in_flight_to_a_slow_log_is_stored_once() -> None:
    harness = SecondHarness(MemoryTopicStore(immediate=False), t=1)
    callers = [harness.caller(), harness.caller()]
    request = produce("t", (0, batch("a", producer=7, sequence=0)))
    for caller in callers:
        caller.send(caller.frame(request, VERSION))
    harness.settle()
    harness.log("t").write_next()
    harness.settle()
    assert harness.log("t").waiting == []
    assert [answers(caller, request, caller.replies()) for caller in callers] == [[[(0, 0)]], [[(0, 0)]]]
    assert harness.log("t").records.batches == 1


@pytest.mark.parametrize("immediate", [True, False])
def test_a_log_that_breaks_suspends_its_partition_until_it_is_recovered(immediate: bool) -> None:
    harness = SecondHarness(MemoryTopicStore(immediate), t=2)
    caller = harness.caller()
    log = harness.log("t")

    def ask() -> list[list[tuple[int, int]]]:
        request = produce("t", (0, batch("a")))
        caller.send(caller.frame(request, VERSION))
        harness.settle()
        if log.waiting:
            log.write_next()
        return answers(caller, request, caller.replies())

    assert ask() == [[(0, 0)]]
    log.unusable_reason = "gone"
    assert ask() == [[(ErrorCode.KAFKA_STORAGE_ERROR, -1)]]
    assert harness.find("t").error == ErrorCode.KAFKA_STORAGE_ERROR
    assert not harness.find("t", 1).error
    harness.loop.jump(1)
    log.unusable_reason = ""
    log.recovering.pop()(None)
    assert ask() == [[(0, 1)]]


def test_a_stop_answers_appends_in_flight_and_ignores_their_later_outcome() -> None:
    harness = SecondHarness(MemoryTopicStore(immediate=False), t=1)
    caller, second_caller = harness.caller(), harness.caller()
    request = produce("t", (0, batch("a")))
    for client in (caller, second_caller):
        client.send(client.frame(request, VERSION))
    harness.settle()
    harness.batch_queues.stop()
    refused = [[(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]]
    assert [answers(client, request, client.replies()) for client in (caller, second_caller)] == [refused, refused]
    harness.log("t").write_next()
    harness.settle()
    assert caller.replies() == second_caller.replies() == []
    assert harness.batch_queues._bytes == 0
    assert not harness.batch_queues._waiting


@pytest.mark.usefixtures("planted_defect")
def test_a_defect_in_an_append_answers_only_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = SecondHarness(MemoryTopicStore(immediate=False), t=1)
    log = harness.log("t")
    caller, second_caller = harness.caller(), harness.caller()
    request = produce("t", (0, batch("a")))

    def broken(data: bytearray, done: Any) -> int:
        MemoryTopicLog.append(log, data, done)
        raise RuntimeError("a defect of the store")

    with monkeypatch.context() as patched:
        patched.setattr(log, "append", broken)
        caller.send(caller.frame(request, VERSION))
        harness.settle()
    assert answers(caller, request, caller.replies()) == [[(ErrorCode.UNKNOWN_SERVER_ERROR, -1)]]
    second_caller.send(second_caller.frame(request, VERSION))
    harness.settle()
    log.write_next()
    assert second_caller.replies() == []
    log.write_next()
    assert answers(second_caller, request, second_caller.replies()) == [[(0, 1)]]


def test_fetches_wait_for_the_high_watermark_of_a_slow_log() -> None:
    harness = SecondHarness(MemoryTopicStore(immediate=False), t=1)
    writer, reader = harness.caller(), harness.caller()
    topic = FetchTopic(topic="t", partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)])
    request = FetchRequest(max_wait_ms=10_000, min_bytes=1, max_bytes=1 << 20, topics=[topic])
    reader.send(reader.frame(request, 11))
    writer.send(writer.frame(produce("t", (0, batch("a", "b"))), VERSION))
    harness.settle()
    assert reader.replies() == []
    harness.log("t").write_next()
    harness.settle()
    (frame,) = reader.replies()
    (part,) = reader.read(request, 11, frame).responses[0].partitions
    assert (part.error_code, part.high_watermark) == (0, 2)
    assert read_header(part.records, 0).next_offset == 2


@pytest.mark.parametrize("immediate", [True, False])
def test_a_partition_with_an_unreadable_log_does_not_affect_others(immediate: bool) -> None:
    store = MemoryTopicStore(immediate)
    store.unreadable[LogId("t", 1)] = Unreadable("no quorum", damaged=False)
    harness = SecondHarness(store, t=2)
    assert (harness.find("t").error, harness.find("t", 1).error) == (0, ErrorCode.KAFKA_STORAGE_ERROR)
    store.unreadable.clear()
    harness.loop.jump(15)
    assert not harness.find("t", 1).error


def test_offsets_are_found_and_records_deleted_in_any_store() -> None:
    harness = SecondHarness(MemoryTopicStore(), t=1)
    caller = harness.caller()
    for value in "abc":
        assert caller.ask(produce("t", (0, batch(value, value))), VERSION).responses[0].partition_responses[0].error_code == 0

    def offset(timestamp: int) -> tuple[int, int]:
        request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, timestamp)])])
        (part,) = caller.ask(request, 7).topics[0].partitions
        return part.error_code, part.offset

    assert [offset(timestamp) for timestamp in (-2, -1, 0, 5_000)] == [(0, 0), (0, 6), (0, 0), (0, -1)]
    deleted = caller.ask(DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 3)])], 1_000), 2)
    assert deleted.topics[0].partitions[0].low_watermark == 3
    assert harness.store.durable_starts == {("t", 0): 3}
    assert offset(-2) == (0, 3)


def test_a_log_start_is_answered_when_it_is_durable() -> None:
    store = MemoryTopicStore()
    harness = SecondHarness(store, t=1)
    caller = harness.caller()
    caller.ask(produce("t", (0, batch("a", "b"))), VERSION)
    store.held = True
    request = DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, -1)])], 1_000)
    caller.send(caller.frame(request, 2))
    assert caller.replies() == []
    store.waiting.pop()()
    (frame,) = caller.replies()
    assert caller.read(request, 2, frame).topics[0].partitions[0].low_watermark == 2


def test_retention_and_checkpoints_work_in_any_store() -> None:
    store = MemoryTopicStore()
    harness = SecondHarness(store, t=1)
    caller = harness.caller()
    for _ in range(5):
        caller.ask(produce("t", (0, batch("a"))), VERSION)
    partition = harness.find("t")
    harness.topics.alter("t", {"retention.bytes": str(2 * harness.log("t").records.size // 5)})
    harness.partitions.altered(harness.topics.by_name["t"])
    config = load_config(settings=["log.retention.check.interval.ms=1000"], environ={})
    retention = Retention(config, harness.partitions, store, cast(Any, harness.loop), lambda: 2_000, lambda: 0.0)  # a round is one slice
    harness.loop.jump(1)
    assert (partition.start_offset, partition.high_watermark) == (3, 5)
    harness.loop.jump(60)
    assert store.points == {("t", 0): 5}
    assert store.durable_starts == {("t", 0): 3}
    retention.stop()


def test_the_log_of_a_deleted_topic_is_removed_when_no_job_uses_it() -> None:
    store = MemoryTopicStore()
    harness = SecondHarness(store, t=1)
    log = harness.log("t")
    log.busy = True
    harness.registry.readable = True  # type: ignore[attr-defined]
    harness.partitions.deleted(harness.topics.delete("t", 0))
    harness.registry.release_replies()
    assert store.set_aside_logs == []
    harness.loop.jump(1)
    assert store.set_aside_logs == [LogId("t", 0)]
    assert store.logs == {}


def test_a_slow_log_stores_and_answers_like_an_immediate_log() -> None:
    """Both brokers get the same random requests, with duplicates, refusals and repeated layouts, and must end with equal replies and records."""
    for seed in range(30):
        chance = random.Random(seed)
        harnesses = [SecondHarness(MemoryTopicStore(immediate), t=2, u=1) for immediate in (True, False)]
        callers = [[harness.caller() for _ in range(3)] for harness in harnesses]
        sequences: dict[tuple[str, int, int], int] = {}
        for _ in range(60):
            number = chance.randrange(3)
            name = chance.choice("ttu")
            index = chance.randrange(2) if name == "t" else 0
            producer = chance.choice((-1, -1, 7, 8))
            key = name, index, producer
            duplicate = chance.random() < 0.2
            sequence = max(sequences.get(key, 0) - duplicate, 0) if producer >= 0 else -1
            if producer >= 0 and not (duplicate and key in sequences):
                sequences[key] = sequence + 1
            request = produce(name, (index, batch("v", producer=producer, sequence=sequence)))
            append_failure = "full" if chance.random() < 0.1 and producer < 0 else ""
            replies = []
            for harness, clients in zip(harnesses, callers, strict=True):
                log = harness.log(name, index)
                log.append_failure = append_failure
                clients[number].send(clients[number].frame(request, VERSION))
                harness.settle()
                while log.waiting:
                    log.write_next()
                    harness.settle()
                log.append_failure = ""
                replies.append(answers(clients[number], request, clients[number].replies()))
            assert replies[0] == replies[1]
        logs = [{id: log.records.bytes_at(0, 1 << 30) for id, log in harness.store.logs.items()} for harness in harnesses]
        assert logs[0] == logs[1]
        assert any(logs[0].values())


class BusyStore(MemoryTopicStore):
    """A store in which another node has the logs of deleted topics open, until the test says otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: OSError | None = BlockingIOError("another node has its log open")
        self.attempts = 0

    def set_aside(self, id: LogId, topic_id: bytes, opened: TopicLog | None, claimed: bool, delete_delay_ms: int) -> None:
        self.attempts += 1
        if self.failure is not None:
            raise self.failure


@pytest.mark.parametrize(("failure", "seconds"), [(BlockingIOError("another node has its log open"), 0.1), (OSError("input/output error"), 16)])
def test_a_new_topic_waits_only_as_long_as_another_node_has_the_log_of_the_deleted_one_open(failure: OSError, seconds: float) -> None:
    store = BusyStore()
    store.failure = failure
    harness = SecondHarness(store, other=1)
    harness.topics.delete(harness.topics.create("t", 1, {}, 0).name, 0)
    topic = harness.topics.create("t", 1, {}, 0)
    harness.registry.readable = False  # type: ignore[attr-defined]
    harness.partitions.open_all()
    partition = harness.partitions.of_topic(topic)[0]
    harness.find("t")
    harness.loop.run()
    assert (partition.opened, store.attempts) == (False, 1)
    store.failure = None
    harness.loop.jump(seconds / 4)
    assert not partition.opened
    harness.loop.jump(seconds)
    assert partition.opened


def test_attempts_at_a_log_that_stays_open_elsewhere_become_rare() -> None:
    store = BusyStore()
    harness = SecondHarness(store, other=1)
    harness.topics.delete(harness.topics.create("t", 1, {}, 0).name, 0)
    harness.partitions.open_all()
    for _ in range(600):
        harness.loop.jump(0.1)
    assert 8 < store.attempts < 16
