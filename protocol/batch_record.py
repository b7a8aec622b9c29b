"""One record in a batch, and its zigzag varints.

Reading beyond the end of the bytes raises IndexError, which the reader of the batch catches once for all records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocol.errors import ProtocolError

RECORD_BYTES_MIN: Final = 7
INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
VARINT_SHIFT_MAX: Final = 28
VARLONG_SHIFT_MAX: Final = 63

Header = tuple[bytes, bytes | None]
Fact = tuple[bytes, bytes | None]  # key and value; a missing key is empty bytes


class CorruptBatch(ProtocolError):
    """The bytes are not a sound record batch."""


class CutShort(CorruptBatch):
    """The bytes end within a record."""


def as_int64(value: int) -> int:
    """The value as a Java long: times overflow as they do there."""
    return value if INT64_MIN <= value <= INT64_MAX else (value - INT64_MIN) % (1 << 64) + INT64_MIN


class Record:
    """One record; the names of headers are bytes."""

    __slots__ = ("headers", "key", "offset", "timestamp", "value")

    def __init__(
        self,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] = (),
    ) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = tuple(headers)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return (
            self.offset == other.offset
            and self.timestamp == other.timestamp
            and self.key == other.key
            and self.value == other.value
            and self.headers == other.headers
        )

    def __hash__(self) -> int:
        return hash((self.offset, self.timestamp, self.key, self.value, self.headers))

    def __repr__(self) -> str:
        return f"Record({self.offset}, {self.timestamp}, {self.key!r}, {self.value!r}, {self.headers!r})"


# Writing


def _encode_varint(value: int) -> bytes:
    n = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


VARINTS: Final = tuple(_encode_varint(n) for n in range(1024))  # for common lengths and deltas


def varint(value: int) -> bytes:
    return VARINTS[value] if 0 <= value < 1024 else _encode_varint(value)


def put_record(parts: list[bytes], record: Record, offset_delta: int, timestamp_delta: int) -> None:
    fields = [b"\0", varint(timestamp_delta), varint(offset_delta)]
    _put_bytes(fields, record.key)
    _put_bytes(fields, record.value)
    fields.append(varint(len(record.headers)))
    for name, value in record.headers:
        _put_bytes(fields, name)
        _put_bytes(fields, value)
    joined = b"".join(fields)
    parts.append(varint(len(joined)))
    parts.append(joined)


def _put_bytes(fields: list[bytes], data: bytes | None) -> None:
    if data is None:
        fields.append(b"\1")
    else:
        fields.append(varint(len(data)))
        fields.append(data)


# Reading


def longer_varint(data: bytes, at: int, n: int, shift_max: int) -> tuple[int, int]:
    """Read the remaining bytes of a varint after its first byte `n`. The result is still in zigzag encoding."""
    n &= 127
    shift = 7
    while True:
        byte = data[at]
        at += 1
        n |= (byte & 127) << shift
        if byte < 128:
            return n, at
        shift += 7
        if shift > shift_max:
            raise CorruptBatch("a varint is too long")


def _read_varint(data: bytes, at: int, shift_max: int) -> tuple[int, int]:
    n = data[at]
    at += 1
    if n > 127:
        n, at = longer_varint(data, at, n, shift_max)
    return (n >> 1) ^ -(n & 1), at


def _read_bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    size, at = _read_varint(data, at, VARINT_SHIFT_MAX)
    if size < 0:
        return None, at
    if size > end - at:
        raise CorruptBatch(f"a field of {size} bytes with {end - at} left in the record")
    return data[at : at + size], at + size


def read_record(data: bytes, at: int, end: int, base_offset: int, base_timestamp: int) -> tuple[Record, int]:
    size, at = _read_varint(data, at, VARINT_SHIFT_MAX)
    if not 0 <= size <= end - at:
        raise CorruptBatch(f"a record of {size} bytes with {end - at} left")
    end = at + size
    at += 1  # attributes, unused so far
    timestamp, at = _read_varint(data, at, VARLONG_SHIFT_MAX)
    delta, at = _read_varint(data, at, VARINT_SHIFT_MAX)
    key, at = _read_bytes(data, at, end)
    value, at = _read_bytes(data, at, end)
    headers: list[Header] = []
    count, at = _read_varint(data, at, VARINT_SHIFT_MAX)
    if not 0 <= count <= end - at:
        raise CorruptBatch(f"a record says {count} headers with {end - at} bytes left")
    for _ in range(count):
        name, at = _read_bytes(data, at, end)
        if name is None:
            raise CorruptBatch("a header without a name")
        header_value, at = _read_bytes(data, at, end)
        headers.append((name, header_value))
    if at != end:
        raise CorruptBatch("a record's fields are not as long as the record")
    return Record(base_offset + delta, as_int64(timestamp + base_timestamp), key, value, headers), end


def read_keys(data: bytes, at: int, end: int, count: int) -> list[tuple[int, bytes | None, bool]]:
    """For each of `count` records the offset delta, key and whether it is a tombstone, as a compaction needs them."""
    keys: list[tuple[int, bytes | None, bool]] = []
    for _ in range(count):
        n = data[at]
        at += 1
        if n > 127:
            n, at = longer_varint(data, at, n, VARINT_SHIFT_MAX)
        stop = at + (n >> 1)
        if n & 1 or stop > end:
            raise CorruptBatch(f"a record of {n >> 1} bytes with {end - at} left")
        at += 1
        while data[at] > 127:  # the timestamp, unread
            at += 1
        delta = data[at + 1]
        at += 2
        if delta > 127:
            delta, at = longer_varint(data, at, delta, VARINT_SHIFT_MAX)
        n = data[at]
        at += 1
        if n > 127:
            n, at = longer_varint(data, at, n, VARINT_SHIFT_MAX)
        key: bytes | None = None
        if not n & 1:
            key_end = at + (n >> 1)
            key = data[at:key_end]
            at = key_end
        if at >= stop or delta & 1:
            raise CorruptBatch("a record's fields are longer than the record")
        keys.append((delta >> 1, key, bool(data[at] & 1)))
        at = stop
    return keys
