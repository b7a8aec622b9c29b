"""The partition of a record: by its key as in Kafka's clients, without a key one partition for a while."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

SEED: Final = 0x9747B28C
FACTOR: Final = 0x5BD1E995
WORD: Final = 0xFFFFFFFF
STICK_BYTES: Final = 64 * 1024  # bytes for one partition before switching to the next: large batches, spread nevertheless


def murmur2(data: bytes) -> int:
    """MurmurHash2 in 32 bits with the seed of Kafka's Java client: clients in other languages agree on it."""
    size = len(data)
    code = SEED ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * FACTOR & WORD
        word = (word ^ word >> 24) * FACTOR & WORD
        code = code * FACTOR & WORD ^ word
    if size > whole:
        code = (code ^ int.from_bytes(data[whole:], "little")) * FACTOR & WORD
    code = (code ^ code >> 13) * FACTOR & WORD
    return code ^ code >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class Partitioner:
    """Chooses for records that name no partition. `usable` are the partitions that have a leader; a key does not ask."""

    __slots__ = ("_at", "_bytes", "_chance", "partitions", "usable")

    def __init__(self, partitions: int, usable: Sequence[int], chance: random.Random | None = None) -> None:
        self.partitions = partitions
        self.usable = list(usable) or list(range(partitions))
        self._chance = chance or random.Random()
        self._at = self._chance.choice(self.usable)
        self._bytes = 0

    def choose(self, key: bytes | None, size: int) -> int:
        if key is not None:
            return partition_of_key(key, self.partitions)
        if self._bytes + size > STICK_BYTES and self._bytes:
            self.move()
        self._bytes += size
        return self._at

    def move(self) -> None:
        """Switch to another partition, if there is one: the collected batch has been sent."""
        others = [partition for partition in self.usable if partition != self._at] or self.usable
        self._at = self._chance.choice(others)
        self._bytes = 0
