"""Topics of the simulated cluster: their end offsets over time, and sparse log folders with those offsets."""

from __future__ import annotations

import re
from math import sin, tau
from struct import pack_into
from typing import Final

import google_crc32c

from pipeline.demo.directory import Directory
from protocol.batch import CRC_FROM, SPAN_AT, Record, build

DAY_MS: Final = 86_400_000
HOUR_MS: Final = 3_600_000
DAILY_SWING: Final = 0.6  # amplitude of the daily swing, as a share of the average rate
BUSIEST_MS: Final = 14 * HOUR_MS
CRC_AT: Final = 17
VALUE: Final = bytes(400)  # large enough that the time index gets entries


class Topic:
    """`per_s`: records per second on average, over all partitions; the first partitions get more."""

    def __init__(self, name: str, partitions: int, per_s: float, start_ms: int, retention_ms: int = 7 * DAY_MS) -> None:
        self.name = name
        self.partitions = partitions
        self.retention_ms = retention_ms
        self._start_ms = start_ms
        weights = [2.0 if number < partitions // 8 else 1.0 for number in range(partitions)]
        self._per_ms = [per_s * weight / sum(weights) / 1000 for weight in weights]

    @property
    def has_legal_name(self) -> bool:
        """Whether Kafka allows the name, so that this broker stores the topic."""
        return re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", self.name) is not None

    def end(self, partition: int, at_ms: int) -> int:
        """The end offset: the integral of a rate that varies with the time of day, from a week before the simulated week on."""
        age = at_ms - self._start_ms + 7 * DAY_MS
        phase = tau * (age % DAY_MS - BUSIEST_MS) / DAY_MS
        integral = age + DAILY_SWING * DAY_MS / tau * (sin(phase) - sin(-tau * BUSIEST_MS / DAY_MS))
        return max(int(self._per_ms[partition] * integral), 0)

    def log_start(self, partition: int, at_ms: int) -> int:
        """The log start offset after retention."""
        return self.end(partition, max(at_ms - self.retention_ms, self._start_ms - 7 * DAY_MS))

    def write(self, directory: Directory, until_ms: int) -> None:
        """Write one batch per hour, with one record, as after compaction: right offsets and times in few bytes."""
        for partition in range(self.partitions):
            at = max(until_ms - self.retention_ms, self._start_ms - 7 * DAY_MS)
            begin = self.end(partition, at)
            log = directory.topic_log(self.name, partition, begin)
            while at < until_ms:
                at = min(at + HOUR_MS, until_ms)
                end = self.end(partition, at)
                if end > begin:
                    log.append(spanning(end - begin, at), 0)
                    begin = end


def spanning(offsets: int, at_ms: int) -> bytearray:
    """A batch with one record that covers this many offsets."""
    batch = bytearray(build([Record(0, at_ms, None, VALUE)]))
    pack_into(">i", batch, SPAN_AT, offsets - 1)
    pack_into(">I", batch, CRC_AT, google_crc32c.value(bytes(batch[CRC_FROM:])))
    return batch
