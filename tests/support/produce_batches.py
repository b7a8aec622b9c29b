"""Batches and records of arbitrary bytes, such as no producer would write."""

from __future__ import annotations

import zlib
from struct import Struct, pack
from typing import Any, Final

import google_crc32c

from protocol.compression import compress

HOUR_MS: Final = 3_600_000
THEN: Final = 1_700_000_000_000  # an ordinary timestamp
INT64: Final = (-(1 << 63), (1 << 63) - 1)
INT32: Final = (-(1 << 31), (1 << 31) - 1)
INT16: Final = (-(1 << 15), (1 << 15) - 1)

HEADER: Final = Struct(">qiibIhiqqqhii")
NAMES: Final = (
    "base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta", "base_timestamp", "max_timestamp",
    "producer_id", "producer_epoch", "base_sequence", "record_count",
)  # fmt: skip
LIMITS: Final = dict(
    zip(NAMES, (INT64, INT32, INT32, (-128, 127), (0, (1 << 32) - 1), INT16, INT32, INT64, INT64, INT64, INT16, INT32, INT32), strict=True)
)


# Bytes that no producer would write.


def varint(value: int) -> bytes:
    n = (value << 1) ^ (value >> 63)
    out = bytearray()
    n &= (1 << 64) - 1
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def blob(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    delta: int = 0,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    timestamp: int = 0,
    attributes: int = 0,
    headers: bytes = b"\0",
    trailing: bytes = b"",
    longer: int = 0,
) -> bytes:
    """A record; its length field is `longer` bytes too large."""
    body = pack(">B", attributes) + varint(timestamp) + varint(delta) + blob(key) + blob(value) + headers + trailing
    return varint(len(body) + longer) + body


def batch(*parts: bytes, codec: int = 0, raw: Any = None, **fields: int) -> bytes:
    """A batch of these records, or of the bytes `raw`. `fields` replace header fields; `longer` makes the length field too large by that much."""
    longer = fields.pop("longer", 0)
    body = compress(b"".join(parts), codec) if raw is None else raw
    count = len(parts)
    newest = fields.get("base_timestamp", THEN)
    values = {
        "base_offset": 0, "length": HEADER.size - 12 + len(body) + longer, "leader_epoch": -1, "magic": 2, "crc": 0, "attributes": codec,
        "last_offset_delta": count - 1, "base_timestamp": THEN, "max_timestamp": newest, "producer_id": -1, "producer_epoch": -1,
        "base_sequence": -1, "record_count": count,
    } | fields  # fmt: skip
    data = HEADER.pack(*values.values()) + body
    if "crc" not in fields:
        data = data[:17] + pack(">I", google_crc32c.value(data[21:])) + data[21:]
    return data


def old_message(magic: int) -> bytes:
    """A message in the format that Kafka had before record batches: magic 0 or 1."""
    body = pack(">bb", magic, 0) + (pack(">q", THEN) if magic else b"")
    for data in (b"key", b"value"):
        body += pack(">i", len(data)) + data
    return pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def plain_batch(**fields: int) -> bytes:
    return batch(record(), **fields)


def batch_of_three(**fields: int) -> bytes:
    return batch(record(0), record(1, timestamp=5), record(2, timestamp=3), **({"max_timestamp": THEN + 5} | fields))


def batch_of_size(size: int, **fields: int) -> bytes:
    """A batch of exactly `size` bytes."""
    value = bytes(size - 80)
    data = batch(record(value=value), **fields)
    while len(data) != size:
        value = bytes(len(value) + size - len(data))
        data = batch(record(value=value), **fields)
    return data


def producer_batch(sequence: int, count: int = 1, epoch: int = 0, id: int = 7, **fields: int) -> bytes:
    return batch(*[record(number) for number in range(count)], producer_id=id, producer_epoch=epoch, base_sequence=sequence, **fields)
