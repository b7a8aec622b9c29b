"""A client that creates topics with known offsets and times, commits offsets, and joins groups; on the port of any cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from protocol.batch import build
from protocol.batch_record import Record
from protocol.errors import ErrorCode
from protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.sync_group import SyncGroupRequest
from protocol.records import with_version
from tests.running import Client, wait_until

BASE_MS = 1_605_697_600_000  # 2020-11-18T11:06:40Z; record n of a partition is n seconds later
TRY_SECONDS = 30

Offsets = dict[tuple[str, int], int]


def port_of(bootstrap: str) -> int:
    return int(bootstrap.rpartition(":")[2])


class Admin(Client):
    """A client for setting up tests. Its methods retry while Kafka is still creating a topic or a coordinator."""

    def create_topic(self, name: str, counts: tuple[int, ...] = (10, 10, 0), begins: Mapping[int, int] = {1: 4}) -> None:
        """Create a topic with `counts` records and `begins` as log start offsets. By default: 0 to 9, 4 to 9, and an empty partition.

        The topic may exist already, since a test worker may run a test module twice.
        """
        configs = [CreatableTopicConfig("retention.ms", "-1")]
        error_code = self.ask(CreateTopicsRequest([CreatableTopic(name, len(counts), 1, [], configs)], 10_000), 5).topics[0].error_code
        if error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            return
        assert error_code == 0
        for partition, count in enumerate(counts):
            if count:
                records = [Record(number, BASE_MS + 1000 * number, None, b"%d" % number, []) for number in range(count)]
                self.retry(partial(self.produced, name, partition, build(records)))
        partitions = [DeleteRecordsPartition(partition, begin) for partition, begin in begins.items()]
        if partitions:
            reply = self.ask(DeleteRecordsRequest([DeleteRecordsTopic(name, partitions)], 10_000), 1)
            assert not any(partition.error_code for partition in reply.topics[0].partitions), reply

    def produced(self, name: str, partition: int, batch: bytes) -> int:
        reply = self.ask(ProduceRequest(None, -1, 10_000, [TopicProduceData(name, [PartitionProduceData(partition, batch)])]), 8)
        return int(reply.responses[0].partition_responses[0].error_code)

    def retry(self, attempt: Callable[[], int]) -> None:
        wait_until(lambda: not attempt(), TRY_SECONDS, pause=0.05)

    def await_coordinator(self, group: str) -> None:
        self.retry(lambda: int(self.ask(FindCoordinatorRequest(group), 2).error_code))

    def commit(self, group: str, offsets: Offsets, epoch: int = -1, metadata: str = "") -> None:
        self.await_coordinator(group)
        topics = [
            OffsetCommitRequestTopic(topic, [OffsetCommitRequestPartition(partition, offset, epoch, metadata)])
            for (topic, partition), offset in offsets.items()
        ]

        def attempt() -> int:
            reply = self.ask(OffsetCommitRequest(group, -1, "", topics=topics), 7)
            return max(int(partition.error_code) for topic in reply.topics for partition in topic.partitions)

        self.retry(attempt)

    def committed(self, group: str) -> Offsets:
        reply = self.ask(OffsetFetchRequest([OffsetFetchRequestGroup(group, topics=None)]), 8).groups[0]
        assert reply.error_code == 0
        return {(topic.name, partition.partition_index): partition.committed_offset for topic in reply.topics for partition in topic.partitions}

    def join(self, group: str, *topics: str, instance: str = "one") -> None:
        """Join as a static member that subscribes to these topics; its session outlasts any test."""
        self.await_coordinator(group)
        metadata = with_version(ConsumerProtocolSubscription(list(topics)), 0)
        request = JoinGroupRequest(group, 60_000, 60_000, "", instance, "consumer", [JoinGroupRequestProtocol("range", metadata)])

        def attempt() -> int:
            joined = self.ask(request, 5)
            if not joined.error_code:
                synced = self.ask(SyncGroupRequest(group, joined.generation_id, joined.member_id, instance), 3)
                return int(synced.error_code)
            return int(joined.error_code)

        self.retry(attempt)
