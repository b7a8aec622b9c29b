"""Reading a segment in full after a crash: every checksum, and everything that an index has to know.

Written out, for the start of a broker waits for it: `validate` says what is wrong, this only finds that something is.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

import google_crc32c

from protocol.batch import (
    COMPRESSION_MASK,
    CRC_FROM,
    HEADER_BYTES,
    LENGTH_FROM,
    MAGIC,
    Compression,
    CorruptBatch,
    read_header,
    validate,
)
from protocol.batch_record import INT64_MAX
from storage.index import INTERVAL_BYTES

if TYPE_CHECKING:
    from storage.segment import Segment

CHUNK_BYTES: Final = 1 << 20

# Base offset, length, epoch, magic, checksum, attributes, last offset delta, newest timestamp, record count.
_SOUND: Final = Struct(">qiibIhi8xq14xi")
_crc32c: Final = google_crc32c.value


def verify_all(segment: Segment, length: int) -> str:
    """Count every batch of the file up to `length`: what is wrong with their order, or ""; CorruptBatch where none is."""
    size = CHUNK_BYTES
    while segment.size < length:
        chunk = segment.bytes_at(segment.size, min(size, length - segment.size))
        begin = segment.size
        if problem := _verify(segment, chunk):
            return problem
        size = CHUNK_BYTES
        if segment.size == begin:
            size = read_header(chunk, 0).size
            if size > length - begin:
                raise CorruptBatch("a batch is cut short")
    return ""


def _verify(segment: Segment, chunk: bytes) -> str:
    """Those that are whole in bytes read from the end of the good part on."""
    unpack = _SOUND.unpack_from
    index = segment.index
    begin = segment.size
    indexed = index.last_position
    next_offset, newest_of_all, epoch_of_all = segment.next_offset, segment.max_timestamp, segment.epoch
    end = len(chunk)
    at = 0
    base: int
    length: int
    epoch: int
    magic: int
    crc: int
    attributes: int
    delta: int
    newest: int
    count: int
    try:
        while end - at >= HEADER_BYTES:
            base, length, epoch, magic, crc, attributes, delta, newest, count = unpack(chunk, at)
            after = at + LENGTH_FROM + length
            if (
                magic != MAGIC
                or not at + HEADER_BYTES <= after <= end
                or _crc32c(chunk[at + CRC_FROM : after]) != crc
                or delta < 0
                or not 0 <= count <= delta + 1
                or base < 0
                or base + delta >= INT64_MAX
                or attributes & COMPRESSION_MASK > Compression.ZSTD
            ):
                if read_header(chunk, at).size > end - at:
                    break
                validate(chunk, at, end)  # says what is wrong
            if base < next_offset:
                return f"offset {base} where at least {next_offset} must be"
            if newest > newest_of_all:
                segment.max_timestamp = newest_of_all = newest
                segment.max_timestamp_offset = base + delta
            if begin + at - indexed >= INTERVAL_BYTES:
                indexed = begin + at
                index.add(base + delta, indexed, newest_of_all, segment.max_timestamp_offset)
            if epoch > epoch_of_all:
                segment.epoch = epoch_of_all = epoch
                segment.epoch_start = base
            next_offset = base + delta + 1
            at = after
        return ""
    finally:
        segment.size = begin + at
        segment.next_offset = next_offset
