"""The compression codecs of record batches. The decompressed size is limited before any memory is allocated.

A container may have several frames, members or streams, and bytes after them. Kafka's Java clients decide what counts: what they do not read is
no record, and what they cannot read must not be stored. So every codec is read here as they read it.

The compressed bytes may claim a size of gigabytes, so that size never determines the output buffer: the buffer begins small and grows
by a factor while the codec reports that it is too small, up to the caller's limit.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Final

import cramjam

from protocol.containers import (
    GZIP_TRAILER_BYTES,
    NoContainer,
    check_lz4_header,
    checked_block,
    complete_zstd_frames,
    gzip_body,
    lz4_frame,
)
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


class Damaged(ProtocolError):
    """The container is damaged after the bytes in `unpacked`, which a reader may have got before it meets the damage."""

    def __init__(self, message: str, unpacked: bytes) -> None:
        super().__init__(message)
        self.unpacked = unpacked


BUFFER_BYTES_MIN: Final = 65_536
BUFFER_FACTOR: Final = 8
# Zeroing or copying more bytes at once would keep other threads waiting. Such a buffer is zeroed by the system, page by page while the codec
# fills it, and copied in pieces; joining `bytes` lets other threads run.
LARGE_BYTES: Final = 1 << 20
TOO_SMALL: Final = "failed to write whole buffer"  # cramjam's message for a full output buffer; other errors mean corrupt bytes

# snappy-java's stream: a magic, a version, the oldest version that can read it, then blocks, each after its length.
SNAPPY_STREAM: Final = b"\x82SNAPPY\0"
SNAPPY_HEADER: Final = SNAPPY_STREAM + b"\0\0\0\1\0\0\0\1"
SNAPPY_STREAM_HEAD: Final = int.from_bytes(SNAPPY_STREAM[:4], "big", signed=True)  # in place of a block's length: another stream
SNAPPY_VERSION_MIN: Final = 1
SNAPPY_READ_BYTES: Final = 2_048  # Java's clients decompress so many bytes at a time
ZSTD_READ_BYTES: Final = (1 << 17) + 3  # and read so many
SNAPPY_BLOCK_BYTES: Final = 32_768
GZIP_PIECE_BYTES_MIN: Final = 4_096  # of a member; the pieces grow, so that many small members are not copied again and again
GZIP_PIECE_BYTES_MAX: Final = 1 << 20
# Java looks for another member only if more bytes follow: a trailer and the shortest member.
GZIP_REST_BYTES: Final = 26
SNAPPY_EXPANSION_MAX: Final = 32  # three bytes encode at most sixty-four
BLOCK_BYTES: Final = Struct(">i")
BLOCKS_MAX: Final = 1 << 62

_GZIP_TRAILER: Final = Struct("<II").pack


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
    """Decompress. Raises ProtocolError, and TooLarge for more than `bytes_max` bytes or `blocks_max` blocks of snappy or lz4."""
    if codec == Compression.NONE:
        return data
    if codec == Compression.GZIP:
        return decompress_gzip(data, bytes_max)
    if codec == Compression.SNAPPY:
        return decompress_snappy(data, bytes_max, blocks_max)
    if codec == Compression.LZ4:
        return decompress_lz4(data, bytes_max, blocks_max)
    if codec == Compression.ZSTD:
        return decompress_zstd(data, bytes_max)
    raise ProtocolError(f"unknown codec {codec}")


def decompress_stream(into: Callable[[bytes, bytearray | mmap.mmap], int], name: str, data: bytes, bytes_max: int) -> bytes:
    buffer_bytes = min(max(BUFFER_BYTES_MIN, BUFFER_FACTOR * len(data)), bytes_max)
    while True:
        out = bytearray(buffer_bytes) if buffer_bytes <= LARGE_BYTES else mmap.mmap(-1, buffer_bytes)
        try:
            size = into(data, out)
        except cramjam.DecompressionError as error:
            if TOO_SMALL not in str(error):
                raise ProtocolError(f"{name} data cannot be decompressed: {error}") from error
        else:
            return _copied(memoryview(out)[:size])
        if buffer_bytes >= bytes_max:
            raise TooLarge(f"{name} data decompresses to more than {bytes_max} bytes")
        buffer_bytes = min(buffer_bytes * BUFFER_FACTOR, bytes_max)


def _copied(view: memoryview) -> bytes:
    if len(view) <= LARGE_BYTES:
        return bytes(view)
    return b"".join([bytes(view[at : at + LARGE_BYTES]) for at in range(0, len(view), LARGE_BYTES)])


def decompress_gzip(data: bytes, bytes_max: int) -> bytes:
    """Decompress the first member, and the sound ones that follow it: bytes that are no member end the data."""
    parts: list[bytes] = []
    left = bytes_max
    at = 0
    while True:
        try:
            body_at = gzip_body(data, at)
        except NoContainer as error:
            if not parts:
                raise ProtocolError(str(error)) from None
            break
        part, end = _gzip_member(data, body_at, left)
        left -= len(part)
        parts.append(part)
        trailer = data[end : end + GZIP_TRAILER_BYTES]
        at = end + GZIP_TRAILER_BYTES
        if trailer != _GZIP_TRAILER(zlib.crc32(part), len(part) & 0xFFFFFFFF):
            raise Damaged("a gzip member has another checksum or size than its trailer", b"".join(parts))
        if len(data) - end <= GZIP_REST_BYTES:
            break
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _gzip_member(data: bytes, at: int, bytes_max: int) -> tuple[bytes, int]:
    """The decompressed body of the member that begins at `at`, and its end."""
    inflater = zlib.decompressobj(-15)
    parts: list[bytes] = []
    left = bytes_max
    size = GZIP_PIECE_BYTES_MIN
    try:
        while not inflater.eof:
            piece = data[at : at + size]
            if not piece:
                raise ProtocolError("a gzip member is cut short")
            part = inflater.decompress(piece, left + 1)
            left -= len(part)
            if left < 0:
                raise TooLarge(f"gzip data decompresses to more than {bytes_max} bytes")
            parts.append(part)
            at += len(piece)
            size = min(2 * size, GZIP_PIECE_BYTES_MAX)
    except zlib.error as error:
        raise ProtocolError(f"gzip data cannot be decompressed: {error}") from error
    return b"".join(parts), at - len(inflater.unused_data)


def decompress_lz4(data: bytes, bytes_max: int, blocks_max: int) -> bytes:
    """Decompress the first frame: Java's clients read no further, and do not verify the checksum and the size of the content."""
    try:
        frame = lz4_frame(data, blocks_max)
    except NoContainer as error:
        raise ProtocolError(str(error)) from None
    if frame is None:
        raise TooLarge(f"lz4 data has more than {blocks_max} blocks")
    if frame.is_plain:
        return decompress_stream(cramjam.lz4.decompress_into, "lz4", data if frame.end == len(data) else data[: frame.end], bytes_max)
    try:
        check_lz4_header(data)
    except NoContainer as error:
        raise ProtocolError(str(error)) from None
    parts: list[bytes] = []
    left = bytes_max
    out = bytearray(frame.block_bytes_max)
    problem = frame.problem
    for at, size, stored in frame.blocks:
        part = data[at : at + size]
        try:
            if frame.checksum_bytes:
                part = bytes(memoryview(out)[: cramjam.lz4.decompress_into(checked_block(data, at, size), out)])
            elif not stored:
                part = bytes(memoryview(out)[: cramjam.lz4.decompress_block_into(part, out)])
        except cramjam.DecompressionError as failure:
            problem = f"lz4 data cannot be decompressed: {failure}"
            break
        if not part:  # Java's clients take an empty block for the end of the data
            problem = ""
            break
        left -= len(part)
        if left < 0:
            raise TooLarge(f"lz4 data decompresses to more than {bytes_max} bytes")
        parts.append(part)
    if problem:
        raise Damaged(problem, b"".join(parts))
    return b"".join(parts)


def decompress_zstd(data: bytes, bytes_max: int) -> bytes:
    """Decompress all frames. Java's clients take an incomplete frame after complete ones for the end of the data."""
    try:
        return decompress_stream(cramjam.zstd.decompress_into, "zstd", data, bytes_max)
    except TooLarge:
        raise
    except ProtocolError:
        frames = complete_zstd_frames(data)
        if not frames.end:
            raise
        unpacked = decompress_stream(cramjam.zstd.decompress_into, "zstd", data[: frames.end] + frames.begun, bytes_max)
        if frames.is_damaged:
            raise Damaged("zstd data has bytes that are no frame", unpacked) from None
        # Java takes the end of the data for the end of the frames only if it has read no more since the end of a frame.
        if (frames.end - 1) // ZSTD_READ_BYTES != (len(data) - 1) // ZSTD_READ_BYTES:
            raise Damaged("zstd data is cut short", unpacked) from None
        return unpacked


def compress_snappy(data: bytes) -> bytes:
    parts = [SNAPPY_HEADER]
    for at in range(0, len(data), SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + SNAPPY_BLOCK_BYTES]))
        parts.append(BLOCK_BYTES.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def decompress_snappy(data: bytes, bytes_max: int, blocks_max: int = BLOCKS_MAX) -> bytes:
    """Decompress blocks in snappy-java's stream, or one raw block, as some other clients write it."""
    if not data.startswith(SNAPPY_STREAM) or len(data) < len(SNAPPY_HEADER):
        return decompress_snappy_block(data, bytes_max)
    parts: list[bytes] = []
    remaining_bytes = bytes_max
    read_at = 0  # the place in the decompressed bytes from which a client reads piece by piece
    at = len(SNAPPY_HEADER)
    while len(data) - at >= BLOCK_BYTES.size:  # fewer bytes are ignored
        (size,) = BLOCK_BYTES.unpack_from(data, at)
        if size == SNAPPY_STREAM_HEAD:
            if len(data) - at < len(SNAPPY_HEADER):
                raise ProtocolError("snappy data is cut short")
            if data.startswith(SNAPPY_STREAM, at):
                _check_snappy_version(data, at)
            elif (bytes_max - remaining_bytes - read_at) % SNAPPY_READ_BYTES == 0:
                break  # Java's clients get no byte, and take that for the end of the data
            else:
                read_at = bytes_max - remaining_bytes  # they get the bytes so far, and read on behind the false header
            at += len(SNAPPY_HEADER)
            parts.append(b"")
            if len(parts) > blocks_max:
                raise TooLarge(f"snappy data has more than {blocks_max} blocks")
            continue
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


def _check_snappy_version(data: bytes, at: int) -> None:
    version = int.from_bytes(data[at + len(SNAPPY_STREAM) : at + len(SNAPPY_STREAM) + 4], "big", signed=True)
    if version < SNAPPY_VERSION_MIN:
        raise ProtocolError(f"a snappy stream of version {version}")


def decompress_snappy_block(data: bytes, bytes_max: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > bytes_max:
            raise TooLarge(f"snappy data decompresses to more than {bytes_max} bytes")
        if size > SNAPPY_EXPANSION_MAX * len(data):
            raise ProtocolError(f"{len(data)} bytes of snappy data claim to decompress to {size}")
        return _copied(memoryview(cramjam.snappy.decompress_raw(data)))
    except cramjam.DecompressionError as error:
        raise ProtocolError(f"snappy data cannot be decompressed: {error}") from error
