"""DeleteRecords: delete the records of a partition before an offset, by moving the log start offset.

The reply waits until the new log start offset is durable (in a data directory: in the checkpoint on disk), so that no deleted record can be
read after a crash.
Retention removes the segments later.
"""

from __future__ import annotations

from functools import partial

from broker.api.parts import BrokerParts
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import LOOKUP_COST
from broker.runtime.contain import Contained
from broker.security.authorizer import Operation, topic_allowed
from broker.topics.partition import Partition
from protocol.errors import ErrorCode
from protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from protocol.wire import Steps

HIGH_WATERMARK = -1  # as the offset of a request: delete all records
NO_LOW_WATERMARK = -1
PARTITIONS_PER_STEP = 16


def route(parts: BrokerParts) -> Route:
    return Route(DeleteRecordsRequest, parts.long_requests.handler(DeleteRecords(parts).handle), error_response)


class DeleteRecords:
    def __init__(self, parts: BrokerParts) -> None:
        self._partitions = parts.partitions
        self._authorizer = parts.authorizer
        self._store = parts.topic_store

    def handle(self, call: Call, request: DeleteRecordsRequest) -> Steps[Response | None]:
        offsets_by_topic: dict[str, dict[int, int]] = {}
        for topic in request.topics:
            yield LOOKUP_COST + len(topic.partitions) // PARTITIONS_PER_STEP
            if topic.partitions:  # the last of several offsets for a partition counts
                offsets_by_topic.setdefault(topic.name, {}).update({partition.partition_index: partition.offset for partition in topic.partitions})
        response = DeleteRecordsResponse(topics=[])
        unwritten: list[tuple[Partition, DeleteRecordsPartitionResult]] = []
        for name, offsets in offsets_by_topic.items():
            allowed = topic_allowed(self._authorizer, call, Operation.DELETE, name)
            results = []
            for index, offset in offsets.items():
                yield LOOKUP_COST
                result = DeleteRecordsPartitionResult(index, NO_LOW_WATERMARK, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if allowed:
                    self._delete(name, offset, result, unwritten)
                results.append(result)
            response.topics.append(DeleteRecordsTopicResult(name, results))
        if not unwritten:
            return response
        call.reply = response
        starts: dict[tuple[str, int], int] = {partition.id: partition.start_offset for partition, _ in unwritten}
        written = Contained(partial(_written, call, [result for _, result in unwritten]), lambda: call.connection.handle_defect())
        self._store.save_start_offsets(starts, written)
        return None

    def _delete(
        self, name: str, offset: int, result: DeleteRecordsPartitionResult, unwritten: list[tuple[Partition, DeleteRecordsPartitionResult]]
    ) -> None:
        partition = self._partitions.find(name, result.partition_index)
        result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if partition is None else _offset_error(partition, offset)
        if partition is None or result.error_code:
            return
        before = partition.start_offset
        if offset != before:
            partition.owned_log.delete_before(partition.high_watermark if offset == HIGH_WATERMARK else offset)
        result.low_watermark = partition.start_offset
        if partition.start_offset > self._store.durable_starts.get(partition.id, 0):
            unwritten.append((partition, result))
        if partition.start_offset != before:
            partition.wake()


def _offset_error(partition: Partition, offset: int) -> int:
    if partition.topic.internal:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if partition.error:
        return partition.error
    if partition.settings.compact and not partition.settings.delete:
        return ErrorCode.POLICY_VIOLATION
    if offset != HIGH_WATERMARK and not 0 <= offset <= partition.high_watermark:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return ErrorCode.NONE


def _written(call: Call, results: list[DeleteRecordsPartitionResult], failure: Exception | None) -> None:
    if failure is not None:
        for result in results:
            result.low_watermark, result.error_code = NO_LOW_WATERMARK, ErrorCode.KAFKA_STORAGE_ERROR
    call.release()


def error_response(request: DeleteRecordsRequest, version: int, error: int) -> Response:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                topic.name,
                [DeleteRecordsPartitionResult(partition.partition_index, NO_LOW_WATERMARK, error) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )
