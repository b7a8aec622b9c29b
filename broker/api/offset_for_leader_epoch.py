"""OffsetForLeaderEpoch: the end offset of a leader epoch, for consumers that check for truncation."""

from __future__ import annotations

from collections.abc import Iterator

from broker.api.parts import Parts
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import LOOKUP_COST, LongRequests
from broker.security.authorizer import Authorizer, Operation, topic_allowed
from broker.topics.leader_epochs import partition_error
from broker.topics.partitions import Partitions
from protocol.errors import ErrorCode
from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def route(parts: Parts) -> Route:
    handler = OffsetForLeaderEpoch(parts.partitions, parts.authorizer, parts.long_requests)
    return Route(OffsetForLeaderEpochRequest, handler.handle, refuse)


class OffsetForLeaderEpoch:
    def __init__(self, partitions: Partitions, authorizer: Authorizer, long_requests: LongRequests) -> None:
        self._partitions = partitions
        self._authorizer = authorizer
        self._long_requests = long_requests

    def handle(self, call: Call, request: OffsetForLeaderEpochRequest) -> Response | None:
        reply = OffsetForLeaderEpochResponse(0, [])
        return self._long_requests.answer(call, reply, self._fill_in(call, request, reply))

    def _fill_in(self, call: Call, request: OffsetForLeaderEpochRequest, reply: OffsetForLeaderEpochResponse) -> Iterator[int]:
        hidden: list[OffsetForLeaderTopicResult] = []
        for topic in request.topics:
            if not topic_allowed(self._authorizer, call, Operation.DESCRIBE, topic.topic):
                parts = [EpochEndOffset(ErrorCode.TOPIC_AUTHORIZATION_FAILED, one.partition) for one in topic.partitions]
                hidden.append(OffsetForLeaderTopicResult(topic.topic, parts))
                continue
            found: list[EpochEndOffset] = []
            reply.topics.append(OffsetForLeaderTopicResult(topic.topic, found))
            for one in topic.partitions:
                found.append(self._epoch(topic.topic, one))
                yield LOOKUP_COST
        reply.topics += hidden

    def _epoch(self, name: str, one: OffsetForLeaderPartition) -> EpochEndOffset:
        partition = self._partitions.find(name, one.partition)
        error = partition_error(partition, one.current_leader_epoch)
        if partition is None or error:
            return EpochEndOffset(error, one.partition)
        return EpochEndOffset(ErrorCode.NONE, one.partition, *partition.log.epoch_end(one.leader_epoch))


def refuse(request: OffsetForLeaderEpochRequest, version: int, error: int) -> Response:
    topics = [
        OffsetForLeaderTopicResult(topic.topic, [EpochEndOffset(error, one.partition) for one in topic.partitions])
        for topic in request.topics
    ]
    return OffsetForLeaderEpochResponse(0, topics)
