"""The compression codecs of record batches. The decompressed size is limited before any memory is allocated.

The compressed bytes may claim a size of gigabytes, so that size never determines the output buffer: the buffer begins small and grows
by a factor while the codec reports that it is too small, up to the caller's limit.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Final

import cramjam

from protocol.errors import ProtocolError


class Compression(IntEnum):
    """The codec in the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TooLarge(ProtocolError):
    """The decompressed data has more bytes, or more blocks, than the caller allows."""


BUFFER_BYTES_MIN: Final = 65_536
BUFFER_FACTOR: Final = 8
TOO_SMALL: Final = "failed to write whole buffer"  # cramjam's message for a full output buffer; other errors mean corrupt bytes

# snappy-java's stream: a magic, a version, the oldest version that can read it, then blocks, each after its length.
SNAPPY_STREAM: Final = b"\x82SNAPPY\0"
SNAPPY_HEADER: Final = SNAPPY_STREAM + b"\0\0\0\1\0\0\0\1"
SNAPPY_BLOCK_BYTES: Final = 32_768
SNAPPY_EXPANSION_MAX: Final = 32  # three bytes encode at most sixty-four
BLOCK_BYTES: Final = Struct(">i")
BLOCKS_MAX: Final = 1 << 62


def compress(data: bytes, codec: int, level: int | None = None) -> bytes:
    """Compress as Kafka's producer does, at the codec's default level or at `level`; snappy has no levels."""
    if codec == Compression.NONE:
        return data
    if codec == Compression.GZIP:
        return bytes(cramjam.gzip.compress(data, level))
    if codec == Compression.SNAPPY:
        return compress_snappy(data)
    if codec == Compression.LZ4:
        # Kafka's Java reader requires independent blocks.
        lz4 = cramjam.lz4.Compressor(level, content_checksum=False, block_linked=False)
        lz4.compress(data)
        return bytes(lz4.finish())
    if codec == Compression.ZSTD:
        return bytes(cramjam.zstd.compress(data, level))
    raise ProtocolError(f"unknown codec {codec}")


def decompress(data: bytes, codec: int, bytes_max: int, blocks_max: int = BLOCKS_MAX) -> bytes:
    """Decompress. Raises ProtocolError, and TooLarge for more than `bytes_max` bytes or `blocks_max` blocks of snappy."""
    if codec == Compression.NONE:
        return data
    if codec == Compression.GZIP:
        return decompress_stream(cramjam.gzip.decompress_into, "gzip", data, bytes_max)
    if codec == Compression.SNAPPY:
        return decompress_snappy(data, bytes_max, blocks_max)
    if codec == Compression.LZ4:
        return decompress_stream(cramjam.lz4.decompress_into, "lz4", data, bytes_max)
    if codec == Compression.ZSTD:
        return decompress_stream(cramjam.zstd.decompress_into, "zstd", data, bytes_max)
    raise ProtocolError(f"unknown codec {codec}")


def decompress_stream(into: Callable[[bytes, bytearray], int], name: str, data: bytes, bytes_max: int) -> bytes:
    buffer_bytes = min(max(BUFFER_BYTES_MIN, BUFFER_FACTOR * len(data)), bytes_max)
    while True:
        out = bytearray(buffer_bytes)
        try:
            size = into(data, out)
        except cramjam.DecompressionError as error:
            if TOO_SMALL not in str(error):
                raise ProtocolError(f"{name} data cannot be decompressed: {error}") from error
        else:
            return bytes(memoryview(out)[:size])
        if buffer_bytes >= bytes_max:
            raise TooLarge(f"{name} data decompresses to more than {bytes_max} bytes")
        buffer_bytes = min(buffer_bytes * BUFFER_FACTOR, bytes_max)


def compress_snappy(data: bytes) -> bytes:
    parts = [SNAPPY_HEADER]
    for at in range(0, len(data), SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + SNAPPY_BLOCK_BYTES]))
        parts.append(BLOCK_BYTES.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def decompress_snappy(data: bytes, bytes_max: int, blocks_max: int = BLOCKS_MAX) -> bytes:
    """Decompress blocks in snappy-java's stream, or one raw block, as some other clients write it."""
    if not data.startswith(SNAPPY_STREAM):
        return decompress_snappy_block(data, bytes_max)
    parts: list[bytes] = []
    remaining_bytes = bytes_max
    at = len(SNAPPY_HEADER)
    if len(data) < at:
        raise ProtocolError("snappy data is cut short")
    while at < len(data):
        if len(data) - at < BLOCK_BYTES.size:
            raise ProtocolError("snappy data is cut short")
        (size,) = BLOCK_BYTES.unpack_from(data, at)
        at += BLOCK_BYTES.size
        if size < 0 or size > len(data) - at:
            raise ProtocolError(f"a snappy block of {size} bytes with {len(data) - at} left")
        if len(parts) >= blocks_max:
            raise TooLarge(f"snappy data has more than {blocks_max} blocks")
        block = decompress_snappy_block(data[at : at + size], bytes_max)
        remaining_bytes -= len(block)
        if remaining_bytes < 0:
            raise TooLarge(f"snappy data decompresses to more than {bytes_max} bytes")
        parts.append(block)
        at += size
    return b"".join(parts)


def decompress_snappy_block(data: bytes, bytes_max: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > bytes_max:
            raise TooLarge(f"snappy data decompresses to more than {bytes_max} bytes")
        if size > SNAPPY_EXPANSION_MAX * len(data):
            raise ProtocolError(f"{len(data)} bytes of snappy data claim to decompress to {size}")
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise ProtocolError(f"snappy data cannot be decompressed: {error}") from error
