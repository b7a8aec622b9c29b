"""ListOffsets: the start or end offset of a log, the first record at or after a timestamp, or the record with the largest timestamp.

Searches for a record read the log in steps.
"""

from __future__ import annotations

from typing import Final

from broker.api.parts import BrokerParts
from broker.logging.logs import log
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import LOOKUP_COST, READ_COST, SCAN_COST
from broker.security.authorizer import Operation, topic_allowed
from broker.topics.leader_epochs import partition_error
from broker.topics.partition import Partition, read_error_code
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.wire import Steps
from storage import DamagedLog, FoundRecord

# Special timestamps.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3  # KIP-734
EARLIEST_LOCAL: Final = -4  # KIP-405; equals EARLIEST without tiered storage
LATEST_TIERED: Final = -5  # KIP-1005
EARLIEST_PENDING_UPLOAD: Final = -6  # KIP-1023; like LATEST_TIERED, it has no offset without tiered storage
_KNOWN_FROM: Final = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}

COMMITTED: Final = 1
PARTITIONS_PER_STEP: Final = 8


def route(parts: BrokerParts) -> Route:
    return Route(ListOffsetsRequest, parts.long_requests.handler(ListOffsets(parts).handle), error_response)


class ListOffsets:
    def __init__(self, parts: BrokerParts) -> None:
        self._partitions = parts.partitions
        self._authorizer = parts.authorizer
        self._long_requests = parts.long_requests

    def handle(self, call: Call, request: ListOffsetsRequest) -> Steps[Response]:
        topics: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
        hidden: list[ListOffsetsTopicResponse] = []
        requested: list[tuple[str, ListOffsetsPartition]] = []
        repeated: set[tuple[str, int]] = set()
        for topic in request.topics:
            if not topic_allowed(self._authorizer, call, Operation.DESCRIBE, topic.name):
                hidden.append(_refused(topic.name, topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                continue
            answers = topics.setdefault(topic.name, {})
            yield LOOKUP_COST
            for number, partition in enumerate(topic.partitions):
                if number % PARTITIONS_PER_STEP == 0:
                    yield LOOKUP_COST
                if partition.partition_index in answers:
                    repeated.add((topic.name, partition.partition_index))
                else:
                    answers[partition.partition_index] = ListOffsetsPartitionResponse(partition.partition_index)
                    requested.append((topic.name, partition))
        if requested and request.isolation_level not in (0, COMMITTED):
            return error_response(request, call.version, ErrorCode.UNKNOWN_SERVER_ERROR)
        reply = ListOffsetsResponse(0, [ListOffsetsTopicResponse(name, list(answers.values())) for name, answers in topics.items() if answers])
        reply.topics += hidden
        yield from self._fill_in(call, requested, topics, repeated)
        return reply

    def _fill_in(
        self,
        call: Call,
        requested: list[tuple[str, ListOffsetsPartition]],
        topics: dict[str, dict[int, ListOffsetsPartitionResponse]],
        repeated: set[tuple[str, int]],
    ) -> Steps[None]:
        """Fill in the answers step by step; yields the cost of each step."""
        for name, wanted in requested:
            answer = topics[name][wanted.partition_index]
            timestamp = wanted.timestamp
            if (name, wanted.partition_index) in repeated:
                answer.error_code = ErrorCode.INVALID_REQUEST
            elif timestamp < 0 and call.version < _KNOWN_FROM.get(timestamp, 1 << 15):
                answer.error_code = ErrorCode.UNSUPPORTED_VERSION
            else:
                partition = self._partitions.find(name, wanted.partition_index)
                answer.error_code = partition_error(partition, wanted.current_leader_epoch)
                if partition is not None and not answer.error_code:
                    if timestamp >= 0 or timestamp == MAX_TIMESTAMP:
                        yield from self._find_by_time(call, partition, timestamp, answer)
                    else:
                        _fill_in_end(partition, timestamp, answer)
            yield LOOKUP_COST

    def _find_by_time(self, call: Call, partition: Partition, timestamp: int, answer: ListOffsetsPartitionResponse) -> Steps[None]:
        """Find a record by timestamp and put it into `answer`; yields the cost of each step.

        Between the steps, the partition may be deleted, or its start offset may move.
        """
        while True:
            found: FoundRecord | None = None
            try:
                for step in partition.log.latest_record() if timestamp == MAX_TIMESTAMP else partition.log.find_time(timestamp):
                    if isinstance(step, FoundRecord):
                        found = step
                        break
                    if step is None:
                        yield SCAN_COST
                    else:
                        yield from self._long_requests.aside(call, step.run)
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
                continue  # the record was deleted meanwhile
            elif found is not None and found.offset < partition.high_watermark:
                answer.timestamp, answer.offset, answer.leader_epoch = found
            return


def _fill_in_end(partition: Partition, timestamp: int, answer: ListOffsetsPartitionResponse) -> None:
    if timestamp == LATEST:
        answer.offset, answer.leader_epoch = partition.high_watermark, partition.leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset, answer.leader_epoch = partition.start_offset, _first_epoch(partition)


def _first_epoch(partition: Partition) -> int:
    """The leader epoch of the first record; the current one if there are no records."""
    log = partition.log
    if log.start_offset == log.next_offset:
        return partition.leader_epoch
    return log.epoch_at(log.start_offset)


def _refused(name: str, partitions: list[ListOffsetsPartition], error: int) -> ListOffsetsTopicResponse:
    return ListOffsetsTopicResponse(name, [ListOffsetsPartitionResponse(partition.partition_index, error) for partition in partitions])


def error_response(request: ListOffsetsRequest, version: int, error: int) -> Response:
    return ListOffsetsResponse(0, [_refused(topic.name, topic.partitions, error) for topic in request.topics])
