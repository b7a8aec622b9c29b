"""Changes of topics survive: deletions and settings over a kill, and replies of a suspended registry."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.batch import build_facts
from protocol.messages import incremental_alter_configs
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.running import Broker, Client

pytestmark = pytest.mark.once  # does not depend on the Python version, and leaves files of killed brokers

SECONDS = 10
TOPIC_RESOURCE = 2


class RestartedBroker:
    """A broker that restarts on the same directory."""

    def __init__(self, path: Path) -> None:
        self._flags = ("--profile", "test", "--data", str(path), "--set", "log.level=warning", "--set", "log.retention.minutes=600")
        self._start()

    def _start(self) -> None:
        self.broker = Broker(*self._flags)
        self.client = Client(self.broker.port)

    def kill(self) -> None:
        self.client.socket.close()
        self.broker.kill()
        self._start()

    def close(self) -> None:
        self.client.socket.close()
        self.broker.kill()

    def ask(self, request: Any, version: int) -> Any:
        return self.client.ask(request, version)

    def create(self, name: str, partitions: int = 2, **settings: str) -> bytes:
        configs = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in settings.items()]
        (created,) = self.ask(CreateTopicsRequest([CreatableTopic(name, partitions, 1, [], configs)], 5000), 7).topics
        assert created.error_code == 0
        return bytes(created.topic_id)

    def delete(self, name: str) -> int:
        return int(self.ask(DeleteTopicsRequest([DeleteTopicState(name, bytes(16))], [], 5000), 6).responses[0].error_code)

    def produce(self, name: str, records: int) -> int:
        batch = build_facts([(b"k", b"v")] * records, round(time.time() * 1000))
        request = ProduceRequest(None, -1, 5000, [TopicProduceData(name, partition_data=[PartitionProduceData(0, batch)])])
        return int(self.until_served(lambda: self.ask(request, 9).responses[0].partition_responses[0]).base_offset)

    def until_served(self, ask: Any) -> Any:
        until = time.monotonic() + SECONDS
        while (answer := ask()).error_code in (3, 6, 14):
            assert time.monotonic() < until
            time.sleep(0.01)
        assert answer.error_code == 0, answer
        return answer

    def start_and_end(self, name: str) -> tuple[int, int]:
        def end(timestamp: int) -> int:
            request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(name, [ListOffsetsPartition(0, -1, timestamp)])])
            return int(self.until_served(lambda: self.ask(request, 5).topics[0].partitions[0]).offset)

        return end(-2), end(-1)

    def partitions(self, name: str) -> int:
        return len(self.ask(MetadataRequest([MetadataRequestTopic(name=name)], False), 12).topics[0].partitions)

    def commit(self, group: str, name: str) -> None:
        topics = [OffsetCommitRequestTopic(name, [OffsetCommitRequestPartition(0, 5)])]
        request = OffsetCommitRequest(group, -1, "", None, -1, topics)
        self.until_served(lambda: self.ask(request, 8).topics[0].partitions[0])

    def committed_topics(self, group: str) -> list[str]:
        request = OffsetFetchRequest([OffsetFetchRequestGroup(group, None, -1, None)])
        return [topic.name for topic in self.until_served(lambda: self.ask(request, 8).groups[0]).topics]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[RestartedBroker]:
    started = RestartedBroker(tmp_path / "data")
    yield started
    started.close()


def test_acknowledged_changes_survive_a_kill(directory: RestartedBroker) -> None:
    for name in ("kept", "emptied", "gone", "again"):
        directory.create(name)
        assert directory.produce(name, 6) == 0
    for name in ("gone", "again", "kept"):
        directory.commit("group", name)
    deleted = [DeleteRecordsTopic("emptied", [DeleteRecordsPartition(0, 4)])]
    assert directory.ask(DeleteRecordsRequest(deleted, 5000), 2).topics[0].partitions[0].low_watermark == 4
    assert directory.ask(CreatePartitionsRequest([CreatePartitionsTopic("kept", 3, None)], 5000), 3).results[0].error_code == 0
    settings = [incremental_alter_configs.AlterableConfig("retention.ms", 0, "7200000")]
    request = IncrementalAlterConfigsRequest([incremental_alter_configs.AlterConfigsResource(TOPIC_RESOURCE, "kept", settings)], False)
    assert directory.ask(request, 1).responses[0].error_code == 0
    assert directory.delete("gone") == directory.delete("again") == 0
    directory.create("again", 1)
    assert directory.produce("again", 2) == 0

    for _ in range(2):
        directory.kill()
        assert directory.start_and_end("emptied") == (4, 6)
        assert directory.start_and_end("kept") == (0, 6)
        assert directory.start_and_end("again") == (0, 2)
        assert [directory.partitions(name) for name in ("kept", "gone", "again")] == [3, 0, 1]
        assert directory.committed_topics("group") == ["kept"]
        (described,) = directory.ask(DescribeConfigsRequest([DescribeConfigsResource(TOPIC_RESOURCE, "kept", ["retention.ms"])], True), 4).results
        (retention,) = described.configs
        assert (retention.value, retention.config_source) == ("7200000", 1)
        assert [(synonym.name, synonym.value, synonym.source) for synonym in retention.synonyms] == [
            ("retention.ms", "7200000", 1),
            ("log.retention.minutes", "600", 4),
        ]
        (described,) = directory.ask(DescribeConfigsRequest([DescribeConfigsResource(TOPIC_RESOURCE, "again", ["retention.ms"])], True), 4).results
        assert (described.configs[0].value, described.configs[0].config_source) == ("36000000", 4)
