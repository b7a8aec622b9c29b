"""Containers of records, made by hand: batches whose compressed part has any frames, members, streams, blocks and flags."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import cramjam
import google_crc32c

from protocol.batch_record import Record, put_record

LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
SKIPPABLE: Final = b"\x50\x2a\x4d\x18\4\0\0\0abcd"  # a skippable frame of LZ4 and zstd
CONTENT_CHECKSUM, CONTENT_SIZE, BLOCK_CHECKSUM = 0x04, 0x08, 0x10  # flags of an LZ4 frame
INDEPENDENT: Final = 0x60  # version 1, independent blocks
_MASK: Final = 0xFFFFFFFF
_PRIMES: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_PREFIX: Final = struct.Struct(">qiibI")
_BODY: Final = struct.Struct(">hiqqqhii")


def encoded_records(count: int, delta: int = 0, value: bytes = b"value") -> bytes:
    """Records whose timestamps are `delta` after the batch's first timestamp."""
    parts: list[bytes] = []
    for index in range(count):
        put_record(parts, Record(index, 0, b"key%d" % index, value, []), index, delta)
    return b"".join(parts)


def batch(payload: bytes, count: int, attributes: int, first: int = 1_000, newest: int = 1_000, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    """A batch with this payload, compressed or not, and a right checksum."""
    body = _BODY.pack(attributes, count - 1, first, newest, *producer, count) + payload
    return _PREFIX.pack(0, len(body) + 9, -1, 2, google_crc32c.value(body)) + body


def xxh32(data: bytes) -> int:
    """The checksum of LZ4 frames."""
    one, two, three, four, five = _PRIMES

    def turned(value: int, bits: int) -> int:
        return ((value << bits) | (value >> (32 - bits))) & _MASK

    at = 0
    if len(data) >= 16:
        lanes = [(one + two) & _MASK, two, 0, -one & _MASK]
        while at <= len(data) - 16:
            for lane in range(4):
                lanes[lane] = turned((lanes[lane] + int.from_bytes(data[at : at + 4], "little") * two) & _MASK, 13) * one & _MASK
                at += 4
        value = sum(turned(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
    else:
        value = five
    value = (value + len(data)) & _MASK
    while at <= len(data) - 4:
        value = turned((value + int.from_bytes(data[at : at + 4], "little") * three) & _MASK, 17) * four & _MASK
        at += 4
    for byte in data[at:]:
        value = turned((value + byte * five) & _MASK, 11) * one & _MASK
    value = (value ^ value >> 15) * two & _MASK
    value = (value ^ value >> 13) * three & _MASK
    return value ^ value >> 16


def stored_block(data: bytes) -> bytes:
    """An LZ4 block that is not compressed, with its size."""
    return struct.pack("<I", len(data) | 0x80000000) + data


def packed_block(data: bytes) -> bytes:
    packed = bytes(cramjam.lz4.compress_block(data, store_size=False))
    return struct.pack("<I", len(packed)) + packed


def lz4_frame(
    blocks: Sequence[bytes],
    flags: int = INDEPENDENT,
    block_size: int = 0x40,
    size: int = 0,
    content_checksum: int = 0,
    end: bytes = b"\0\0\0\0",
    header_checksum: int = -1,
    magic: bytes = LZ4_MAGIC,
) -> bytes:
    """An LZ4 frame of these blocks (with their sizes). `header_checksum` -1: the right one."""
    descriptor = bytes([flags, block_size])
    if flags & CONTENT_SIZE:
        descriptor += struct.pack("<Q", size)
    checksum = xxh32(descriptor) >> 8 & 0xFF if header_checksum < 0 else header_checksum
    frame = magic + descriptor + bytes([checksum])
    for block in blocks:
        frame += block
        if flags & BLOCK_CHECKSUM:
            frame += struct.pack("<I", xxh32(block[4:]))
    frame += end
    if flags & CONTENT_CHECKSUM:
        frame += struct.pack("<I", content_checksum)
    return frame
