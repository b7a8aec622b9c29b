"""Distinguish a torn end, the result of an interrupted write, from damage.

After a write that a crash or power failure interrupted, the file is too short or has unwritten blocks, which read as zeros, and
no sound batch follows. Anything else is damage, which may affect acknowledged records.
"""

from __future__ import annotations

from typing import Final

import google_crc32c

from protocol.batch import COMPRESSION_MASK, CRC_FROM, HEADER_BYTES, MAGIC, CorruptBatch, read_header, validate
from storage.disk import File

SECTOR: Final = 512  # the smallest block that a disk writes whole
ZEROS_MIN: Final = 32  # this many zeros at the end count as unwritten bytes: few records end in as many
CHUNK_BYTES: Final = 1 << 20
BATCH_BYTES_MAX: Final = 100 * 1024 * 1024  # socket.request.max.bytes: no request is larger
RELATIVE_OFFSET_MAX: Final = (1 << 31) - 1
_MAGIC_IN_HEADER: Final = 16
_CRC_IN_HEADER: Final = 17
_PLAIN_ATTRIBUTES: Final = 0x78 | COMPRESSION_MASK
_EMPTY_SECTOR: Final = bytes(SECTOR)
_crc32c: Final = google_crc32c.value


def has_unwritten(data: bytes, position: int) -> bool:
    """Whether these bytes, from `position` of a file, have unwritten blocks, which read as zeros."""
    return _ends_in_zeros(data) or _has_empty_block(data, position)


def _ends_in_zeros(data: bytes) -> bool:
    return data.endswith(bytes(min(ZEROS_MIN, len(data))))


def _has_empty_block(data: bytes, position: int) -> bool:
    return any(data[at : at + SECTOR] == _EMPTY_SECTOR for at in range(-position % SECTOR, len(data) - SECTOR + 1, SECTOR))


def find_sound_batch(file: File, at: int, end: int, lowest: int) -> int:
    """The position of the next sound batch from `at` on with offsets from `lowest` on; `end` if there is none."""
    while end - at >= HEADER_BYTES:
        window = file.read(at, min(CHUNK_BYTES + HEADER_BYTES, end - at))
        magic = window.find(MAGIC, _MAGIC_IN_HEADER)
        while magic >= 0:
            begin = magic - _MAGIC_IN_HEADER
            if len(window) - begin >= HEADER_BYTES and _is_sound(file, window, begin, at + begin, end, lowest):
                return at + begin
            magic = window.find(MAGIC, magic + 1)
        at += CHUNK_BYTES
    return end


def _is_sound(file: File, window: bytes, begin: int, at: int, end: int, lowest: int) -> bool:
    try:
        header = read_header(window, begin)
        # Cheap checks first: the magic byte 2 is frequent, and a checksum for each would take too long.
        if not lowest <= header.base_offset <= lowest + RELATIVE_OFFSET_MAX or header.size > min(BATCH_BYTES_MAX, end - at):
            return False
        if not 0 <= header.record_count <= header.last_offset_delta + 1 or header.attributes & ~_PLAIN_ATTRIBUTES:
            return False
        validate(file.read(at, header.size), 0, header.size)
    except CorruptBatch:
        return False
    return True


def is_torn(file: File, at: int, end: int, lowest: int) -> bool:
    """Whether the bytes from `at` on, where no sound batch begins, are a torn end."""
    if find_sound_batch(file, at + 1, end, lowest) < end:
        return False
    if end - at < HEADER_BYTES:
        return True
    try:
        header = read_header(file.read(at, HEADER_BYTES), 0)
    except CorruptBatch:
        pass
    else:
        if header.size > end - at:
            return not _is_whole_with_wrong_length(file, at, end)
    while at < end:
        data = file.read(at, min(CHUNK_BYTES - at % SECTOR, end - at))  # no block may straddle two chunks
        if not data or _has_empty_block(data, at):
            return True
        at += len(data)
        if at >= end and _ends_in_zeros(data):
            return True
    return False


def _is_whole_with_wrong_length(file: File, at: int, end: int) -> bool:
    """Whether the batch's checksum is right although its length is too large: damage, not a torn write."""
    if end - at > BATCH_BYTES_MAX:
        return False
    data = file.read(at, end - at)
    return bool(_crc32c(data[CRC_FROM:]) == int.from_bytes(data[_CRC_IN_HEADER : _CRC_IN_HEADER + 4], "big"))
