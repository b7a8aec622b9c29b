"""OffsetDelete: delete offsets of a group for topics that no member subscribes to."""

from __future__ import annotations

from broker.api.partition_counts import readable_partitions
from broker.api.parts import Parts
from broker.groups.held_replies import answer
from broker.groups.shards import Shards
from broker.net.dispatch import Call, Response, Route
from broker.runtime.clock import Clock
from broker.security.authorizer import Authorizer, Operation, group_allowed
from broker.topics.registry import Topics
from protocol.errors import ErrorCode
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def route(parts: Parts) -> Route:
    handler = OffsetDelete(parts.shards, parts.topics, parts.clock, parts.authorizer)
    return Route(OffsetDeleteRequest, handler.handle, refuse)


class OffsetDelete:
    def __init__(self, shards: Shards, topics: Topics, clock: Clock, authorizer: Authorizer) -> None:
        self._shards = shards
        self._topics = topics
        self._clock = clock
        self._authorizer = authorizer

    def handle(self, call: Call, request: OffsetDeleteRequest) -> Response | None:
        if not group_allowed(self._authorizer, call, Operation.DELETE, request.group_id):
            return OffsetDeleteResponse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        refused: dict[str, OffsetDeleteResponseTopic] = {}
        valid: list[tuple[str, list[int]]] = []
        for topic in request.topics:
            count = readable_partitions(self._topics, self._authorizer, call, topic.name)
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED if count < 0 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            missing = [one.partition_index for one in topic.partitions if not 0 <= one.partition_index < count]
            if count <= 0 or missing:
                _topic_of(refused, topic.name).partitions += [OffsetDeleteResponsePartition(index, error) for index in missing]
            present = [one.partition_index for one in topic.partitions if 0 <= one.partition_index < count]
            if present:
                valid.append((topic.name, present))
        if not request.group_id:
            return OffsetDeleteResponse(ErrorCode.INVALID_GROUP_ID)
        journal = self._shards.of(request.group_id)
        if journal.refusal:
            return OffsetDeleteResponse(journal.refusal)
        wanted = [(name, partition) for name, partitions in valid for partition in partitions]
        error_of_all, codes = journal.call(journal.shard.delete_offsets, request.group_id, wanted, self._clock.now, self._clock.wall)
        if error_of_all:
            return answer(journal, call, OffsetDeleteResponse(error_of_all))
        each = iter(codes)
        deleted = [(name, [OffsetDeleteResponsePartition(index, next(each)) for index in partitions]) for name, partitions in valid]
        if not refused:  # a topic named twice is answered twice, as by OffsetCommit
            return answer(journal, call, OffsetDeleteResponse(ErrorCode.NONE, 0, [OffsetDeleteResponseTopic(*one) for one in deleted]))
        for name, codes_of_topic in deleted:
            _topic_of(refused, name).partitions += codes_of_topic
        return answer(journal, call, OffsetDeleteResponse(ErrorCode.NONE, 0, list(refused.values())))


def _topic_of(topics: dict[str, OffsetDeleteResponseTopic], name: str) -> OffsetDeleteResponseTopic:
    topic = topics.get(name)
    if topic is None:
        topic = topics[name] = OffsetDeleteResponseTopic(name)
    return topic


def refuse(request: OffsetDeleteRequest, version: int, error: int) -> Response:
    return OffsetDeleteResponse(error)
