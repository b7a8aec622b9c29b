"""DescribeTopicPartitions: describe topics in pages, for topics with more partitions than fit in a reply."""

from __future__ import annotations

from broker.api.described_partitions import described_epoch, described_partitions
from broker.api.parts import Parts
from broker.groups.journal import Journal
from broker.net.dispatch import Call, Response, Route
from broker.runtime.node import Node
from broker.security.authorizer import Authorizer, Operation, topic_allowed, topic_operations
from broker.topics.leaders import NO_NODE, Leaders
from broker.topics.partition import Partition
from broker.topics.partitions import Partitions
from broker.topics.registry import Topic, Topics, name_problem
from protocol.errors import ErrorCode
from protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

PARTITIONS_PER_REPLY_MAX = 2000  # Kafka's max.request.partition.size.limit


def route(parts: Parts) -> Route:
    handler = DescribeTopicPartitions(parts.node, parts.leaders, parts.topics, parts.registry, parts.partitions, parts.authorizer)
    return Route(DescribeTopicPartitionsRequest, handler.handle, refuse)


class DescribeTopicPartitions:
    def __init__(
        self,
        node: Node,
        leaders: Leaders | None,
        topics: Topics,
        registry: Journal,
        partitions: Partitions,
        authorizer: Authorizer,
    ) -> None:
        self._node = node
        self._leaders = leaders
        self._topics = topics
        self._registry = registry
        self._partitions = partitions
        self._authorizer = authorizer

    def handle(self, call: Call, request: DescribeTopicPartitionsRequest) -> Response | None:
        by_name = self._topics.by_name
        cursor = request.cursor
        everything = not request.topics
        first = cursor.topic_name if cursor is not None else ""
        names = {topic.name for topic in self._topics.listed()} if everything else {topic.name for topic in request.topics}
        if cursor is not None and (cursor.partition_index < 0 or not (everything or first in names)):
            return refuse(request, call.version, ErrorCode.INVALID_REQUEST)
        hidden: list[str] = []
        described: list[DescribeTopicPartitionsResponseTopic] = []
        next_cursor = None
        room = max(1, min(request.response_partition_limit, PARTITIONS_PER_REPLY_MAX))
        for name in sorted((name for name in names if _order(name) >= _order(first)), key=_order):
            if not topic_allowed(self._authorizer, call, Operation.DESCRIBE, name):
                hidden.append(name)
                continue
            if next_cursor is not None:
                continue
            if not room:
                next_cursor = DescribeTopicPartitionsResponseCursor(name, 0)
                continue
            topic = by_name.get(name)
            operations = topic_operations(self._authorizer, call, name)
            if topic is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if name_problem(name) is None else ErrorCode.INVALID_TOPIC_EXCEPTION
                described.append(DescribeTopicPartitionsResponseTopic(error, name, topic_authorized_operations=operations))
                continue
            begin = cursor.partition_index if cursor is not None and name == first else 0
            end = min(begin + room, topic.partitions)
            found = self._describe(topic, begin, end)
            described.append(DescribeTopicPartitionsResponseTopic(0, name, topic.id, topic.internal, found, operations))
            room -= len(found)
            if end < topic.partitions:
                next_cursor = DescribeTopicPartitionsResponseCursor(name, end)
        if not everything:
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            described += [DescribeTopicPartitionsResponseTopic(error, name) for name in hidden]
        call.reply = DescribeTopicPartitionsResponse(topics=described, next_cursor=next_cursor)
        self._registry.reply(call)
        return None

    def _describe(self, topic: Topic, begin: int, end: int) -> list[DescribeTopicPartitionsResponsePartition]:
        return [self._describe_one(one) for one in described_partitions(self._partitions, topic)[begin:end]]

    def _describe_one(self, partition: Partition) -> DescribeTopicPartitionsResponsePartition:
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


def _order(name: str) -> bytes:
    """The sort key of Java's string order."""
    return name.encode("utf-16-be", "surrogatepass")


def refuse(request: DescribeTopicPartitionsRequest, version: int, error: int) -> Response:
    """The reply has no top-level error: each topic gets it."""
    return DescribeTopicPartitionsResponse(
        topics=[DescribeTopicPartitionsResponseTopic(error, topic.name) for topic in request.topics]
    )
