"""`tenure consume` while the leader of one partition does not answer: the others are read, and that one is named."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from protocol.batch import build
from protocol.batch_record import Record
from protocol.message import Message
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponsePartition, MetadataResponseTopic
from tests.cli.conftest import Tenure
from tests.cli.fake_brokers import Close, FakeBroker, metadata_of

pytestmark = pytest.mark.once

ID = b"t" * 16
RECORDS = 3  # in each partition
LATEST = -1


class Pair:
    """Brokers 0 and 1, each the leader of the partition of its number of topic t."""

    def __init__(self) -> None:
        self.brokers = [FakeBroker(), FakeBroker()]
        self.leaderless = 0  # so many answers to Metadata have no leader of partition 1
        self.fetches_of_1: list[int] = []  # the offsets that were fetched from partition 1
        self.asked_of_1: list[int] = []  # the timestamps of ListOffsets for it
        for number, broker in enumerate(self.brokers):
            broker.answers |= {
                MetadataRequest.API_KEY: metadata_of(*self.brokers, topics=self.topics),
                ListOffsetsRequest.API_KEY: self.list_offsets,
                FetchRequest.API_KEY: partial(self.fetch, number),
            }

    def topics(self, request: Any) -> list[MetadataResponseTopic]:
        leaders = [0, -1 if self.leaderless > 0 else 1]
        self.leaderless -= 1
        return [MetadataResponseTopic(0, "t", ID, False, [MetadataResponsePartition(0, number, leader) for number, leader in enumerate(leaders)])]

    def list_offsets(self, request: Any, version: int) -> Message:
        (partition,) = request.topics[0].partitions
        if partition.partition_index:
            self.asked_of_1.append(partition.timestamp)
        offset = {-2: 0, LATEST: RECORDS}.get(partition.timestamp, 1)  # the second record is the first since any time
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", [ListOffsetsPartitionResponse(partition.partition_index, 0, -1, offset)])])

    def fetch(self, broker: int, request: Any, version: int) -> Message:
        (partition,) = request.topics[0].partitions
        if broker:
            self.fetches_of_1.append(partition.fetch_offset)
        records = b""
        if partition.fetch_offset < RECORDS:
            records = bytes(build([Record(number, 1_700_000_000_000, None, f"{broker}-{number}".encode(), []) for number in range(RECORDS)]))
        else:
            time.sleep(0.05)  # as a leader without new records does
        data = PartitionData(partition.partition, 0, RECORDS, RECORDS, 0, aborted_transactions=[], records=records)
        return FetchResponse(responses=[FetchableTopicResponse(ID, "t", [data])])


@pytest.fixture
def pair() -> Iterator[Pair]:
    brokers = Pair()
    yield brokers
    for broker in brokers.brokers:
        broker.close()


@pytest.fixture
def consume(pair: Pair, tenure: Tenure) -> Tenure:
    return lambda *words, stdin="": tenure("consume", "t", "--timeout", "2", "--bootstrap", pair.brokers[0].address, *words)


def test_a_partition_without_a_leader_is_named_and_the_others_are_read(pair: Pair, consume: Tenure) -> None:
    pair.leaderless = 1_000
    done = consume("--from", "earliest", "--until", "end")
    assert (done.code, done.out) == (75, "0-0\n0-1\n0-2\n")
    assert done.err == "tenure: t:1 not read: no leader at the moment; try again\n"


def test_the_last_line_of_json_has_what_was_not_read(pair: Pair, consume: Tenure) -> None:
    pair.leaderless = 1_000
    lines = [json.loads(line) for line in consume("--from", "earliest", "--until", "end", "--json").out.splitlines()]
    assert [line.get("offset") for line in lines] == [0, 1, 2, None]
    assert lines[-1]["error"]["code"] == "leader-not-available"
    assert [error["message"] for error in lines[-1]["errors"]] == ["t:1 not read: no leader at the moment; try again"]


def test_a_partition_whose_leader_comes_back_in_time_is_read_too(pair: Pair, consume: Tenure) -> None:
    pair.leaderless = 3
    done = consume("--from", "earliest", "--until", "end", "--timeout", "20")
    assert (done.code, done.err, sorted(done.out.split())) == (0, "", ["0-0", "0-1", "0-2", "1-0", "1-1", "1-2"])


def test_without_an_end_a_partition_is_tried_again_and_said_to_be_back(pair: Pair, consume: Tenure) -> None:
    pair.leaderless = 3
    done = consume("--from", "earliest", "--limit", "6", "--timeout", "20")
    assert (done.code, len(done.out.split())) == (0, 6)
    assert done.err == "tenure: t 1 cannot be read at the moment, and will be when it can: no leader at the moment\ntenure: t 1 is read now\n"


def test_what_is_written_before_a_leader_is_back_is_not_skipped(pair: Pair, consume: Tenure) -> None:
    """From latest: the partition begins with the records since the start of the command, not at the end that it has when its leader is back."""
    pair.leaderless = 2
    before_ms = time.time_ns() // 1_000_000
    done = consume("--from", "latest", "--limit", "2", "--timeout", "20")
    assert (done.code, done.out) == (0, "1-1\n1-2\n")
    (asked,) = {timestamp for timestamp in pair.asked_of_1 if timestamp >= 0}
    assert before_ms <= asked <= time.time_ns() // 1_000_000


@pytest.mark.parametrize("answer", ["closed", "silent"])
def test_a_leader_that_fails_while_it_is_read_is_named(pair: Pair, consume: Tenure, answer: str) -> None:
    def fail(request: Any, version: int) -> Message | None:
        if answer == "closed":
            raise Close
        return None

    pair.brokers[1].answers[FetchRequest.API_KEY] = fail
    begin = time.monotonic()
    done = consume("--from", "earliest", "--until", "end", "--timeout", "3")
    assert time.monotonic() - begin < 60
    assert (done.code, done.out) == (75, "0-0\n0-1\n0-2\n")
    assert done.err.startswith("tenure: t:1 not read to the end: ")
    assert done.err.count("\n") == 1


def test_if_no_partition_has_a_leader_nothing_is_read(pair: Pair, consume: Tenure) -> None:
    pair.leaderless = 1_000
    done = consume("--partition", "1", "--from", "earliest")
    assert (done.code, done.out, done.err) == (75, "", "tenure: t-1: no leader at the moment; try again\n")
