"""Offsets of logs: ListOffsets by place or time, OffsetForLeaderEpoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.authorizer import Authorizer, Operation, Resource, may
from broker.connection import Later
from broker.contain import defect
from broker.dispatch import Call, Response, Route
from broker.handlers.leader_epochs import UNKNOWN, epoch_error
from broker.logs import get_logger
from broker.partition import Partition, unreadable
from broker.partitions import Partitions
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
from storage import DamagedLog

log = get_logger("broker.log_offsets")

# What is asked for in place of a time.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3  # KIP-734
EARLIEST_LOCAL: Final = -4  # KIP-405: what is not in tiered storage, of which there is none
LATEST_TIERED: Final = -5  # KIP-1005
_KNOWN_FROM: Final = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}

COMMITTED: Final = 1
LOOKS_PER_TURN: Final = 32  # each reads a log in one or two places: some 50 us


class LogOffsetHandlers:
    """Both are answered from the partitions as they are; looking for a time reads their logs, some in each turn."""

    def __init__(self, partitions: Partitions, authorizer: Authorizer, turn: Later) -> None:
        self._partitions = partitions
        self._authorizer = authorizer
        self._turn = turn

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
        looks = self._looks(call.version, wanted, topics, twice)
        if _some(looks):
            return reply
        Looking(call, reply, looks, self._turn)
        return None

    def _looks(
        self,
        version: int,
        wanted: list[tuple[str, ListOffsetsPartition]],
        topics: dict[str, dict[int, ListOffsetsPartitionResponse]],
        twice: set[tuple[str, int]],
    ) -> Iterator[None]:
        """Fill in what is told, with a stop behind each log that was read."""
        for name, one in wanted:
            told = topics[name][one.partition_index]
            timestamp = one.timestamp
            if (name, one.partition_index) in twice:
                told.error_code = ErrorCode.INVALID_REQUEST
            elif timestamp < 0 and version < _KNOWN_FROM.get(timestamp, 1 << 15):
                told.error_code = ErrorCode.UNSUPPORTED_VERSION
            else:
                told.error_code = self._look(name, one, told)
                if timestamp >= 0 or timestamp == MAX_TIMESTAMP:
                    yield

    def _look(self, name: str, one: ListOffsetsPartition, told: ListOffsetsPartitionResponse) -> int:
        partition = self._partitions.find(name, one.partition_index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition.error:
            return partition.error
        if one.current_leader_epoch != UNKNOWN:
            error = epoch_error(partition, one.current_leader_epoch)
            if error:
                return error
        timestamp = one.timestamp
        if timestamp == LATEST:
            told.offset, told.leader_epoch = partition.end_offset, partition.leader_epoch
        elif timestamp in (EARLIEST, EARLIEST_LOCAL):
            told.offset = partition.start_offset
            told.leader_epoch = _first_epoch(partition)
        elif timestamp != LATEST_TIERED:
            try:
                found = partition.log.latest_record() if timestamp == MAX_TIMESTAMP else partition.log.find_time(timestamp)
            except (OSError, DamagedLog) as problem:
                log.error("partition cannot be read", log=str(partition), reason=str(problem))
                return unreadable(problem)
            if found is not None and found.offset < partition.end_offset:
                told.timestamp, told.offset, told.leader_epoch = found
        return ErrorCode.NONE

    # OffsetForLeaderEpoch

    def epochs(self, call: Call, request: OffsetForLeaderEpochRequest) -> Response:
        told: list[OffsetForLeaderTopicResult] = []
        hidden: list[OffsetForLeaderTopicResult] = []
        for topic in request.topics:
            if self._may_describe(call, topic.topic):
                told.append(OffsetForLeaderTopicResult(topic.topic, [self._epoch(topic.topic, one) for one in topic.partitions]))
            else:
                parts = [EpochEndOffset(ErrorCode.TOPIC_AUTHORIZATION_FAILED, one.partition) for one in topic.partitions]
                hidden.append(OffsetForLeaderTopicResult(topic.topic, parts))
        return OffsetForLeaderEpochResponse(0, told + hidden)

    def _epoch(self, name: str, one: OffsetForLeaderPartition) -> EpochEndOffset:
        partition = self._partitions.find(name, one.partition)
        error: int = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if partition is None else partition.error
        if partition is not None and not error and one.current_leader_epoch != UNKNOWN:
            error = epoch_error(partition, one.current_leader_epoch)
        if partition is None or error:
            return EpochEndOffset(error, one.partition)
        return EpochEndOffset(ErrorCode.NONE, one.partition, *partition.log.epoch_end(one.leader_epoch))


class Looking:
    """A ListOffsets that takes more than a turn."""

    __slots__ = ("_call", "_looks", "_reply", "_turn")

    def __init__(self, call: Call, reply: Response, looks: Iterator[None], turn: Later) -> None:
        self._call = call
        self._reply = reply
        self._looks = looks
        self._turn = turn
        turn.later(self)

    def end_turn(self) -> None:
        if self._call.connection.closed:
            return
        try:
            done = _some(self._looks)
        except Exception as error:
            defect("a request failed inside the broker", error, api="ListOffsets")
            self._call.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        if done:
            self._call.answer(self._reply)
        else:
            self._turn.later(self)

    def broken(self) -> None:
        self._call.connection.broken()


def _some(looks: Iterator[None]) -> bool:
    """As much as a turn may take; whether that was all."""
    for _ in range(LOOKS_PER_TURN):
        try:
            next(looks)
        except StopIteration:
            return True
    return False


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
