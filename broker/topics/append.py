"""A producer's batch on its way into the log of a partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from broker.topics.batch_checks import INLINE, Checked, Refusal, TooMuchWork, finish, prepare
from broker.topics.settings import PRODUCER, LogSettings
from protocol.batch import ATTRIBUTES_AT, COMPRESSION_MASK, BatchHeader
from storage import AppendFailed, Producers

NO_TIME: Final = -1

Written = tuple[int, int] | AppendFailed  # offset and time, or why it is not there

# How long checks may take in one pass of the loop; the batch that begins last may take some milliseconds longer.
PASS_NS: Final = 5_000_000
SMALL_BYTES: Final = 1_024  # an uncompressed batch below this is checked in no time


class Writable(Protocol):
    """What is asked of a partition (`broker.topics.partition`)."""

    settings: LogSettings
    producers: Producers

    def append(self, batch: bytearray, header: BatchHeader) -> int: ...

    def append_late(self, batch: bytearray, header: BatchHeader, done: Callable[[int | AppendFailed], None]) -> None: ...


class Later(Protocol):
    def schedule_end_turn(self, connection: Allowance) -> None: ...


class Allowance:
    """The time that checking batches may take in one pass of the loop, over all connections.

    A batch that turns out to be more than the loop may do ends the allowance of its pass, so that it is not tried twice.
    """

    __slots__ = ("_left_ns", "_monotonic_ns", "_noted", "_turn")

    def __init__(self, turn: Later, monotonic_ns: Callable[[], int]) -> None:
        self._turn = turn
        self._monotonic_ns = monotonic_ns
        self._left_ns = PASS_NS
        self._noted = False

    def prepare(
        self, data: bytes, at: int, size: int, settings: LogSettings, now: int, name: object
    ) -> tuple[bytearray, BatchHeader]:
        """Raises Refusal, and TooMuchWork for a batch that another process must check."""
        if self._left_ns <= 0:
            raise TooMuchWork
        if not self._noted:
            self._noted = True
            self._turn.schedule_end_turn(self)
        read = self._monotonic_ns
        begin = read()
        try:
            return prepare(data, at, size, settings, now, name, INLINE)
        except TooMuchWork:
            self._left_ns = 0
            raise
        finally:
            self._left_ns -= read() - begin

    def end_turn(self) -> None:
        self._left_ns = PASS_NS
        self._noted = False


def append(partition: Writable, data: bytes, at: int, size: int, now: int, allowance: Allowance) -> tuple[int, int]:
    """Where the batch of so many bytes at `at` begins in an immediate log, and when that was, where the broker's clock counts.

    Raises Refusal, TooMuchWork and AppendFailed; nothing was written then.
    """
    batch, header = _prepare(partition, data, at, size, now, allowance)
    known = _known(partition, header)
    if known is not None:
        return known
    offset = partition.append(batch, header)
    return offset, now if partition.settings.log_append_time else NO_TIME


def append_late(
    partition: Writable, data: bytes, size: int, now: int, allowance: Allowance, checked: Checked | None, done: Callable[[Written], None]
) -> None:
    """The same for all of `data`, in any log: `done` is called at once or later. `checked`: it was checked before."""
    settings = partition.settings
    if checked is not None:
        batch, header = finish(data, 0, size, settings, now, checked)
    else:
        batch, header = _prepare(partition, data, 0, size, now, allowance)
    known = _known(partition, header)
    if known is not None:
        done(known)
        return
    time = now if settings.log_append_time else NO_TIME
    partition.append_late(batch, header, lambda result: done(result if isinstance(result, AppendFailed) else (result, time)))


def _prepare(partition: Writable, data: bytes, at: int, size: int, now: int, allowance: Allowance) -> tuple[bytearray, BatchHeader]:
    settings = partition.settings
    if size <= SMALL_BYTES and settings.compression == PRODUCER and not _is_compressed(data, at, size):
        return prepare(data, at, size, settings, now, partition)
    return allowance.prepare(data, at, size, settings, now, partition)


def _is_compressed(data: bytes, at: int, size: int) -> bool:
    return size > ATTRIBUTES_AT + 1 and data[at + ATTRIBUTES_AT + 1] & COMPRESSION_MASK != 0


def _known(partition: Writable, header: BatchHeader) -> tuple[int, int] | None:
    """Where it is in the log since it was sent the first time. Raises Refusal for one out of order."""
    if header.producer_id < 0:
        return None
    verdict = partition.producers.check(header)
    if verdict.error:
        raise Refusal(verdict.error)
    return (verdict.offset, verdict.timestamp) if verdict.offset >= 0 else None
