"""Check a producer's batch and append it to the log of a partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from broker.runtime.turn import EndTurnScheduler
from broker.topics.batch_checks import INLINE_LIMITS, BatchRefused, Checked, TooMuchWork, finish, prepare
from broker.topics.settings import PRODUCER, LogSettings
from protocol.batch import ATTRIBUTES_AT, COMPRESSION_MASK, BatchHeader
from protocol.errors import ErrorCode
from storage import AppendFailed, Producers

NO_TIME: Final = -1

AppendResult = tuple[int, int] | AppendFailed  # offset and time, or the failure

# The time for checks in one pass of the event loop; the last check may exceed it by some milliseconds.
PASS_NS: Final = 5_000_000
SMALL_BYTES: Final = 1_024  # checking a smaller uncompressed batch takes negligible time


class Writable(Protocol):
    """The part of `broker.topics.partition.Partition` that appending uses."""

    settings: LogSettings
    producers: Producers

    @property
    def batch_bytes_max(self) -> int: ...

    def append(self, batch: bytearray, header: BatchHeader) -> int: ...

    def append_async(self, batch: bytearray, header: BatchHeader, done: Callable[[int | AppendFailed], None]) -> None: ...


class CheckTimeBudget:
    """The time for checking batches in one pass of the event loop, over all connections.

    A batch that is too much work for the loop uses up the check budget of its pass.
    """

    __slots__ = ("_monotonic_ns", "_remaining_ns", "_scheduled", "_turn")

    def __init__(self, turn: EndTurnScheduler, monotonic_ns: Callable[[], int]) -> None:
        self._turn = turn
        self._monotonic_ns = monotonic_ns
        self._remaining_ns = PASS_NS
        self._scheduled = False

    def prepare(self, data: bytes, at: int, size: int, settings: LogSettings, now: int, name: object) -> tuple[bytearray, BatchHeader]:
        """Check the batch within the check budget. Raises BatchRefused, or TooMuchWork for a batch that a child process must check."""
        if self._remaining_ns <= 0:
            raise TooMuchWork
        if not self._scheduled:
            self._scheduled = True
            self._turn.call_at_turn_end(self)
        read = self._monotonic_ns
        begin = read()
        try:
            return prepare(data, at, size, settings, now, name, INLINE_LIMITS)
        except TooMuchWork:
            self._remaining_ns = 0
            raise
        finally:
            self._remaining_ns -= read() - begin

    def end_turn(self) -> None:
        self._remaining_ns = PASS_NS
        self._scheduled = False


def append(partition: Writable, data: bytes, at: int, size: int, now: int, budget: CheckTimeBudget) -> tuple[int, int]:
    """Append the batch `data[at : at + size]` to a log that assigns offsets at once; returns its offset, and its time if LogAppendTime is set.

    If it raises (BatchRefused, TooMuchWork or AppendFailed), nothing was written.
    """
    batch, header = _prepare(partition, data, at, size, now, budget)
    stored = _find_duplicate(partition, header)
    if stored is not None:
        return stored
    offset = partition.append(batch, header)
    return offset, now if partition.settings.log_append_time else NO_TIME


def append_async(
    partition: Writable, data: bytes, size: int, now: int, budget: CheckTimeBudget, checked: Checked | None, done: Callable[[AppendResult], None]
) -> None:
    """Append all of `data`, also to a log that assigns offsets later; `done` is called at once or later.

    `checked`: the result of an earlier check, if there was one. Raises BatchRefused and, without `checked`, TooMuchWork.
    """
    settings = partition.settings
    if checked is not None:
        batch, header = finish(data, 0, size, settings, now, checked)
    else:
        batch, header = _prepare(partition, data, 0, size, now, budget)
    stored = _find_duplicate(partition, header)
    if stored is not None:
        done(stored)
        return
    if len(batch) > partition.batch_bytes_max:
        raise BatchRefused(ErrorCode.MESSAGE_TOO_LARGE, with_start=False)
    time = now if settings.log_append_time else NO_TIME
    partition.append_async(batch, header, lambda result: done(result if isinstance(result, AppendFailed) else (result, time)))


def _prepare(partition: Writable, data: bytes, at: int, size: int, now: int, budget: CheckTimeBudget) -> tuple[bytearray, BatchHeader]:
    settings = partition.settings
    if size <= SMALL_BYTES and settings.compression_type == PRODUCER and not _is_compressed(data, at, size):
        return prepare(data, at, size, settings, now, partition)
    return budget.prepare(data, at, size, settings, now, partition)


def _is_compressed(data: bytes, at: int, size: int) -> bool:
    return size > ATTRIBUTES_AT + 1 and data[at + ATTRIBUTES_AT + 1] & COMPRESSION_MASK != 0


def _find_duplicate(partition: Writable, header: BatchHeader) -> tuple[int, int] | None:
    """If an idempotent producer repeats a stored batch, its stored offset and time, else None. Raises BatchRefused if the sequence is wrong."""
    if header.producer_id < 0:
        return None
    verdict = partition.producers.check(header)
    if verdict.error:
        raise BatchRefused(verdict.error)
    return (verdict.offset, verdict.timestamp) if verdict.offset >= 0 else None
