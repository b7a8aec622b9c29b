"""The partition of __consumer_offsets that a group belongs to, by Kafka's hash."""

from __future__ import annotations

from operator import mul
from typing import Final

_POWERS: Final = [pow(31, exponent, 1 << 32) for exponent in range(512)]


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 code units, signed 32 bits."""
    if text.isascii():
        units: bytes | list[int] = text.encode()
    else:
        data = text.encode("utf-16-be", "surrogatepass")
        units = [data[at] << 8 | data[at + 1] for at in range(0, len(data), 2)]
    size = len(units)
    while size > len(_POWERS):
        _POWERS.append(_POWERS[-1] * 31 & 0xFFFFFFFF)
    code: int = sum(map(mul, units, _POWERS[size - 1 :: -1])) & 0xFFFFFFFF
    return code - (1 << 32) if code >= 1 << 31 else code


def partition_of(group_id: str, partitions: int) -> int:
    code = java_hash(group_id)
    return (0 if code == -(1 << 31) else abs(code)) % partitions
