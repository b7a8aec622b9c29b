"""Chooses the partition of a record: by its key, as Kafka's clients do.

Records without a key stay at one partition for a whole batch, or take the partitions in turn (round robin).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import cycle
from typing import Final

SEED: Final = 0x9747B28C
FACTOR: Final = 0x5BD1E995
WORD: Final = 0xFFFFFFFF
STICK_BYTES: Final = 64 * 1024  # of records without a key that one partition gets before the next: batches are large, and partitions get equal shares


def murmur2(data: bytes) -> int:
    """32-bit MurmurHash2 with the seed of Kafka's Java client, which other clients also use."""
    size = len(data)
    code = SEED ^ size
    aligned = size & ~3
    for at in range(0, aligned, 4):
        word = int.from_bytes(data[at : at + 4], "little") * FACTOR & WORD
        word = (word ^ word >> 24) * FACTOR & WORD
        code = code * FACTOR & WORD ^ word
    if size > aligned:
        code = (code ^ int.from_bytes(data[aligned:], "little")) * FACTOR & WORD
    code = (code ^ code >> 13) * FACTOR & WORD
    return code ^ code >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class Partitioner:
    """Chooses partitions. `usable`: partitions with a leader, among which it chooses for records without a key."""

    __slots__ = ("_at", "_bytes", "_random", "_round_robin", "_turns", "partitions", "usable")

    def __init__(self, partitions: int, usable: Sequence[int], random_source: random.Random | None = None, *, round_robin: bool = False) -> None:
        self.partitions = partitions
        self.usable = list(usable) or list(range(partitions))
        self._random = random_source or random.Random()
        self._round_robin = round_robin
        self._at = self._random.choice(self.usable)
        self._bytes = 0
        begin = self.usable.index(self._at)  # commands that send one record each do not all choose the first partition
        self._turns = cycle(self.usable[begin:] + self.usable[:begin])

    def choose(self, key: bytes | None, size: int) -> int:
        if key is not None:
            return partition_of_key(key, self.partitions)
        if self._round_robin:
            return next(self._turns)
        if self._bytes + size > STICK_BYTES and self._bytes:
            self.switch()
        self._bytes += size
        return self._at

    def switch(self) -> None:
        """Switch to another partition, if there is one, after a batch was sent. Round robin needs no switch."""
        if self._round_robin:
            return
        candidates = [partition for partition in self.usable if partition != self._at] or self.usable
        self._at = self._random.choice(candidates)
        self._bytes = 0
