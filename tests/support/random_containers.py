"""Compressed records in containers that no producer writes: several frames, empty blocks, wrong checksums, bytes that follow, and random damage."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from random import Random
from struct import pack
from typing import Final

import cramjam

from protocol.compression import SNAPPY_HEADER, Compression, compress

LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
LZ4_LEGACY: Final = b"\x02\x21\x4c\x18"
LZ4_EMPTY_BLOCK: Final = pack("<I", 1) + b"\0"
LZ4_END: Final = bytes(4)
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
SKIPPABLE: Final = b"\x50\x2a\x4d\x18" + pack("<I", 3) + b"abc"
GZIP_EMPTY: Final = b"\x1f\x8b\x08\0\0\0\0\0\0\xff\3\0" + bytes(8)


def pieces(data: bytes, random: Random) -> list[bytes]:
    """The data in one to four pieces, of which some may be empty."""
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(random.choice((0, 0, 1, 1, 2, 3))))
    return [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def gzip_member(data: bytes, flags: int = 0, crc: int | None = None, size: int | None = None, header_crc: int | None = None) -> bytes:
    header = b"\x1f\x8b\x08" + bytes([flags]) + b"\1\2\3\4\0\xff"
    if flags & 4:
        header += pack("<H", 5) + b"extra"
    if flags & 8:
        header += b"name\0"
    if flags & 16:
        header += b"comment\0"
    if flags & 2:
        header += pack("<H", zlib.crc32(header) & 0xFFFF if header_crc is None else header_crc)
    deflate = zlib.compressobj(6, wbits=-15)
    packed = deflate.compress(data) + deflate.flush()
    crc = zlib.crc32(data) if crc is None else crc
    return header + packed + pack("<II", crc, len(data) if size is None else size)


def snappy_block(data: bytes) -> bytes:
    packed = bytes(cramjam.snappy.compress_raw(data))
    return pack(">i", len(packed)) + packed


def lz4_header(flags: int, limits: int, content_bytes: int = 0, dictionary: int = 0, check: int = 0) -> bytes:
    """`check` is added to the checksum of the header."""
    described = bytes([flags, limits]) + (pack("<Q", content_bytes) if flags & 8 else b"") + (pack("<I", dictionary) if flags & 1 else b"")
    return LZ4_MAGIC + described + bytes([((xxh32(described) >> 8) + check) & 255])


def lz4_block(data: bytes, flags: int = 0, plain: bool = False) -> bytes:
    packed = data if plain else bytes(cramjam.lz4.compress_block(data, store_size=False))
    size = len(packed) | (1 << 31 if plain else 0)
    return pack("<I", size) + packed + (pack("<I", xxh32(packed)) if flags & 16 else b"")


def lz4_frame(parts: Sequence[bytes], flags: int = 0x60, limits: int = 0x40, end: bytes = LZ4_END, plain: bool = False) -> bytes:
    content = b"".join(parts)
    blocks = b"".join([lz4_block(part, flags, plain) for part in parts])
    return lz4_header(flags, limits, len(content)) + blocks + end + (pack("<I", xxh32(content)) if flags & 4 else b"")


def xxh32(data: bytes) -> int:
    """The checksum of LZ4 frames, with seed 0."""
    mask = 0xFFFFFFFF
    first, second, third, fourth, fifth = 2654435761, 2246822519, 3266489917, 668265263, 374761393

    def rotated(value: int, bits: int) -> int:
        return (value << bits | value >> (32 - bits)) & mask

    at = 0
    if len(data) >= 16:
        lanes = [(first + second) & mask, second, 0, -first & mask]
        while at <= len(data) - 16:
            for lane in range(4):
                word = int.from_bytes(data[at : at + 4], "little")
                lanes[lane] = rotated((lanes[lane] + word * second) & mask, 13) * first & mask
                at += 4
        hash = sum(rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
    else:
        hash = fifth
    hash = (hash + len(data)) & mask
    while at <= len(data) - 4:
        hash = rotated((hash + int.from_bytes(data[at : at + 4], "little") * third) & mask, 17) * fourth & mask
        at += 4
    for byte in data[at:]:
        hash = rotated((hash + byte * fifth) & mask, 11) * first & mask
    hash = (hash ^ hash >> 15) * second & mask
    hash = (hash ^ hash >> 13) * third & mask
    return hash ^ hash >> 16


def zstd_frame(data: bytes, checksum: bool = False, single: bool = True, blocks: int = 1, dictionary: int = 0) -> bytes:
    """A frame of uncompressed blocks."""
    flags = (4 if checksum else 0) | (1 if dictionary else 0)
    header = bytes([flags | 0xA0]) if single else bytes([flags, 0x58])  # sizes of four bytes, or a window
    header += bytes([dictionary]) if dictionary else b""
    header += pack("<I", len(data)) if single else b""
    step = len(data) // blocks + 1
    parts = [data[at : at + step] for at in range(0, len(data) or 1, step)]
    body = b"".join([pack("<I", len(part) << 3 | (number == len(parts) - 1))[:3] + part for number, part in enumerate(parts)])
    return ZSTD_MAGIC + header + body + (pack("<I", xxh64(data) & 0xFFFFFFFF) if checksum else b"")


def xxh64(data: bytes) -> int:
    """The checksum of zstd frames, with seed 0."""
    mask = (1 << 64) - 1
    first, second, third = 11400714785074694791, 14029467366897019727, 1609587929392839161
    fourth, fifth = 9650029242287828579, 2870177450012600261

    def rotated(value: int, bits: int) -> int:
        return (value << bits | value >> (64 - bits)) & mask

    def rounded(lane: int, word: int) -> int:
        return rotated((lane + word * second) & mask, 31) * first & mask

    at = 0
    if len(data) >= 32:
        lanes = [(first + second) & mask, second, 0, -first & mask]
        while at <= len(data) - 32:
            for lane in range(4):
                lanes[lane] = rounded(lanes[lane], int.from_bytes(data[at : at + 8], "little"))
                at += 8
        hash = sum(rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
        for lane in lanes:
            hash = ((hash ^ rounded(0, lane)) * first + fourth) & mask
    else:
        hash = fifth
    hash = (hash + len(data)) & mask
    while at <= len(data) - 8:
        hash = (rotated(hash ^ rounded(0, int.from_bytes(data[at : at + 8], "little")), 27) * first + fourth) & mask
        at += 8
    if at <= len(data) - 4:
        hash = (rotated(hash ^ int.from_bytes(data[at : at + 4], "little") * first & mask, 23) * second + third) & mask
        at += 4
    for byte in data[at:]:
        hash = rotated(hash ^ byte * fifth & mask, 11) * first & mask
    hash = (hash ^ hash >> 33) * second & mask
    hash = (hash ^ hash >> 29) * third & mask
    return hash ^ hash >> 32


# Containers at random.


def random_gzip(data: bytes, random: Random) -> bytes:
    members = []
    for part in pieces(data, random):
        flags = random.choice((0, 0, 0, 1, 2, 4, 8, 16, 31, 32, 64, 128, 255))
        wrong = random.randrange(30)
        members.append(
            gzip_member(part, flags, 1 if wrong == 0 else None, 1 if wrong == 1 else None, 1 if wrong == 2 else None)
        )
        if random.random() < 0.15:
            members.append(GZIP_EMPTY)
    return b"".join(members)


def random_snappy(data: bytes, random: Random) -> bytes:
    if random.random() < 0.15:
        return bytes(cramjam.snappy.compress_raw(data))
    parts = [SNAPPY_HEADER if random.random() < 0.8 else SNAPPY_HEADER[:8] + random.randbytes(8)]
    for part in pieces(data, random):
        parts.append(snappy_block(part))
        extra = random.random()
        if extra < 0.15:
            parts.append(SNAPPY_HEADER)
        elif extra < 0.2:
            parts.append(SNAPPY_HEADER[:8] + pack(">ii", random.choice((0, 1, 2)), 1))
        elif extra < 0.25:
            parts.append(SNAPPY_HEADER[: random.randrange(4, 16)])
        elif extra < 0.3:
            parts.append(b"\x82SNAPPX\0\0\0\0\1\0\0\0\1")
        elif extra < 0.35:
            parts.append(snappy_block(b""))
        elif extra < 0.38:
            parts.append(bytes(4))
        elif extra < 0.4:
            parts.append(pack(">i", random.choice((-1, 1 << 30, -(1 << 31)))))
    return b"".join(parts)


def random_lz4(data: bytes, random: Random) -> bytes:
    parts = []
    if random.random() < 0.05:
        parts.append(random.choice((SKIPPABLE, LZ4_LEGACY, lz4_frame([]))))
    for part in pieces(data, random) if random.random() < 0.3 else [data]:
        flags = 0x60 | random.choice((0, 0, 0, 4, 8, 12, 16, 28, 1, 2, 0x80)) if random.random() < 0.95 else 0x40
        blocks = [lz4_block(piece, flags, random.random() < 0.2) for piece in pieces(part, random) if piece]
        if random.random() < 0.15:
            blocks.insert(random.randrange(len(blocks) + 1), LZ4_EMPTY_BLOCK + (pack("<I", xxh32(b"\0")) if flags & 16 else b""))
        if random.random() < 0.05:
            blocks.insert(random.randrange(len(blocks) + 1), pack("<I", 1 << 31))
        limits = random.choice((0x40, 0x40, 0x40, 0x50, 0x70, 0x30, 0x41, 0xC0))
        content = len(part) if random.random() < 0.8 else random.randrange(1 << 40)
        header = lz4_header(flags, limits, content, 7, random.random() < 0.03)
        checksum = xxh32(part) if random.random() < 0.8 else 1
        end = LZ4_END if random.random() < 0.9 else b""
        parts.append(header + b"".join(blocks) + end + (pack("<I", checksum) if flags & 4 and random.random() < 0.9 else b""))
    return b"".join(parts)


def random_zstd(data: bytes, random: Random) -> bytes:
    parts = [SKIPPABLE] if random.random() < 0.1 else []
    for part in pieces(data, random):
        if random.random() < 0.5:
            parts.append(compress(part, Compression.ZSTD))
        else:
            dictionary = 5 if random.random() < 0.05 else 0
            parts.append(zstd_frame(part, random.random() < 0.4, random.random() < 0.7, random.choice((1, 1, 2, 3)), dictionary))
        if random.random() < 0.1:
            parts.append(SKIPPABLE)
    return b"".join(parts)


RANDOM: Final = {
    Compression.GZIP: random_gzip,
    Compression.SNAPPY: random_snappy,
    Compression.LZ4: random_lz4,
    Compression.ZSTD: random_zstd,
}


def damaged(data: bytes, random: Random) -> bytes:
    """The data with a byte changed, cut off, repeated or added."""
    at = random.randrange(len(data) + 1)
    match random.randrange(7):
        case 0 | 1:
            return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]
        case 2:
            return data[: max(0, len(data) - random.randrange(1, 12))]
        case 3:
            return data + random.choice((b"\0", b"garbage", bytes(40), data[:9], data[: random.randrange(len(data) + 1)], b"\x28\xb5"))
        case 4:
            return data[:at] + data[at + random.randrange(1, 4) :]
        case 5:
            return data[:at] + random.randbytes(random.randrange(1, 5)) + data[at:]
        case _:
            return data[:at]
