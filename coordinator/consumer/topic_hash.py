"""Kafka's hash of the topics of a group, which its record keeps: a group whose hash differs from its record's is assigned anew.

So groups stay as they are when Kafka opens a log of ours, or when we open one of Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from types import MappingProxyType
from typing import Final

from coordinator.consumer.xxh3 import xxh3_64

NO_RACKS: Final[Mapping[int, Iterable[str]]] = MappingProxyType({})
_VERSION: Final = b"\0"
_INT32: Final = Struct("<i").pack
_INT64: Final = Struct("<Q").pack


def hash_of_topic(id: bytes, name: str, partitions: int, racks: Mapping[int, Iterable[str]] = NO_RACKS) -> int:
    """A signed number of 64 bits. `racks`: by partition, those of its replicas."""
    text = name.encode("utf-16-le", "surrogatepass")
    head = [_VERSION, id[7::-1], id[:7:-1], text, _INT32(len(text) // 2), _INT32(partitions)]
    if not racks:
        return _signed(xxh3_64(b"".join(head) + Struct(f"<{partitions}i").pack(*range(partitions))))
    for partition in range(partitions):
        head.append(_INT32(partition))
        for rack in sorted(racks.get(partition, ())):
            text = rack.encode("utf-16-le", "surrogatepass")
            size = _INT32(len(text) // 2)
            head += [size, text, size]
    return _signed(xxh3_64(b"".join(head)))


def hash_of_topics(hashes: Iterable[int]) -> int:
    """The hash of a group by those of its existing topics, in the order of their names; 0 if there are none."""
    packed = b"".join([_INT64(code & (1 << 64) - 1) for code in hashes])
    return _signed(xxh3_64(packed)) if packed else 0


def _signed(code: int) -> int:
    return code - (1 << 64) if code >> 63 else code
