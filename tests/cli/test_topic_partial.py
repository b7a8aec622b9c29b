"""`tenure topic list --long` and `topic describe` while leaders are dead, frozen or being replaced: unknown values are called unknown."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from protocol.message import Message
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse, DescribeConfigsResult
from protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from protocol.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponsePartition, MetadataResponseTopic
from tests.cli.conftest import Tenure
from tests.cli.fake_brokers import FakeBroker, metadata_of

pytestmark = pytest.mark.once  # no dependence on the Python version


class Topics:
    """Brokers 0 and 1. Topic `split` has a partition on each, topic `first` one on broker 0; `leaders` of the partitions of `split`."""

    def __init__(self, first: FakeBroker, second: FakeBroker) -> None:
        self.brokers = (first, second)
        self.leaders = [0, 1]
        for broker in self.brokers:
            broker.answers = {
                MetadataRequest.API_KEY: metadata_of(first, second, topics=self._topics),
                ListOffsetsRequest.API_KEY: self._offsets,
                DescribeLogDirsRequest.API_KEY: self._sizes,
                DescribeConfigsRequest.API_KEY: lambda request, version: DescribeConfigsResponse(
                    results=[DescribeConfigsResult(0, None, 2, resource.resource_name, []) for resource in request.resources]
                ),
            }

    def _topics(self, request: Any) -> list[MetadataResponseTopic]:
        leaders = {"split": self.leaders, "first": [0]}
        names = list(leaders) if request.topics is None else [topic.name for topic in request.topics]
        return [
            MetadataResponseTopic(0, name, bytes(16), False, [
                MetadataResponsePartition(0 if leader >= 0 else 5, at, leader, 0, [max(leader, 0)], [leader] if leader >= 0 else [])
                for at, leader in enumerate(leaders[name])
            ])
            for name in names
        ]  # fmt: skip

    def _offsets(self, request: Any, version: int) -> Message:
        return ListOffsetsResponse(topics=[
            ListOffsetsTopicResponse(topic.name, [
                ListOffsetsPartitionResponse(partition.partition_index, 0, -1, 5 if partition.timestamp == -1 else 2)
                for partition in topic.partitions
            ])
            for topic in request.topics
        ])  # fmt: skip

    def _sizes(self, request: Any, version: int) -> Message:
        topics = [DescribeLogDirsTopic(topic.topic, [DescribeLogDirsPartition(number, 100) for number in topic.partitions]) for topic in request.topics]
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(0, "/data", topics)])

    def freeze(self, broker: int) -> None:
        self.brokers[broker].answers |= {kind: lambda request, version: None for kind in (ListOffsetsRequest.API_KEY, DescribeLogDirsRequest.API_KEY)}


@pytest.fixture
def topics() -> Iterator[Topics]:
    with FakeBroker() as first, FakeBroker() as second:
        yield Topics(first, second)


def rows(out: str) -> list[list[str]]:
    return [line.split(None, 5) for line in out.splitlines()]


@pytest.mark.parametrize("frozen", [True, False])
def test_a_topic_whose_leader_does_not_answer_is_not_ok(tenure: Tenure, topics: Topics, frozen: bool) -> None:
    if frozen:
        topics.freeze(1)
    else:
        topics.brokers[1].close()
    began = time.monotonic()
    options = ("--bootstrap", topics.brokers[0].address, "--timeout", "1")
    result = tenure("topic", "list", "--long", *options)
    assert time.monotonic() - began < 3
    assert result.code == 75
    assert rows(result.out)[1:] == [["first", "1", "1", "3", "100", "B  ok"], ["split", "2", "1", "-", "-", "1 unknown"]]
    assert result.err == "tenure: the contents of split:1 are unknown: the broker that leads it cannot be reached; try again\n"
    value = json.loads(tenure("topic", "list", "--long", "--json", *options).out)
    assert [(entry["records"], entry["unknown_partitions"]) for entry in value["topics"]] == [(3, 0), (None, 1)]
    assert value["error"]["code"] == "network-exception"
    described = tenure("topic", "describe", "split", *options)
    assert (described.code, described.err) == (75, result.err)
    assert [line.split()[4:] for line in described.out.splitlines()[3:5]] == [["2", "5", "3", "100", "B"], ["-", "-", "-", "-"]]


def test_a_partition_without_a_leader_is_named(tenure: Tenure, topics: Topics) -> None:
    topics.leaders = [0, -1]
    result = tenure("topic", "list", "--long", "--bootstrap", topics.brokers[0].address, "--timeout", "0.5")
    assert (result.code, result.err) == (75, "tenure: the contents of split:1 are unknown: no leader at the moment; try again\n")
    assert rows(result.out)[2] == ["split", "2", "1", "-", "-", "1 without leader, 1 under-replicated"]


def test_the_contents_are_known_when_another_broker_has_taken_over(tenure: Tenure, topics: Topics) -> None:
    topics.brokers[1].close()
    began = time.monotonic()
    offsets = topics.brokers[0].answers[ListOffsetsRequest.API_KEY]

    def answer(request: Any, version: int) -> Any:
        topics.leaders = [0, 0]
        return offsets(request, version)

    topics.brokers[0].answers[ListOffsetsRequest.API_KEY] = answer
    result = tenure("topic", "list", "--long", "--bootstrap", topics.brokers[0].address)
    assert (result.code, result.err, rows(result.out)[2][:5]) == (0, "", ["split", "2", "1", "6", "200"])
    assert time.monotonic() - began < 15


def test_a_refused_size_is_not_waited_for(tenure: Tenure, topics: Topics) -> None:
    for broker in topics.brokers:
        del broker.answers[DescribeLogDirsRequest.API_KEY]
    result = tenure("topic", "list", "--long", "--bootstrap", topics.brokers[0].address)
    assert (result.code, result.err, rows(result.out)[2]) == (0, "", ["split", "2", "1", "6", "-", "ok"])
