"""Append batches, and build the results of partitions in a Produce reply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.runtime.clock import Clock
from broker.topics.append import NO_TIME, AppendResult, CheckTimeBudget, append, append_async
from broker.topics.batch_checks import BatchRefused, Checked
from broker.topics.partitions import Partition
from protocol.errors import ErrorCode
from protocol.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse
from storage import AppendFailed

NO_OFFSET: Final = -1


def failed_reply(index: int, error: int, message: str | None = None) -> PartitionProduceResponse:
    return PartitionProduceResponse(index, error, NO_OFFSET, NO_TIME, NO_OFFSET, [], message)


def refused_reply(partition: Partition, refusal: BatchRefused) -> PartitionProduceResponse:
    start = partition.start_offset if refusal.with_start else NO_OFFSET
    errors = [BatchIndexAndErrorMessage(record.record, record.message) for record in refusal.records]
    return PartitionProduceResponse(partition.index, refusal.error, NO_OFFSET, NO_TIME, start, errors, refusal.message)


class Appender:
    """Appends batches to partitions whose `error` is 0."""

    def __init__(self, clock: Clock, budget: CheckTimeBudget) -> None:
        self._clock = clock
        self._check_budget = budget

    def __call__(self, partition: Partition, data: bytes, at: int, size: int) -> PartitionProduceResponse:
        """Append to a log that assigns offsets at once. If TooMuchWork is raised, nothing was written."""
        try:
            offset, time = append(partition, data, at, size, self._clock.wall, self._check_budget)
        except BatchRefused as refusal:
            return refused_reply(partition, refusal)
        except AppendFailed:
            return failed_reply(partition.index, ErrorCode.KAFKA_STORAGE_ERROR)
        return PartitionProduceResponse(partition.index, ErrorCode.NONE, offset, time, partition.start_offset)

    def append_async(self, partition: Partition, data: bytes, size: int, checked: Checked | None, done: Callable[[PartitionProduceResponse], None]) -> None:
        """Append, also to a log that assigns offsets later. `checked`: the result of a check by a child process, if there was one."""

        def written(result: AppendResult) -> None:
            if isinstance(result, AppendFailed):
                done(failed_reply(partition.index, ErrorCode.KAFKA_STORAGE_ERROR))
            else:
                done(PartitionProduceResponse(partition.index, ErrorCode.NONE, *result, partition.start_offset))

        if checked is not None:  # the check took a while
            self._clock.tick()
        try:
            append_async(partition, data, size, self._clock.wall, self._check_budget, checked, written)
        except BatchRefused as refusal:
            done(refused_reply(partition, refusal))
