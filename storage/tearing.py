"""What an interrupted write leaves at the end of a file, told from damage.

A write that the end of the process or of the power interrupts leaves a file that is too short, or blocks that were never
written and read as zeros; nothing sound stands behind it. Anything else that is not as it was written is damage: it may hide
what was acknowledged.
"""

from __future__ import annotations

from typing import Final

import google_crc32c

from protocol.batch import COMPRESSION_MASK, CRC_FROM, HEADER_BYTES, MAGIC, CorruptBatch, read_header, validate
from storage.disk import File

SECTOR: Final = 512  # the smallest block that a disk writes whole
ZEROS_MIN: Final = 32  # at the end of a stretch: a record seldom ends in so many
CHUNK_BYTES: Final = 1 << 20
BATCH_BYTES_MAX: Final = 100 * 1024 * 1024  # socket.request.max.bytes: no request brings more
RELATIVE_OFFSET_MAX: Final = (1 << 31) - 1
_MAGIC_IN_HEADER: Final = 16
_CRC_IN_HEADER: Final = 17
_PLAIN_ATTRIBUTES: Final = 0x78 | COMPRESSION_MASK
_NOTHING: Final = bytes(SECTOR)
_crc32c: Final = google_crc32c.value


def has_unwritten(data: bytes, position: int) -> bool:
    """Whether these bytes, which stand at `position` of their file, have blocks that were never written, as zeros tell."""
    return _ends_in_zeros(data) or _has_empty_block(data, position)


def _ends_in_zeros(data: bytes) -> bool:
    return data.endswith(bytes(min(ZEROS_MIN, len(data))))


def _has_empty_block(data: bytes, position: int) -> bool:
    return any(data[at : at + SECTOR] == _NOTHING for at in range(-position % SECTOR, len(data) - SECTOR + 1, SECTOR))


def find_sound(file: File, at: int, end: int, lowest: int) -> int:
    """Where from `at` on the next sound batch begins that has no offset below `lowest`; `end` where there is none."""
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
        # Cheap doubts first: computing the checksum of whatever has a 2 in it would take for ever.
        if not lowest <= header.base_offset <= lowest + RELATIVE_OFFSET_MAX or header.size > min(BATCH_BYTES_MAX, end - at):
            return False
        if not 0 <= header.record_count <= header.last_offset_delta + 1 or header.attributes & ~_PLAIN_ATTRIBUTES:
            return False
        validate(file.read(at, header.size), 0, header.size)
    except CorruptBatch:
        return False
    return True


def is_torn(file: File, at: int, end: int, lowest: int) -> bool:
    """Whether a segment that has no sound batch at `at` ends there in what an interrupted write left."""
    if find_sound(file, at + 1, end, lowest) < end:
        return False
    if end - at < HEADER_BYTES:
        return True
    try:
        header = read_header(file.read(at, HEADER_BYTES), 0)
    except CorruptBatch:
        pass
    else:
        if header.size > end - at:
            return not _whole_but_for_its_length(file, at, end)
    while at < end:
        data = file.read(at, min(CHUNK_BYTES - at % SECTOR, end - at))  # whole blocks: none may lie half in the next chunk
        if not data or _has_empty_block(data, at):
            return True
        at += len(data)
        if at >= end and _ends_in_zeros(data):
            return True
    return False


def _whole_but_for_its_length(file: File, at: int, end: int) -> bool:
    """A batch is not cut short if what is there has the checksum that it says."""
    if end - at > BATCH_BYTES_MAX:
        return False
    data = file.read(at, end - at)
    return bool(_crc32c(data[CRC_FROM:]) == int.from_bytes(data[_CRC_IN_HEADER : _CRC_IN_HEADER + 4], "big"))
