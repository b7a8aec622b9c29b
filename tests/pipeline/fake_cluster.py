"""Brokers with one log, which fail as the test demands, and support exactly the requests of the pipeline's client."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from protocol.apis import APIS
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.fetch import AbortedTransaction, FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from tests import running
from tests.cli.fake_brokers import Answer, Close, FakeBroker
from tests.pipeline.segments import next_offset

TOPIC = "__consumer_offsets"
ID = bytes(range(16))
FETCH_BATCHES = 3

# Errors while a coordinator starts.
NOT_YET = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}  # fmt: skip


class FakeCluster:
    """`reply_error`: called with the broker's number and each request; returns an error code, or None to close the connection."""

    def __init__(self, batches: list[bytes], brokers: int = 2) -> None:
        self.batches = batches
        self.aborted: list[tuple[int, int]] = []
        self.start = 0
        self.leader = 0
        self.requests: list[tuple[int, str]] = []
        self.reply_error: Callable[[int, Any], int | None] = lambda number, request: 0
        self._brokers = [FakeBroker(self._answers(number)) for number in range(brokers)]
        self.ports = [broker.port for broker in self._brokers]

    @property
    def end(self) -> int:
        return next_offset(self.batches[-1])

    def close(self) -> None:
        for broker in self._brokers:
            broker.close()

    def _answers(self, number: int) -> dict[int, Answer]:
        def answer(key: int, reply: Callable[[int, Any, int], Any]) -> Answer:
            def counted(request: Any, version: int) -> Any:
                self.requests.append((number, APIS[key].name))
                code = self.reply_error(number, request)
                if code is None:
                    raise Close
                return reply(number, request, code)

            return counted

        replies = {MetadataRequest.API_KEY: self._metadata, ListOffsetsRequest.API_KEY: self._list_offsets, FetchRequest.API_KEY: self._fetch}
        return {key: answer(key, reply) for key, reply in replies.items()}

    def _metadata(self, number: int, request: Any, code: int) -> Any:
        brokers = [MetadataResponseBroker(node_id, "127.0.0.1", port) for node_id, port in enumerate(self.ports)]
        topics = []
        for topic in request.topics:
            if topic.name == TOPIC:
                topics.append(MetadataResponseTopic(name=TOPIC, topic_id=ID, is_internal=True, partitions=[MetadataResponsePartition(0, 0, self.leader)]))
            else:
                topics.append(MetadataResponseTopic(error_code=int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), name=topic.name))
        return MetadataResponse(brokers=brokers, cluster_id="fake", topics=topics)

    def _list_offsets(self, number: int, request: Any, code: int) -> Any:
        code = code or (0 if number == self.leader else int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        at = self.start if request.topics[0].partitions[0].timestamp == -2 else self.end
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(TOPIC, [ListOffsetsPartitionResponse(0, code, -1, at)])])

    def _fetch(self, number: int, request: Any, code: int) -> Any:
        offset = request.topics[0].partitions[0].fetch_offset
        code = code or (0 if number == self.leader else int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        if not code and not self.start <= offset <= self.end:
            code = int(ErrorCode.OFFSET_OUT_OF_RANGE)
        batches = [batch for batch in self.batches if next_offset(batch) > max(offset, self.start)][:FETCH_BATCHES]
        aborted = [AbortedTransaction(producer, first) for producer, first in self.aborted]
        part = PartitionData(0, code, self.end, self.end, aborted_transactions=aborted, records=b"" if code else b"".join(batches))
        return FetchResponse(responses=[FetchableTopicResponse(topic=TOPIC, topic_id=ID, partitions=[part])])


def commit_offsets(port: int, turn: int) -> None:
    """Let three groups, others for each `turn`, commit offsets of twenty partitions."""
    with running.Client(port) as client:
        client.ask(CreateTopicsRequest(topics=[CreatableTopic(name="orders", num_partitions=20, replication_factor=1)], timeout_ms=10_000), 5)
        for number in range(turn * 3, turn * 3 + 3):
            group = f"group-{number}"
            client.ask(FindCoordinatorRequest(key=group, coordinator_keys=[group]), 4)
            partitions = [OffsetCommitRequestPartition(partition, 100 + turn) for partition in range(20)]
            request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name="orders", partitions=partitions)])
            request.generation_id_or_member_epoch = -1
            until = time.monotonic() + 60
            while codes := {partition.error_code for partition in client.ask(request, 8).topics[0].partitions} - {0}:
                assert codes <= NOT_YET, codes
                assert time.monotonic() < until, codes
