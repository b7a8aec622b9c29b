"""DescribeTopicPartitions: describe topics in pages, for topics with more partitions than fit in a reply."""

from __future__ import annotations

from heapq import heapify, heappop

from broker.api.described_partitions import described_epoch, described_partitions
from broker.api.parts import BrokerParts
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import LOOKUP_COST
from broker.security.authorizer import Operation, topic_allowed, topic_operations
from broker.topics.leaders import NO_NODE
from broker.topics.partition import Partition
from broker.topics.registry import Topic, name_problem
from protocol.errors import ErrorCode
from protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from protocol.wire import Steps

PARTITION_COST = 1
PARTITIONS_PER_REPLY_MAX = 2000  # Kafka's max.request.partition.size.limit


def route(parts: BrokerParts) -> Route:
    return Route(DescribeTopicPartitionsRequest, parts.long_requests.handler(DescribeTopicPartitions(parts).handle), error_response)


class DescribeTopicPartitions:
    def __init__(self, parts: BrokerParts) -> None:
        self._node = parts.node
        self._leaders = parts.leaders
        self._topics = parts.topics
        self._registry = parts.registry_journal
        self._partitions = parts.partitions
        self._authorizer = parts.authorizer

    def handle(self, call: Call, request: DescribeTopicPartitionsRequest) -> Steps[Response | None]:
        by_name = self._topics.by_name
        cursor = request.cursor
        all_topics = not request.topics
        first = cursor.topic_name if cursor is not None else ""
        names = {topic.name for topic in self._topics.listed()} if all_topics else {topic.name for topic in request.topics}
        if cursor is not None and (cursor.partition_index < 0 or not (all_topics or first in names)):
            return error_response(request, call.version, ErrorCode.INVALID_REQUEST)
        hidden: list[str] = []
        described: list[DescribeTopicPartitionsResponseTopic] = []
        next_cursor = None
        partitions_left = max(1, min(request.response_partition_limit, PARTITIONS_PER_REPLY_MAX))
        first_key = _java_order(first)
        keys: list[tuple[bytes, str]] = []
        for name in names:
            key = _java_order(name)
            if key >= first_key:
                keys.append((key, name))
            yield LOOKUP_COST
        heapify(keys)  # sorted in steps
        while keys:
            _, name = heappop(keys)
            yield LOOKUP_COST
            if not topic_allowed(self._authorizer, call, Operation.DESCRIBE, name):
                hidden.append(name)
                continue
            if next_cursor is not None:
                continue
            if not partitions_left:
                next_cursor = DescribeTopicPartitionsResponseCursor(name, 0)
                continue
            topic = by_name.get(name)
            operations = topic_operations(self._authorizer, call, name)
            if topic is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if name_problem(name) is None else ErrorCode.INVALID_TOPIC_EXCEPTION
                described.append(DescribeTopicPartitionsResponseTopic(error, name, topic_authorized_operations=operations))
                continue
            begin = cursor.partition_index if cursor is not None and name == first else 0
            end = min(begin + partitions_left, topic.partition_count)
            partitions = self._describe(topic, begin, end)
            yield len(partitions) * PARTITION_COST
            described.append(DescribeTopicPartitionsResponseTopic(0, name, topic.id, topic.internal, partitions, operations))
            partitions_left -= len(partitions)
            if end < topic.partition_count:
                next_cursor = DescribeTopicPartitionsResponseCursor(name, end)
        if not all_topics:
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            described += [DescribeTopicPartitionsResponseTopic(error, name) for name in hidden]
        call.reply = DescribeTopicPartitionsResponse(topics=described, next_cursor=next_cursor)
        self._registry.hold_reply(call)
        return None

    def _describe(self, topic: Topic, begin: int, end: int) -> list[DescribeTopicPartitionsResponsePartition]:
        return [self._describe_partition(partition) for partition in described_partitions(self._partitions, topic)[begin:end]]

    def _describe_partition(self, partition: Partition) -> DescribeTopicPartitionsResponsePartition:
        leader = replica = self._node.id
        epoch = described_epoch(self._partitions, self._leaders, partition)
        error = ErrorCode.NONE
        if self._leaders is not None:
            leader = self._leaders.leader(partition.id)
            if leader == NO_NODE:
                error = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                replica = leader
        # Eligible leader replicas are an empty list: Java's admin client cannot read null.
        return DescribeTopicPartitionsResponsePartition(error, partition.index, leader, epoch, [replica], [replica], [], [], [])


def _java_order(name: str) -> bytes:
    """The sort key of Java's string order."""
    return name.encode("utf-16-be", "surrogatepass")


def error_response(request: DescribeTopicPartitionsRequest, version: int, error: int) -> Response:
    """The error for each topic: the reply has no top-level error."""
    return DescribeTopicPartitionsResponse(
        topics=[DescribeTopicPartitionsResponseTopic(error, topic.name) for topic in request.topics]
    )
