"""A producer's batch on its way into the log of a partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from broker.topics.batch_checks import INLINE, Checked, Refusal, TooMuchWork, finish, prepare
from broker.topics.settings import PRODUCER, LogSettings
from protocol.batch import ATTRIBUTES_AT, COMPRESSION_MASK, BatchHeader
from storage import Producers

NO_TIME: Final = -1

# How long checks may take in one pass of the loop; the batch that begins last may take some milliseconds longer.
PASS_NS: Final = 5_000_000
SMALL_BYTES: Final = 1_024  # an uncompressed batch below this is checked in no time


class Writable(Protocol):
    """What is asked of a partition (`broker.topics.partition`)."""

    settings: LogSettings
    producers: Producers

    def append(self, batch: bytearray, header: BatchHeader) -> int: ...


class Later(Protocol):
    def later(self, connection: Allowance) -> None: ...


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
            self._turn.later(self)
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
    """Where the batch of so many bytes at `at` begins in the log, and when that was, where the broker's clock counts.

    Raises Refusal, TooMuchWork and AppendFailed; nothing was written then.
    """
    settings = partition.settings
    if size <= SMALL_BYTES and settings.compression == PRODUCER and not _is_compressed(data, at, size):
        batch, header = prepare(data, at, size, settings, now, partition)
    else:
        batch, header = allowance.prepare(data, at, size, settings, now, partition)
    return _write(partition, batch, header, now)


def append_checked(partition: Writable, data: bytes, size: int, now: int, checked: Checked) -> tuple[int, int]:
    """The same for all of `data`, a batch that was checked before."""
    batch, header = finish(data, 0, size, partition.settings, now, checked)
    return _write(partition, batch, header, now)


def _is_compressed(data: bytes, at: int, size: int) -> bool:
    return size > ATTRIBUTES_AT + 1 and data[at + ATTRIBUTES_AT + 1] & COMPRESSION_MASK != 0


def _write(partition: Writable, batch: bytearray, header: BatchHeader, now: int) -> tuple[int, int]:
    if header.producer_id >= 0:
        verdict = partition.producers.check(header)
        if verdict.error:
            raise Refusal(verdict.error)
        if verdict.offset >= 0:  # it is there since it was sent the first time
            return verdict.offset, verdict.timestamp
    offset = partition.append(batch, header)
    return offset, now if partition.settings.log_append_time else NO_TIME
