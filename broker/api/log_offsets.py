"""Offsets of logs: ListOffsets by place or time, OffsetForLeaderEpoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.logging.logs import get_logger
from broker.net.connection import Later
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import ASKING, READING, STEP, Looks
from broker.security.authorizer import Authorizer, Operation, Resource, may
from broker.topics.leader_epochs import UNKNOWN, epoch_error
from broker.topics.partition import Partition, unreadable
from broker.topics.partitions import Partitions
from protocol.apis import APIS
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from storage import DamagedLog, Found

log = get_logger("broker.log_offsets")

# What is asked for in place of a time.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3  # KIP-734
EARLIEST_LOCAL: Final = -4  # KIP-405: what is not in tiered storage, of which there is none
LATEST_TIERED: Final = -5  # KIP-1005
_KNOWN_FROM: Final = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}

COMMITTED: Final = 1


class LogOffsetHandlers:
    """Both are answered from the partitions as they are; looking for a time reads their logs, some in each turn."""

    def __init__(self, partitions: Partitions, authorizer: Authorizer, turn: Later) -> None:
        self._partitions = partitions
        self._authorizer = authorizer
        self._looks_under_way = Looks(turn)

    def routes(self) -> list[Route]:
        return [
            Route(APIS[ListOffsetsRequest.API_KEY], self.list_offsets, refuse_list_offsets),
            Route(APIS[OffsetForLeaderEpochRequest.API_KEY], self.epochs, refuse_epochs),
        ]

    def _may_describe(self, call: Call, name: str) -> bool:
        return may(self._authorizer, call, Operation.DESCRIBE, Resource.TOPIC, name)

    # ListOffsets

    def list_offsets(self, call: Call, request: ListOffsetsRequest) -> Response | None:
        topics: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
        hidden: list[ListOffsetsTopicResponse] = []
        wanted: list[tuple[str, ListOffsetsPartition]] = []
        twice: set[tuple[str, int]] = set()
        for topic in request.topics:
            if not self._may_describe(call, topic.name):
                hidden.append(_refused(topic.name, topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                continue
            told = topics.setdefault(topic.name, {})
            for one in topic.partitions:
                if one.partition_index in told:
                    twice.add((topic.name, one.partition_index))
                else:
                    told[one.partition_index] = ListOffsetsPartitionResponse(one.partition_index)
                    wanted.append((topic.name, one))
        if wanted and request.isolation_level not in (0, COMMITTED):
            return refuse_list_offsets(request, call.version, ErrorCode.UNKNOWN_SERVER_ERROR)
        reply = ListOffsetsResponse(0, [ListOffsetsTopicResponse(name, list(told.values())) for name, told in topics.items() if told])
        reply.topics += hidden
        return self._looks_under_way.answer(call, reply, self._looks(call.version, wanted, topics, twice))

    def _looks(
        self,
        version: int,
        wanted: list[tuple[str, ListOffsetsPartition]],
        topics: dict[str, dict[int, ListOffsetsPartitionResponse]],
        twice: set[tuple[str, int]],
    ) -> Iterator[int]:
        """Fill in what is told, step by step; what each has cost."""
        for name, one in wanted:
            told = topics[name][one.partition_index]
            timestamp = one.timestamp
            if (name, one.partition_index) in twice:
                told.error_code = ErrorCode.INVALID_REQUEST
            elif timestamp < 0 and version < _KNOWN_FROM.get(timestamp, 1 << 15):
                told.error_code = ErrorCode.UNSUPPORTED_VERSION
            else:
                partition = self._partitions.find(name, one.partition_index)
                told.error_code = _error(partition, one.current_leader_epoch)
                if partition is not None and not told.error_code:
                    if timestamp >= 0 or timestamp == MAX_TIMESTAMP:
                        yield from _find(partition, timestamp, told)
                    else:
                        _tell_end(partition, timestamp, told)
            yield ASKING

    # OffsetForLeaderEpoch

    def epochs(self, call: Call, request: OffsetForLeaderEpochRequest) -> Response | None:
        reply = OffsetForLeaderEpochResponse(0, [])
        return self._looks_under_way.answer(call, reply, self._epochs(call, request, reply))

    def _epochs(self, call: Call, request: OffsetForLeaderEpochRequest, reply: OffsetForLeaderEpochResponse) -> Iterator[int]:
        hidden: list[OffsetForLeaderTopicResult] = []
        for topic in request.topics:
            if not self._may_describe(call, topic.topic):
                parts = [EpochEndOffset(ErrorCode.TOPIC_AUTHORIZATION_FAILED, one.partition) for one in topic.partitions]
                hidden.append(OffsetForLeaderTopicResult(topic.topic, parts))
                continue
            told: list[EpochEndOffset] = []
            reply.topics.append(OffsetForLeaderTopicResult(topic.topic, told))
            for one in topic.partitions:
                told.append(self._epoch(topic.topic, one))
                yield ASKING
        reply.topics += hidden

    def _epoch(self, name: str, one: OffsetForLeaderPartition) -> EpochEndOffset:
        partition = self._partitions.find(name, one.partition)
        error = _error(partition, one.current_leader_epoch)
        if partition is None or error:
            return EpochEndOffset(error, one.partition)
        return EpochEndOffset(ErrorCode.NONE, one.partition, *partition.log.epoch_end(one.leader_epoch))


def _error(partition: Partition | None, current_leader_epoch: int) -> int:
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.error or current_leader_epoch == UNKNOWN:
        return partition.error
    return epoch_error(partition, current_leader_epoch)


def _tell_end(partition: Partition, which: int, told: ListOffsetsPartitionResponse) -> None:
    if which == LATEST:
        told.offset, told.leader_epoch = partition.end_offset, partition.leader_epoch
    elif which in (EARLIEST, EARLIEST_LOCAL):
        told.offset, told.leader_epoch = partition.start_offset, _first_epoch(partition)


def _find(partition: Partition, timestamp: int, told: ListOffsetsPartitionResponse) -> Iterator[int]:
    """Look for a record by its time. What becomes of the partition meanwhile counts when it is found."""
    while True:
        found: Found | None = None
        try:
            for found in partition.log.latest_record() if timestamp == MAX_TIMESTAMP else partition.log.find_time(timestamp):
                if found is not None:
                    break
                yield STEP
                if partition.error:
                    told.error_code = partition.error
                    return
        except (OSError, DamagedLog) as problem:
            log.error("partition cannot be read", log=str(partition), reason=str(problem))
            told.error_code = unreadable(problem)
            return
        yield READING
        if partition.error:
            told.error_code = partition.error
        elif found is not None and found.offset < partition.start_offset:
            continue  # it was deleted meanwhile: another one is the first now
        elif found is not None and found.offset < partition.end_offset:
            told.timestamp, told.offset, told.leader_epoch = found
        return


def _first_epoch(partition: Partition) -> int:
    """The epoch that the log begins in; one without records begins in the current one."""
    log = partition.log
    if log.start_offset == log.next_offset:
        return partition.leader_epoch
    return log.epoch_at(log.start_offset)


def _refused(name: str, partitions: list[ListOffsetsPartition], error: int) -> ListOffsetsTopicResponse:
    return ListOffsetsTopicResponse(name, [ListOffsetsPartitionResponse(one.partition_index, error) for one in partitions])


def refuse_list_offsets(request: ListOffsetsRequest, version: int, error: int) -> Response:
    return ListOffsetsResponse(0, [_refused(topic.name, topic.partitions, error) for topic in request.topics])


def refuse_epochs(request: OffsetForLeaderEpochRequest, version: int, error: int) -> Response:
    topics = [
        OffsetForLeaderTopicResult(topic.topic, [EpochEndOffset(error, one.partition) for one in topic.partitions])
        for topic in request.topics
    ]
    return OffsetForLeaderEpochResponse(0, topics)
