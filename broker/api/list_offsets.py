"""ListOffsets: the start or end offset of a log, or the offset of a time. A search by time reads the log, in steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.api.parts import Parts
from broker.logging.logs import log
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import LOOKUP_COST, READ_COST, SCAN_COST, LongRequests
from broker.security.authorizer import Authorizer, Operation, topic_allowed
from broker.topics.leader_epochs import partition_error
from broker.topics.partition import Partition, read_error_code
from broker.topics.partitions import Partitions
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from storage import DamagedLog, Found

# Special timestamps.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3  # KIP-734
EARLIEST_LOCAL: Final = -4  # KIP-405; equals EARLIEST without tiered storage
LATEST_TIERED: Final = -5  # KIP-1005
_KNOWN_FROM: Final = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}

COMMITTED: Final = 1


def route(parts: Parts) -> Route:
    handler = ListOffsets(parts.partitions, parts.authorizer, parts.long_requests)
    return Route(ListOffsetsRequest, handler.handle, refuse)


class ListOffsets:
    def __init__(self, partitions: Partitions, authorizer: Authorizer, long_requests: LongRequests) -> None:
        self._partitions = partitions
        self._authorizer = authorizer
        self._long_requests = long_requests

    def handle(self, call: Call, request: ListOffsetsRequest) -> Response | None:
        topics: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
        hidden: list[ListOffsetsTopicResponse] = []
        wanted: list[tuple[str, ListOffsetsPartition]] = []
        twice: set[tuple[str, int]] = set()
        for topic in request.topics:
            if not topic_allowed(self._authorizer, call, Operation.DESCRIBE, topic.name):
                hidden.append(_refused(topic.name, topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                continue
            answers = topics.setdefault(topic.name, {})
            for one in topic.partitions:
                if one.partition_index in answers:
                    twice.add((topic.name, one.partition_index))
                else:
                    answers[one.partition_index] = ListOffsetsPartitionResponse(one.partition_index)
                    wanted.append((topic.name, one))
        if wanted and request.isolation_level not in (0, COMMITTED):
            return refuse(request, call.version, ErrorCode.UNKNOWN_SERVER_ERROR)
        reply = ListOffsetsResponse(0, [ListOffsetsTopicResponse(name, list(answers.values())) for name, answers in topics.items() if answers])
        reply.topics += hidden
        return self._long_requests.answer(call, reply, self._fill_in(call.version, wanted, topics, twice))

    def _fill_in(
        self,
        version: int,
        wanted: list[tuple[str, ListOffsetsPartition]],
        topics: dict[str, dict[int, ListOffsetsPartitionResponse]],
        twice: set[tuple[str, int]],
    ) -> Iterator[int]:
        """Fill in the answers step by step; yields the cost of each step."""
        for name, one in wanted:
            answer = topics[name][one.partition_index]
            timestamp = one.timestamp
            if (name, one.partition_index) in twice:
                answer.error_code = ErrorCode.INVALID_REQUEST
            elif timestamp < 0 and version < _KNOWN_FROM.get(timestamp, 1 << 15):
                answer.error_code = ErrorCode.UNSUPPORTED_VERSION
            else:
                partition = self._partitions.find(name, one.partition_index)
                answer.error_code = partition_error(partition, one.current_leader_epoch)
                if partition is not None and not answer.error_code:
                    if timestamp >= 0 or timestamp == MAX_TIMESTAMP:
                        yield from _find(partition, timestamp, answer)
                    else:
                        _fill_in_end(partition, timestamp, answer)
            yield LOOKUP_COST


def _fill_in_end(partition: Partition, which: int, answer: ListOffsetsPartitionResponse) -> None:
    if which == LATEST:
        answer.offset, answer.leader_epoch = partition.end_offset, partition.leader_epoch
    elif which in (EARLIEST, EARLIEST_LOCAL):
        answer.offset, answer.leader_epoch = partition.start_offset, _first_epoch(partition)


def _find(partition: Partition, timestamp: int, answer: ListOffsetsPartitionResponse) -> Iterator[int]:
    """Find a record by time, in steps; the partition may be deleted or change its start offset meanwhile."""
    while True:
        found: Found | None = None
        try:
            for found in partition.log.latest_record() if timestamp == MAX_TIMESTAMP else partition.log.find_time(timestamp):
                if found is not None:
                    break
                yield SCAN_COST
                if partition.error:
                    answer.error_code = partition.error
                    return
        except (OSError, DamagedLog) as problem:
            log.error("partition cannot be read", log=str(partition), reason=str(problem))
            answer.error_code = read_error_code(problem)
            return
        yield READ_COST
        if partition.error:
            answer.error_code = partition.error
        elif found is not None and found.offset < partition.start_offset:
            continue  # the record was deleted meanwhile: search again
        elif found is not None and found.offset < partition.end_offset:
            answer.timestamp, answer.offset, answer.leader_epoch = found
        return


def _first_epoch(partition: Partition) -> int:
    """The leader epoch of the first record; the current one if there are no records."""
    log = partition.log
    if log.start_offset == log.next_offset:
        return partition.leader_epoch
    return log.epoch_at(log.start_offset)


def _refused(name: str, partitions: list[ListOffsetsPartition], error: int) -> ListOffsetsTopicResponse:
    return ListOffsetsTopicResponse(name, [ListOffsetsPartitionResponse(one.partition_index, error) for one in partitions])


def refuse(request: ListOffsetsRequest, version: int, error: int) -> Response:
    return ListOffsetsResponse(0, [_refused(topic.name, topic.partitions, error) for topic in request.topics])
