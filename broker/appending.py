"""A producer's batch on its way into the log of a partition."""

from __future__ import annotations

from typing import Final, Protocol

from broker.batch_checks import Refusal, prepare
from broker.topic_settings import LogSettings
from protocol.batch import BatchHeader
from storage import Producers

NO_TIME: Final = -1


class Writable(Protocol):
    """What is asked of a partition (`broker.partition`)."""

    settings: LogSettings
    producers: Producers

    def append(self, batch: bytearray, header: BatchHeader) -> int: ...


def append(partition: Writable, data: bytes, at: int, size: int, now: int) -> tuple[int, int]:
    """Where the batch of so many bytes at `at` begins in the log, and when that was, where the broker's clock counts.

    Raises Refusal and AppendFailed; nothing was written then.
    """
    settings = partition.settings
    batch, header = prepare(data, at, size, settings, now, partition)
    if header.producer_id >= 0:
        verdict = partition.producers.check(header)
        if verdict.error:
            raise Refusal(verdict.error)
        if verdict.offset >= 0:  # it is there since it was sent the first time
            return verdict.offset, verdict.timestamp
    offset = partition.append(batch, header)
    return offset, now if settings.log_append_time else NO_TIME
