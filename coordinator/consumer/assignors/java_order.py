"""The order in which Java's hash tables hand out what they hold. Kafka's `uniform` assignor visits members, topics and partitions in it.

A table is not built: its order is a stable sort by bucket. Java turns a bucket with more than eight entries into a tree if the table has 64
buckets or more, and the order in a tree is not known here: random ids do not fill a bucket, and partitions do so rarely.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, TypeVar

from coordinator.group_partition import java_hash

T = TypeVar("T")

_BUCKETS_MIN: Final = 16
_LANE_BYTES: Final = 8
_LANES_MIN: Final = 64  # fewer texts are hashed one by one
_UNMASKED_STEPS: Final = 5  # a lane of 64 bits has room for a hash of 32 bits that is multiplied by 31 five times
_CHAIN_MAX: Final = 8
_TREE_BUCKETS_MIN: Final = 64
_PLAIN_MAX: Final = 0xFFFF  # a number up to this one is its own hash, as far as tables look at it
_UUID: Final = Struct(">qq").unpack
_UINT32: Final = 0xFFFFFFFF
_COORDINATOR_MULTIPLIER: Final = -7046029254386353131
_UINT64: Final = (1 << 64) - 1


def hashes(texts: Sequence[str]) -> list[int]:
    """Java's String.hashCode of each text, unsigned.

    ASCII texts of one length, as the ids of members are, are hashed together: each is a lane of a long integer.
    """
    size = len(texts[0]) if texts else 0
    joined = "".join(texts)
    if len(texts) < _LANES_MIN or not size or len(joined) != size * len(texts) or not joined.isascii() or set(map(len, texts)) != {size}:
        return [java_hash(text) & _UINT32 for text in texts]
    data = joined.encode()
    lanes = bytearray(_LANE_BYTES * len(texts))
    mask = int.from_bytes(b"\xff\xff\xff\xff\0\0\0\0" * len(texts), "little")
    codes = 0
    for column in range(size):
        lanes[::_LANE_BYTES] = data[column::size]
        codes = codes * 31 + int.from_bytes(lanes, "little")
        if column % _UNMASKED_STEPS == _UNMASKED_STEPS - 1:
            codes &= mask
    codes &= mask
    return memoryview(codes.to_bytes(len(lanes), "little")).cast("Q").tolist()


def buckets_of(size: int, first: int = _BUCKETS_MIN) -> int:
    """The buckets of a HashMap or HashSet that grew to this size, and had `first` buckets in the beginning."""
    buckets = first
    while size > buckets * 3 // 4:
        buckets *= 2
    return buckets


def copied_buckets(size: int) -> int:
    """The buckets of a HashSet that was made of a collection of this size."""
    wanted = max(int(size / 0.75) + 1, _BUCKETS_MIN)
    return 1 << (wanted - 1).bit_length()


def by_bucket(items: Sequence[T], codes: Iterable[int], buckets: int) -> list[T]:
    """`items` as a HashMap with this many buckets iterates over them, if they were added in this order."""
    slots = [(code ^ code >> 16) & buckets - 1 for code in codes]
    return [items[at] for at in sorted(range(len(items)), key=slots.__getitem__)]


def in_text_order(texts: Sequence[str]) -> list[str]:
    """The order of a HashSet of texts."""
    return by_bucket(texts, hashes(texts), copied_buckets(len(texts)))


def id_hash(id: bytes) -> int:
    """Kafka's Uuid.hashCode, unsigned."""
    most, least = _UUID(id)
    both: int = most ^ least
    return (both >> 32 ^ both) & _UINT32


def in_id_order(ids: Sequence[bytes], buckets: int) -> list[bytes]:
    if len(ids) < 2:
        return list(ids)
    return by_bucket(ids, map(id_hash, ids), buckets)


def in_number_order(numbers: Sequence[int], first: int = _BUCKETS_MIN) -> Sequence[int]:
    """The order of a HashSet of partitions that had `first` buckets in the beginning, and to which they were added in this order."""
    buckets = buckets_of(len(numbers), first)
    if not numbers or max(numbers) < buckets:
        return sorted(numbers)  # one in a bucket
    if len(numbers) > _CHAIN_MAX and buckets < _TREE_BUCKETS_MIN:
        buckets = chained_buckets(numbers, buckets, first)
    return by_bucket(numbers, numbers, buckets) if max(numbers) > _PLAIN_MAX else sorted(numbers, key=(buckets - 1).__and__)


def chained_buckets(numbers: Sequence[int], buckets: int, first: int) -> int:
    """A table of fewer than 64 buckets is also doubled when a ninth entry comes into one of them."""
    if max(Counter([_slot(number, buckets) for number in numbers]).values()) <= _CHAIN_MAX:
        return buckets
    buckets = first
    for size, number in enumerate(numbers, 1):
        before = numbers[: size - 1]
        slot = _slot(number, buckets)
        if buckets < _TREE_BUCKETS_MIN and sum([_slot(other, buckets) == slot for other in before]) >= _CHAIN_MAX:
            buckets *= 2
        if size > buckets * 3 // 4:
            buckets *= 2
    return buckets


def _slot(code: int, buckets: int) -> int:
    return (code ^ code >> 16) & buckets - 1


def in_run_order(numbers: list[int], buckets: int) -> list[int]:
    """As `in_number_order`, of consecutive numbers that have a bucket each."""
    wrap = -numbers[0] & buckets - 1  # behind the last bucket comes the first
    return numbers[wrap:] + numbers[:wrap] if numbers[-1] <= _PLAIN_MAX else by_bucket(numbers, numbers, buckets)


class CoordinatorOrder:
    """The order of the coordinator's own table of members, Kafka's TimelineHashMap: it only grows, and its newest entry comes first in a slot."""

    def __init__(self) -> None:
        self._slots = 2
        self._entries: dict[str, None] = {}  # the oldest first

    def put(self, id: str) -> None:
        """A member is new, or changed: Kafka then puts it again, in the same place, but with a check of the table's room."""
        if (len(self._entries) + 1) * 3 > self._slots * 4:
            self._slots *= 2
        self._entries[id] = None

    def remove(self, id: str) -> None:
        del self._entries[id]

    def ids(self) -> list[str]:
        newest_first = list(self._entries)[::-1]
        shift = 64 - (self._slots.bit_length() - 1)
        # The hash is a signed number.
        slots = [((code - (code >> 31 << 32)) * _COORDINATOR_MULTIPLIER & _UINT64) >> shift for code in hashes(newest_first)]
        return [newest_first[at] for at in sorted(range(len(newest_first)), key=slots.__getitem__)]
