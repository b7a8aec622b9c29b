"""Verify every checksum of a segment after a crash, and rebuild its index.

The loops are written inline for speed, since a starting broker waits for them. They only detect an error; `validate` raises with the reason.
"""

from __future__ import annotations

from itertools import starmap
from struct import Struct, iter_unpack
from typing import Final

import google_crc32c

from protocol.batch import (
    COMPRESSION_MASK,
    CRC_FROM,
    EPOCH_AT,
    HEADER_BYTES,
    LENGTH_FROM,
    MAGIC,
    Compression,
    CorruptBatch,
    read_header,
    validate,
)
from protocol.batch_facts import SAME_AT
from protocol.equal_runs import RUN_MIN, count_equal
from protocol.fact_layouts import RUN_MAX
from storage.index import INTERVAL_BYTES, RELATIVE_OFFSET_MAX
from storage.segment import CHUNK_BYTES, Segment

# Base offset, length, epoch, magic, checksum, attributes, last offset delta, newest timestamp, record count.
_HEADER: Final = Struct(">qiibIhi8xq14xi")
_SAME_AT: Final = (*SAME_AT, *range(EPOCH_AT, EPOCH_AT + 4))
_crc32c: Final = google_crc32c.value


def verify_all(segment: Segment, length: int) -> str:
    """Verify every batch up to `length`; return the problem with an offset, or "". Raises CorruptBatch."""
    size = CHUNK_BYTES
    while segment.size < length:
        chunk = segment.bytes_at(segment.size, min(size, length - segment.size))
        begin = segment.size
        if problem := _verify_chunk(segment, chunk):
            return problem
        size = CHUNK_BYTES
        if segment.size == begin:
            size = read_header(chunk, 0).size
            if size > length - begin:
                raise CorruptBatch("a batch is cut short")
    return ""


def _verify_chunk(segment: Segment, chunk: bytes) -> str:
    """Verify the complete batches of a chunk, which follows the verified part; return the problem, or ""."""
    unpack = _HEADER.unpack_from
    index = segment.index
    begin = segment.size
    indexed = index.last_position
    next_offset, newest_so_far, epoch_so_far = segment.next_offset, segment.max_timestamp, segment.epoch
    size_before = 0
    offset_max = segment.base + RELATIVE_OFFSET_MAX
    compared_to = 0  # batches before this position were already searched for a run: batches of one layout, which `_verify_run` verifies at once
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
                or attributes & COMPRESSION_MASK > Compression.ZSTD
            ):
                if read_header(chunk, at).size > end - at:
                    break
                validate(chunk, at, end)  # raises with the reason
            if base < next_offset:
                return f"offset {base} where at least {next_offset} is expected"
            if base + delta > offset_max:
                return f"offset {base + delta} is too far from the segment's first, {segment.base}"
            if newest > newest_so_far and count:  # a batch without records has an old timestamp: see newest_record_timestamp
                segment.max_timestamp = newest_so_far = newest
                segment.max_timestamp_offset = base + delta
            if begin + at - indexed >= INTERVAL_BYTES:
                indexed = begin + at
                index.add(base + delta, indexed, newest_so_far, segment.max_timestamp_offset)
            if epoch > epoch_so_far:
                segment.epoch = epoch_so_far = epoch
                segment.epoch_start = base
            next_offset = base + delta + 1
            size = after - at
            if size == size_before and at >= compared_to:
                number = count_equal(chunk, at, size, min((end - at) // size, RUN_MAX), _SAME_AT) - 1
                compared_to = after + number * size
                segment.next_offset = next_offset
                if number >= RUN_MIN and count and _verify_run(segment, begin + after, chunk[after:compared_to], number, size, delta):
                    after = compared_to
                    next_offset, newest_so_far, indexed = segment.next_offset, segment.max_timestamp, index.last_position
            size_before = size
            at = after
        return ""
    finally:
        segment.size = begin + at
        segment.next_offset = next_offset


def _verify_run(segment: Segment, position: int, run: bytes, number: int, size: int, delta: int) -> bool:
    """Verify a run of batches with the layout of the previous one, and add it to the verified part. False, with nothing added, if
    offsets have gaps or are too far from the segment's first, or if a checksum is wrong.
    """
    first = segment.next_offset
    end_offset = first + number * (delta + 1)
    bases: tuple[int, ...]
    crcs: tuple[int, ...]
    newest: tuple[int, ...]
    bases, crcs, newest = zip(*iter_unpack(f">q9xI14xq{size - 43}x", run), strict=True)
    if end_offset > segment.base + RELATIVE_OFFSET_MAX or bases != tuple(range(first, end_offset, delta + 1)):
        return False
    if list(starmap(_crc32c, iter_unpack(f"{CRC_FROM}x{size - CRC_FROM}s", run))) != list(crcs):
        return False
    index = segment.index
    at = 0
    while at < number:
        # A part ends with the next batch that the index gets, as its index entry has the newest timestamp up to there.
        part_begin = at
        at += max(-((position - index.last_position - INTERVAL_BYTES) // size), 0) + 1
        at = min(at, number)
        newest_here = max(newest[part_begin:at])
        if newest_here > segment.max_timestamp:
            segment.max_timestamp = newest_here
            segment.max_timestamp_offset = bases[newest.index(newest_here)] + delta
        position += (at - part_begin) * size
        index.add(bases[at - 1] + delta, position - size, segment.max_timestamp, segment.max_timestamp_offset)
    segment.next_offset = end_offset
    return True
