"""Topics, produce and consume with clusters as old as Kafka 2.4, and with several brokers whose leaders move."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from cli.arguments import addresses
from cli.client import Cluster
from cli.records.drafts import Draft
from cli.records.fetching import Fetcher
from cli.records.positions import begin_offsets, parse_position
from cli.records.sending import Sender, Stopped
from cli.topics.log_offsets import EARLIEST, LATEST
from protocol.batch import Record, build, read_header
from protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponsePartition, MetadataResponseTopic
from protocol.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse
from tests.cli.conftest import Tenure
from tests.cli.consumers import poll_until
from tests.cli.fake_brokers import FakeBroker, metadata_of, old_cluster
from tests.running import wait_until

pytestmark = pytest.mark.once  # no dependence on the Python version


@pytest.mark.parametrize("release", [(2, 4), (2, 8), (3, 3)])
def test_topic_commands_work_with_the_versions_of_an_old_kafka(bootstrap: str, tenure: Tenure, name: str, release: tuple[int, int]) -> None:
    with old_cluster(bootstrap, release) as old:

        def ask(*arguments: str, **more: str) -> Any:
            result = tenure(*arguments, "--bootstrap", old.address, **more)
            assert result.code == 0, result.err
            return result.out

        ask("topic", "create", name, "--partitions", "2", "--set", "retention.ms=86400000")
        assert ask("produce", name, "--compression", "zstd", "--partition", "1", "--json-lines", stdin='{"key": "k", "value": "v", "headers": {"h": "1"}}\n')
        assert ask("consume", name, "--from-beginning", "--no-follow", "--long").endswith(f"Z  {name}-1@0  k: v  [h=1]\n")
        assert ask("consume", name, "--group", name, "--instance", "desk", "--from-beginning", "--no-follow") == "v\n"
        assert ask("consume", name, "--group", name, "--instance", "desk", "--from-beginning", "--no-follow", "--leave") == ""
        assert name in ask("topic", "list", "--long")
        assert "partitions: 2 -> 3" in ask("topic", "alter", name, "--partitions", "3")
        assert "retention.ms: 86400000 -> its default" in ask("topic", "config", "unset", name, "retention.ms")
        described = json.loads(ask("topic", "describe", name, "--json"))["topics"][0]
        assert [partition["records"] for partition in described["partitions"]] == [0, 1, 0]
        assert described["settings"] == []
        assert (described["id"] is None) == (release < (2, 8))
        assert f"offsets of group {name}" in ask("topic", "delete", name)
        versions = dict(old.requests)
        assert versions[FetchRequest.API_KEY] == min(old.versions[1][1], 17)


# Several brokers


class BrokerPair:
    """Two brokers. The first leads partition 0 of topic t until it replies that it does not lead any more."""

    def __init__(self) -> None:
        self.brokers = [FakeBroker(), FakeBroker()]
        self.leaders = {0: 0, 1: 1}
        self.log: dict[int, list[bytes]] = {0: [], 1: []}
        self.sequences: list[tuple[int, int, int]] = []  # broker, partition, first sequence
        for number, broker in enumerate(self.brokers):
            broker.answers |= {
                MetadataRequest.API_KEY: metadata_of(*self.brokers, topics=lambda request: [self.topic()]),
                InitProducerIdRequest.API_KEY: lambda request, version: InitProducerIdResponse(producer_id=7, producer_epoch=0),
                FetchRequest.API_KEY: partial(self.fetch, number),
                ProduceRequest.API_KEY: partial(self.produce, number),
            }

    def topic(self) -> MetadataResponseTopic:
        partitions = [MetadataResponsePartition(5 if leader < 0 else 0, partition, leader, 0, [0, 1], [0, 1]) for partition, leader in self.leaders.items()]
        return MetadataResponseTopic(0, "t", bytes(15) + b"\1", False, partitions)

    def must_refuse(self, partition: int, number: int) -> bool:
        """Whether this broker must refuse the request because broker 1 leads now; from then on Metadata names that leader."""
        if partition == 0 and number == 0:
            self.leaders[0] = 1
            return True
        return False

    def fetch(self, number: int, request: FetchRequest, version: int) -> FetchResponse:
        topic = request.topics[0]
        partitions = []
        for partition in topic.partitions:
            if self.must_refuse(partition.partition, number):
                partitions.append(PartitionData(partition.partition, 6))
            else:
                records = [Record(at, 0, None, b"%d-%d" % (partition.partition, at)) for at in range(partition.fetch_offset, 3)]
                data = build(records, base_offset=partition.fetch_offset) if records else b""
                partitions.append(PartitionData(partition.partition, 0, 3, records=data))
        if not any(data.records for data in partitions):
            time.sleep(0.05)  # as a broker that waits for records
        return FetchResponse(responses=[FetchableTopicResponse(topic.topic_id, topic.topic, partitions)])

    def produce(self, number: int, request: ProduceRequest, version: int) -> ProduceResponse | None:
        topic = request.topic_data[0]
        answers = []
        for data in topic.partition_data:
            header = read_header(data.records or b"", 0)
            self.sequences.append((number, data.index, header.base_sequence))
            answers.append(PartitionProduceResponse(data.index, 6) if self.must_refuse(data.index, number) else PartitionProduceResponse(data.index, 0, header.base_sequence))
        return ProduceResponse([TopicProduceResponse(topic.name, answers)]) if request.acks else None

    def close(self) -> None:
        for broker in self.brokers:
            broker.close()


@pytest.fixture
def pair() -> Iterator[BrokerPair]:
    brokers = BrokerPair()
    yield brokers
    brokers.close()


def test_fetches_follow_moved_leaders_and_run_in_parallel(pair: BrokerPair) -> None:
    with Cluster(addresses(pair.brokers[1].address), 5) as cluster:
        fetcher = Fetcher(cluster, lambda text: None)
        fetcher.assign({("t", 0): 1, ("t", 1): 0})
        assert sorted(poll_until(fetcher, 5)) == ["0-1", "0-2", "1-0", "1-1", "1-2"]
        fetcher.close()


def test_a_partition_without_a_leader_does_not_delay_others(pair: BrokerPair) -> None:
    pair.leaders[0] = -1
    with Cluster(addresses(pair.brokers[0].address), 5) as cluster:
        fetcher = Fetcher(cluster, lambda text: None)
        fetcher.assign({("t", 0): 0, ("t", 1): 2})
        wait_until(lambda: fetcher.poll(0.1) is not None and fetcher.positions["t", 1] == 3)
        pair.leaders[0] = 1
        wait_until(lambda: fetcher.poll(0.1) is not None and fetcher.positions["t", 0] == 3)
        fetcher.close()


def test_a_batch_is_resent_to_a_new_leader_with_its_sequence(pair: BrokerPair) -> None:
    with Cluster(addresses(pair.brokers[0].address), 5) as cluster:
        sender = Sender(cluster, "t")
        sender.send([(0, Draft(1, None, b"a")), (0, Draft(2, None, b"b")), (1, Draft(3, None, b"c"))])
        sender.send([(0, Draft(4, None, b"d"))])
    assert pair.sequences == [(0, 0, 0), (1, 1, 0), (1, 0, 0), (1, 0, 2)]
    assert (sender.sent[0].records, sender.sent[0].first, sender.sent[0].last) == (3, 0, 2)


@pytest.mark.parametrize("acks", [-1, 1, 0])
def test_producing_continues_when_a_new_leader_takes_some_time(pair: BrokerPair, acks: int) -> None:
    with Cluster(addresses(pair.brokers[1].address), 5) as cluster:
        sender = Sender(cluster, "t", acks=acks)
        sender.send([(1, Draft(1, None, b"a"))])
        pair.leaders[1] = 0
        cluster.topics(["t"], refresh=True)
        pair.brokers[0].close()
        threading.Timer(0.7, pair.leaders.update, [{1: 1}]).start()
        sender.send([(1, Draft(2, None, b"b"))])
    assert sender.records == 2
    wait_until(lambda: len(pair.sequences) >= 2)  # with acks=0 there is no reply to wait for
    assert [broker for broker, _, _ in pair.sequences] == [1, 1]


def test_a_batch_without_an_answer_is_sent_to_the_next_leader_within_one_timeout(pair: BrokerPair) -> None:
    produce = pair.brokers[0].answers[ProduceRequest.API_KEY]

    def lose(request: Any, version: int) -> None:
        produce(request, version)
        pair.leaders[0] = 1

    pair.brokers[0].answers[ProduceRequest.API_KEY] = lose
    began = time.monotonic()
    with Cluster(addresses(pair.brokers[1].address), 4) as cluster:
        sender = Sender(cluster, "t")
        sender.send([(0, Draft(1, None, b"a"))])
    assert sender.records == 1
    assert [broker for broker, _, _ in pair.sequences] == [0, 1]
    assert time.monotonic() - began < 4


def test_a_single_record_is_not_waited_for_longer_than_one_timeout(pair: BrokerPair) -> None:
    pair.brokers[0].close()
    with Cluster(addresses(pair.brokers[1].address), 0.4) as cluster:
        began = time.monotonic()
        with pytest.raises(Stopped, match="broker 0 cannot be reached at its advertised address"):
            Sender(cluster, "t").send([(0, Draft(1, None, b"a"))])
        assert time.monotonic() - began < 1


def test_a_topic_with_a_killed_leader_can_be_described(pair: BrokerPair, tenure: Tenure) -> None:
    pair.brokers[1].answers |= {
        ListOffsetsRequest.API_KEY: lambda request, version: ListOffsetsResponse(topics=[
            ListOffsetsTopicResponse("t", [ListOffsetsPartitionResponse(part.partition_index, offset=7 if part.timestamp == -1 else 0) for part in topic.partitions])
            for topic in request.topics
        ]),
        DescribeLogDirsRequest.API_KEY: lambda request, version: DescribeLogDirsResponse(results=[
            DescribeLogDirsResult(topics=[DescribeLogDirsTopic("t", [DescribeLogDirsPartition(1, 99)])])
        ]),
    }  # fmt: skip
    pair.brokers[0].close()
    result = tenure("topic", "describe", "t", "--bootstrap", pair.brokers[1].address, "--timeout", "1")
    assert (result.code, result.err) == (75, "tenure: the contents of t:0 are unknown: the broker that leads it cannot be reached; try again\n")
    assert [line.split() for line in result.out.splitlines()[3:5]] == [
        ["0", "0", "0,1", "0,1", "-", "-", "-", "-"],
        ["1", "1", "0,1", "0,1", "0", "7", "7", "99", "B"],
    ]


def test_read_committed_stops_before_open_transactions(pair: BrokerPair) -> None:
    """Offsets 4 to 6 belong to an open transaction."""

    def answer(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        end = 4 if request.isolation_level else 7
        offsets = {EARLIEST: 0, LATEST: end}
        return ListOffsetsResponse(topics=[
            ListOffsetsTopicResponse(topic.name, [ListOffsetsPartitionResponse(part.partition_index, offset=offsets.get(part.timestamp, -1)) for part in topic.partitions])
            for topic in request.topics
        ])  # fmt: skip

    pair.brokers[1].answers[ListOffsetsRequest.API_KEY] = answer
    with Cluster(addresses(pair.brokers[1].address), 5) as cluster:
        for begin, offsets in (("latest", (7, 4)), ("-3", (4, 1)), ("1h", (7, 4)), ("6", (6, 6)), ("earliest", (0, 0))):
            offsets_by_isolation = [begin_offsets(cluster, [("t", 1)], parse_position(begin), print, committed=committed)["t", 1] for committed in (False, True)]
            assert tuple(offsets_by_isolation) == offsets, begin
