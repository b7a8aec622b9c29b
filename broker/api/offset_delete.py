"""OffsetDelete: delete offsets of a group for topics that no member subscribes to."""

from __future__ import annotations

from typing import Final

from broker.api.partition_counts import readable_partition_count
from broker.api.parts import BrokerParts
from broker.groups.held_replies import answer_when_durable
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import LOOKUP_COST
from broker.security.authorizer import Operation, group_allowed
from protocol.errors import ErrorCode
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from protocol.wire import Steps

PARTITIONS_PER_STEP: Final = 8


def route(parts: BrokerParts) -> Route:
    return Route(OffsetDeleteRequest, parts.long_requests.handler(OffsetDelete(parts).handle), error_response)


class OffsetDelete:
    def __init__(self, parts: BrokerParts) -> None:
        self._shards = parts.shards
        self._topics = parts.topics
        self._clock = parts.clock
        self._authorizer = parts.authorizer

    def handle(self, call: Call, request: OffsetDeleteRequest) -> Steps[Response | None]:
        if not group_allowed(self._authorizer, call, Operation.DELETE, request.group_id):
            return OffsetDeleteResponse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        refused: dict[str, OffsetDeleteResponseTopic] = {}
        valid: list[tuple[str, list[int]]] = []
        for topic in request.topics:
            yield LOOKUP_COST + len(topic.partitions) // PARTITIONS_PER_STEP
            count = readable_partition_count(self._topics, self._authorizer, call, topic.name)
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if count < 0 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            missing = [partition.partition_index for partition in topic.partitions if not 0 <= partition.partition_index < count]
            if count <= 0 or missing:
                _topic_of(refused, topic.name).partitions += [OffsetDeleteResponsePartition(index, code) for index in missing]
            present = [partition.partition_index for partition in topic.partitions if 0 <= partition.partition_index < count]
            if present:
                valid.append((topic.name, present))
        if not request.group_id:
            return OffsetDeleteResponse(ErrorCode.INVALID_GROUP_ID)
        journal = self._shards.journal_of(request.group_id)
        if journal.refusal:
            return OffsetDeleteResponse(journal.refusal)
        deletions = [(name, partition) for name, partitions in valid for partition in partitions]
        error, codes = journal.call(journal.shard.delete_offsets, request.group_id, deletions, self._clock.now, self._clock.wall)
        if error:
            return answer_when_durable(journal, call, OffsetDeleteResponse(error))
        next_code = iter(codes)
        deleted = [(name, [OffsetDeleteResponsePartition(index, next(next_code)) for index in partitions]) for name, partitions in valid]
        if not refused:  # a topic named twice is answered twice, as by OffsetCommit
            return answer_when_durable(journal, call, OffsetDeleteResponse(ErrorCode.NONE, 0, [OffsetDeleteResponseTopic(*topic) for topic in deleted]))
        for name, codes_of_topic in deleted:
            _topic_of(refused, name).partitions += codes_of_topic
        return answer_when_durable(journal, call, OffsetDeleteResponse(ErrorCode.NONE, 0, list(refused.values())))


def _topic_of(topics: dict[str, OffsetDeleteResponseTopic], name: str) -> OffsetDeleteResponseTopic:
    topic = topics.get(name)
    if topic is None:
        topic = topics[name] = OffsetDeleteResponseTopic(name)
    return topic


def error_response(request: OffsetDeleteRequest, version: int, error: int) -> Response:
    return OffsetDeleteResponse(error)
