"""A started broker on a full disk."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from broker.runtime.start import ExitCode
from protocol.batch import Record, batch_end, build, records
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.running import ANSWER_SECONDS, Client, broker, start
from tests.support.small_disk import fill

pytestmark = pytest.mark.once


def create(client: Client, name: str) -> ErrorCode:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return ErrorCode(client.ask(CreateTopicsRequest([topic], 5000), 7).topics[0].error_code)


def listed(client: Client) -> set[str]:
    reply = client.ask(MetadataRequest(None), 12)
    return {topic.name for topic in reply.topics if not topic.is_internal}


def create_until(client: Client, error: ErrorCode, acknowledged: set[str]) -> None:
    """Create topics until a reply has `error`; created topics are added to `acknowledged`."""
    until = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < until:
        name = f"topic-{time.monotonic_ns()}"
        error_code = create(client, name)
        assert error_code in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
        if error_code == ErrorCode.NONE:
            acknowledged.add(name)
        if error_code == error:
            return
        if error == ErrorCode.NONE:
            time.sleep(0.02)  # until the next retry
    raise AssertionError(f"never {error.name}")


@pytest.mark.parametrize("flush", ["always", "interval", "never"])
def test_on_a_full_disk_no_topic_is_created_and_all_acknowledged_ones_stay(small_disk: Path, flush: str) -> None:
    arguments = ("--listen", "127.0.0.1:0", "--data", str(small_disk / "data"), "--set", f"offsets.flush={flush}")
    acknowledged: set[str] = set()
    with broker(*arguments) as running, Client(running.port) as client:
        create_until(client, ErrorCode.NONE, acknowledged)
        filler = fill(small_disk)
        create_until(client, ErrorCode.KAFKA_STORAGE_ERROR, acknowledged)
        assert "is full" in running.await_line("log suspended")
        assert listed(client) == acknowledged
        assert create(client, "still-full") == ErrorCode.KAFKA_STORAGE_ERROR
        filler.unlink()
        running.await_line("log serves again")
        create_until(client, ErrorCode.NONE, acknowledged)
        assert listed(client) == acknowledged
        running.kill()
    with broker(*arguments) as running, Client(running.port) as client:
        assert listed(client) == acknowledged
        assert running.stop() == 0


def produce(client: Client, number: int) -> tuple[ErrorCode, int]:
    """Produce one record whose value is the number and padding; returns error and offset."""
    batch = build([Record(0, number, b"key", b"%d " % number + bytes(3_000))])
    request = ProduceRequest(None, -1, 5_000, [TopicProduceData("orders", [PartitionProduceData(0, batch)])])
    (part,) = client.ask(request, 9).responses[0].partition_responses
    return ErrorCode(part.error_code), part.base_offset


def fetched(client: Client) -> dict[int, int]:
    """Fetch all records; returns the number in each, by offset."""
    numbers: dict[int, int] = {}
    until = time.monotonic() + ANSWER_SECONDS
    while True:
        topic = FetchTopic(topic="orders", partitions=[FetchPartition(0, fetch_offset=len(numbers), partition_max_bytes=1 << 20)])
        reply = client.ask(FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[topic]), 12)
        (part,) = reply.responses[0].partitions
        if part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and time.monotonic() < until:  # its log is still being opened
            time.sleep(0.02)
            continue
        assert part.error_code == ErrorCode.NONE
        if not part.records:
            return numbers
        at = 0
        while at < len(part.records):
            for record in records(part.records, at):
                numbers[record.offset] = int((record.value or b"").split()[0])
            at = batch_end(part.records, at)


def test_on_a_full_disk_producers_get_a_retriable_error_and_acknowledged_records_stay(small_disk: Path) -> None:
    arguments = ("--listen", "127.0.0.1:0", "--data", str(small_disk / "data"))
    acknowledged: dict[int, int] = {}
    numbers = iter(range(10_000))

    def produce_until(client: Client, expected: ErrorCode) -> None:
        until = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < until:
            number = next(numbers)
            error, offset = produce(client, number)
            assert error in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
            if error == ErrorCode.NONE:
                assert offset not in acknowledged
                acknowledged[offset] = number
            if error == expected:
                return
        raise AssertionError(f"never {expected.name}")

    with broker(*arguments) as running, Client(running.port) as client:
        assert create(client, "orders") == ErrorCode.NONE
        produce_until(client, ErrorCode.NONE)
        filler = fill(small_disk)
        produce_until(client, ErrorCode.KAFKA_STORAGE_ERROR)
        assert fetched(client) == acknowledged  # the partition stays readable
        assert produce(client, next(numbers))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        filler.unlink()
        produce_until(client, ErrorCode.NONE)
        assert fetched(client) == acknowledged
        running.kill()
    with broker(*arguments) as running, Client(running.port) as client:
        assert fetched(client) == acknowledged
        produce_until(client, ErrorCode.NONE)
        assert running.stop() == 0


def test_the_broker_does_not_start_on_a_full_disk(small_disk: Path) -> None:
    fill(small_disk)
    process = start("--data", str(small_disk / "data"), "--listen", "127.0.0.1:0")
    _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (ExitCode.DIRECTORY, f"tenure: data directory {small_disk / 'data'}: No space left on device\n")

