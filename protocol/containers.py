"""The outer structure of compressed data: members of gzip, a frame of LZ4, frames of zstd, as Kafka's Java clients read it.

Nothing is decompressed here. NoContainer: at this place there is no member or frame that Java's clients would read.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import Final, NamedTuple

GZIP_TRAILER_BYTES: Final = 8
_GZIP_HEAD: Final = b"\x1f\x8b\x08"  # the magic, and the only method
_GZIP_HEADER_BYTES: Final = 10
_HEADER_CHECKSUM, _EXTRA, _NAME, _COMMENT = 0x02, 0x04, 0x08, 0x10  # flags; Java ignores the others, reserved ones too

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_FIXED: Final = 0b1110_0011  # version, independence of blocks, and reserved flags
_LZ4_INDEPENDENT: Final = 0b0110_0000
_CONTENT_CHECKSUM, _CONTENT_SIZE, _BLOCK_CHECKSUM = 0x04, 0x08, 0x10
_BLOCK_SIZES: Final = {0x40: 1 << 16, 0x50: 1 << 18, 0x60: 1 << 20, 0x70: 1 << 22}
_STORED: Final = 1 << 31
_ONE_CHECKED_BLOCK: Final = bytes([0x70, 0x70])  # flags and block size of a frame that begins `checked_block`

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_SINGLE_SEGMENT, _ZSTD_CHECKSUM = 0x20, 0x04  # flags
_ZSTD_BLOCK_BYTES_MAX: Final = 1 << 17
_ZSTD_BLOCK_WINDOW: Final = b"\x38"  # 1 << 17 bytes
_ZSTD_GREATEST_WINDOW: Final = b"\x88"  # 1 << 27 bytes, the most that readers allow
_SKIPPABLE_MAGIC: Final = b"\x2a\x4d\x18"  # after a byte from 0x50 to 0x5f

_UINT16: Final = Struct("<H").unpack_from
_UINT32: Final = Struct("<I").unpack_from
_MASK: Final = 0xFFFFFFFF
_PRIME_1: Final = 2654435761
_PRIME_2: Final = 2246822519
_PRIME_3: Final = 3266489917
_PRIME_4: Final = 668265263
_PRIME_5: Final = 374761393


class NoContainer(Exception):
    """There is no member or frame."""


# gzip


def gzip_body(data: bytes, at: int) -> int:
    """Where the compressed data of the member at `at` begins. Raises NoContainer."""
    begin = at
    if len(data) - at < _GZIP_HEADER_BYTES or not data.startswith(_GZIP_HEAD, at):
        raise NoContainer("no gzip member")
    flags = data[at + 3]
    at += _GZIP_HEADER_BYTES
    if not flags & (_HEADER_CHECKSUM | _EXTRA | _NAME | _COMMENT):
        return at
    if flags & _EXTRA:
        if len(data) - at < 2:
            raise NoContainer("a gzip header is cut short")
        at += 2 + int(_UINT16(data, at)[0])
    for flag in (_NAME, _COMMENT):
        if flags & flag:
            at = data.find(b"\0", at) + 1
            if not at:
                raise NoContainer("a gzip header is cut short")
    if at > len(data):
        raise NoContainer("a gzip header is cut short")
    if flags & _HEADER_CHECKSUM:
        if len(data) - at < 2 or int(_UINT16(data, at)[0]) != zlib.crc32(data[begin:at]) & 0xFFFF:
            raise NoContainer("a gzip header has a wrong checksum")
        at += 2
    return at


# LZ4


class Lz4Frame(NamedTuple):
    """The first frame. `blocks`: begin and size of each block, and whether it is stored uncompressed; up to the `problem`, if there is one."""

    blocks: list[tuple[int, int, bool]]
    checksum_bytes: int  # after each block
    block_bytes_max: int
    end: int
    problem: str
    is_plain: bool  # every decoder reads it as Java's clients do: no size or checksum of the content, no empty block, an ordinary end


def lz4_frame(data: bytes, blocks_max: int) -> Lz4Frame | None:
    """The structure of the first frame; None if it has more than `blocks_max` blocks. Raises NoContainer.

    The checksum of the header is not verified: `check_lz4_header`.
    """
    if len(data) < 7 or not data.startswith(_LZ4_MAGIC):
        raise NoContainer("no lz4 frame")
    flags = data[4]
    block_bytes_max = _BLOCK_SIZES.get(data[5])
    if flags & _LZ4_FIXED != _LZ4_INDEPENDENT or block_bytes_max is None:
        raise NoContainer("an lz4 frame of a kind that Java's clients do not read")
    at = 15 if flags & _CONTENT_SIZE else 7
    blocks: list[tuple[int, int, bool]] = []
    problem = ""
    may_be_empty = False
    other_end = False
    checksum_bytes = 4 if flags & _BLOCK_CHECKSUM else 0
    while True:
        if len(data) - at < 4:
            problem = "lz4 data is cut short"
            break
        word = int(_UINT32(data, at)[0])
        at += 4
        if not word & ~_STORED:  # Java takes an empty stored block for the end
            other_end = word != 0
            break
        if len(blocks) >= blocks_max:
            return None
        size = word & ~_STORED
        stored = bool(word & _STORED)
        if size > block_bytes_max or size + checksum_bytes > len(data) - at:
            problem = f"an lz4 block of {size} bytes with {len(data) - at} left"
            break
        may_be_empty |= size == 1  # perhaps a block without content
        blocks.append((at, size, stored))
        at += size + checksum_bytes
    if not problem and flags & _CONTENT_CHECKSUM and len(data) - at < 4:
        problem = "lz4 data is cut short"
    is_plain = not (problem or may_be_empty or other_end or flags & (_CONTENT_CHECKSUM | _CONTENT_SIZE))
    return Lz4Frame(blocks, checksum_bytes, block_bytes_max, at, problem, is_plain)


def check_lz4_header(data: bytes) -> None:
    """Verify the checksum of the frame's header. Raises NoContainer."""
    at = 14 if data[4] & _CONTENT_SIZE else 6
    if at >= len(data) or data[at] != _header_checksum(data[4:at]):
        raise NoContainer("an lz4 frame has a wrong header checksum")


def checked_block(data: bytes, at: int, size: int) -> bytes:
    """A frame with only this block and its checksum, for a decoder that verifies it."""
    head = _LZ4_MAGIC + _ONE_CHECKED_BLOCK + bytes([_header_checksum(_ONE_CHECKED_BLOCK)])
    return head + data[at - 4 : at + size + 4] + bytes(4)


def _turned(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _MASK


def _header_checksum(data: bytes) -> int:
    """The checksum of a frame header: a byte of the xxHash of fewer than 16 bytes."""
    at = 0
    value = (_PRIME_5 + len(data)) & _MASK
    while at <= len(data) - 4:
        value = _turned((value + int(_UINT32(data, at)[0]) * _PRIME_3) & _MASK, 17) * _PRIME_4 & _MASK
        at += 4
    while at < len(data):
        value = _turned((value + data[at] * _PRIME_5) & _MASK, 11) * _PRIME_1 & _MASK
        at += 1
    value = (value ^ value >> 15) * _PRIME_2 & _MASK
    value = (value ^ value >> 13) * _PRIME_3 & _MASK
    return (value ^ value >> 16) >> 8 & 0xFF


# zstd


class ZstdFrames(NamedTuple):
    """The complete frames end at `end`. `begun`: the blocks of an incomplete frame that follows, as a complete frame."""

    end: int
    begun: bytes
    is_damaged: bool  # what follows is no frame, not even an incomplete one


def complete_zstd_frames(data: bytes) -> ZstdFrames:
    at = 0
    while at < len(data):
        magic = data[at : at + 4]
        is_skippable = 0x50 <= magic[0] <= 0x5F and _SKIPPABLE_MAGIC.startswith(magic[1:])
        if not is_skippable and not _ZSTD_MAGIC.startswith(magic):
            return ZstdFrames(at, b"", True)
        if len(data) - at < 8:  # the shortest frame has nine bytes
            break
        if is_skippable:
            end, begun, is_damaged = at + 8 + int(_UINT32(data, at + 4)[0]), b"", False
        else:
            end, begun, is_damaged = _zstd_frame(data, at)
        if end > len(data):
            return ZstdFrames(at, begun, is_damaged)
        at = end
    return ZstdFrames(at, b"", False)


def _zstd_frame(data: bytes, at: int) -> tuple[int, bytes, bool]:
    """The end of the frame at `at`. An end after the data: the frame is incomplete; then its blocks as a complete frame, and whether it is damaged."""
    beyond = len(data) + 1
    descriptor = data[at + 4]
    is_single = bool(descriptor & _ZSTD_SINGLE_SEGMENT)
    at += 5
    window = _ZSTD_BLOCK_WINDOW
    window_bytes = 0
    if not is_single:
        window = data[at : at + 1]
        window_bytes = (8 + (window[0] & 7)) << (7 + (window[0] >> 3))
        at += 1
    dictionary = data[at : at + (0, 1, 2, 4)[descriptor & 3]]
    at += len(dictionary)
    size_code = descriptor >> 6
    size_bytes = 1 if not size_code and is_single else (0, 2, 4, 8)[size_code]
    if is_single:
        window_bytes = int.from_bytes(data[at : at + size_bytes], "little") + (256 if size_bytes == 2 else 0)
        if window_bytes > _ZSTD_BLOCK_BYTES_MAX:
            window = _ZSTD_GREATEST_WINDOW
    block_bytes_max = min(window_bytes, _ZSTD_BLOCK_BYTES_MAX)
    at += size_bytes
    begin = at
    last = -1
    is_damaged = False
    while len(data) - at >= 3:
        head = int.from_bytes(data[at : at + 3], "little")
        kind = head >> 1 & 3
        if kind == 3 or head >> 3 > block_bytes_max:
            is_damaged = True
            break
        end = at + 3 + (1 if kind == 1 else head >> 3)  # a run is one byte
        if end > len(data):
            if kind == 0 and len(data) - at > 3:  # a reader gets the begin of a stored block
                block = ((len(data) - at - 3) << 3 | 1).to_bytes(3, "little") + data[at + 3 :]
                return beyond, _zstd_begun(descriptor, window, dictionary, data[begin:at] + block), False
            break
        last = at
        at = end
        if head & 1:
            at += 4 if descriptor & _ZSTD_CHECKSUM else 0
            if at <= len(data):
                return at, b"", False
            at = end
            break
    if last < 0:
        return beyond, b"", is_damaged
    blocks = bytearray(data[begin:at])
    blocks[last - begin] |= 1  # the last block
    return beyond, _zstd_begun(descriptor, window, dictionary, bytes(blocks)), is_damaged


def _zstd_begun(descriptor: int, window: bytes, dictionary: bytes, blocks: bytes) -> bytes:
    return _ZSTD_MAGIC + bytes([descriptor & 3]) + window + dictionary + blocks
