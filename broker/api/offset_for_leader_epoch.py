"""OffsetForLeaderEpoch: the end offset of a leader epoch, for consumers that check for truncation."""

from __future__ import annotations

from broker.api.parts import BrokerParts
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import LOOKUP_COST
from broker.security.authorizer import Operation, topic_allowed
from broker.topics.leader_epochs import partition_error
from protocol.errors import ErrorCode
from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from protocol.wire import Steps


def route(parts: BrokerParts) -> Route:
    return Route(OffsetForLeaderEpochRequest, parts.long_requests.handler(OffsetForLeaderEpoch(parts).handle), error_response)


class OffsetForLeaderEpoch:
    def __init__(self, parts: BrokerParts) -> None:
        self._partitions = parts.partitions
        self._authorizer = parts.authorizer

    def handle(self, call: Call, request: OffsetForLeaderEpochRequest) -> Steps[Response]:
        reply = OffsetForLeaderEpochResponse(0, [])
        hidden: list[OffsetForLeaderTopicResult] = []
        for topic in request.topics:
            yield LOOKUP_COST
            if not topic_allowed(self._authorizer, call, Operation.DESCRIBE, topic.topic):
                hidden.append(_refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                continue
            ends: list[EpochEndOffset] = []
            reply.topics.append(OffsetForLeaderTopicResult(topic.topic, ends))
            for partition in topic.partitions:
                ends.append(self._end_offset(topic.topic, partition))
                yield LOOKUP_COST
        reply.topics += hidden
        return reply

    def _end_offset(self, name: str, requested: OffsetForLeaderPartition) -> EpochEndOffset:
        partition = self._partitions.find(name, requested.partition)
        error = partition_error(partition, requested.current_leader_epoch)
        if partition is None or error:
            return EpochEndOffset(error, requested.partition)
        return EpochEndOffset(ErrorCode.NONE, requested.partition, *partition.log.epoch_end(requested.leader_epoch))


def _refused(topic: OffsetForLeaderTopic, error: int) -> OffsetForLeaderTopicResult:
    return OffsetForLeaderTopicResult(topic.topic, [EpochEndOffset(error, partition.partition) for partition in topic.partitions])


def error_response(request: OffsetForLeaderEpochRequest, version: int, error: int) -> Response:
    return OffsetForLeaderEpochResponse(0, [_refused(topic, error) for topic in request.topics])
