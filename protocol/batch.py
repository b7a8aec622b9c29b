"""Record batch v2: what Produce and Fetch carry and what a segment stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

import google_crc32c

from protocol.errors import ProtocolError

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = 61
LENGTH_AT: Final = 8
CRC_FROM: Final = 21  # the checksum covers everything from the attributes on
_STAMP: Final = Struct(">qii")
_CRC: Final = Struct(">I")
_BODY: Final = Struct(">hiqqqhii")

Fact = tuple[bytes, bytes | None]


class CorruptBatch(ProtocolError):
    """Bytes that are no sound record batch."""


def put_varint(out: bytearray, value: int) -> None:
    n = (value << 1) ^ (value >> 63)
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)


def build_facts(facts: Sequence[Fact], timestamp: int) -> bytes:
    """A batch of keys and values that share one timestamp."""
    records = bytearray()
    for delta, (key, value) in enumerate(facts):
        record = bytearray(b"\0\0")
        put_varint(record, delta)
        put_varint(record, len(key))
        record += key
        if value is None:
            record.append(1)
        else:
            put_varint(record, len(value))
            record += value
        record.append(0)
        put_varint(records, len(record))
        records += record
    body = _BODY.pack(0, len(facts) - 1, timestamp, timestamp, -1, -1, -1, len(facts)) + bytes(records)
    return _STAMP.pack(0, 9 + len(body), -1) + b"\2" + _CRC.pack(google_crc32c.value(body)) + body


def batch_bounds(data: bytes) -> Iterator[tuple[int, int]]:
    at = 0
    while at + HEADER_BYTES <= len(data):
        (size,) = Struct(">i").unpack_from(data, at + LENGTH_AT)
        yield at, at + 12 + size
        at += 12 + size


def get_varint(data: bytes, at: int) -> tuple[int, int]:
    shift = n = 0
    while True:
        byte = data[at]
        at += 1
        n |= (byte & 127) << shift
        if byte < 128:
            return (n >> 1) ^ -(n & 1), at
        shift += 7
        if shift > 63:
            raise CorruptBatch("a varint is longer than ten bytes")


def facts_of(batches: bytes) -> Iterator[Fact]:
    """Key and value of every record in whole, uncompressed batches."""
    for begin, _ in batch_bounds(batches):
        count = HEADER.unpack_from(batches, begin)[12]
        at = begin + HEADER_BYTES
        for _ in range(count):
            size, at = get_varint(batches, at)
            end = at + size
            at += 1
            _, at = get_varint(batches, at)
            _, at = get_varint(batches, at)
            n, at = get_varint(batches, at)
            key = batches[at : at + n] if n >= 0 else b""
            at += max(n, 0)
            n, at = get_varint(batches, at)
            value = batches[at : at + n] if n >= 0 else None
            yield key, value
            at = end


class BatchHeader:
    __slots__ = ("base_offset", "last_offset", "max_timestamp", "record_count", "size")

    def __init__(self, base_offset: int, size: int, last_offset: int, max_timestamp: int, record_count: int) -> None:
        self.base_offset = base_offset
        self.size = size
        self.last_offset = last_offset
        self.max_timestamp = max_timestamp
        self.record_count = record_count


def read_header(data: bytes | bytearray, at: int) -> BatchHeader:
    if len(data) - at < HEADER_BYTES:
        raise CorruptBatch("a batch header is cut short")
    base, length, _epoch, magic, _crc, _attributes, last, _first, newest, _pid, _pe, _seq, count = HEADER.unpack_from(data, at)
    if magic != 2:
        raise CorruptBatch(f"a batch of magic {magic}")
    return BatchHeader(base, 12 + length, base + last, newest, count)


def stamp(batch: bytearray, at: int, base_offset: int, leader_epoch: int) -> None:
    (length,) = Struct(">i").unpack_from(batch, at + 8)
    _STAMP.pack_into(batch, at, base_offset, length, leader_epoch)


def validate(data: bytes, at: int, end: int) -> BatchHeader:
    header = read_header(data, at)
    if header.size > end - at or header.size < HEADER_BYTES:
        raise CorruptBatch("a batch is cut short")
    (crc,) = _CRC.unpack_from(data, at + 17)
    if google_crc32c.value(bytes(data[at + CRC_FROM : at + header.size])) != crc:
        raise CorruptBatch("a batch's checksum is wrong")
    return header
