"""Every batch of a segment, its checksum verified, as columns; and the stretches between them that are none.

This is all that planning needs to know, at a small part of the cost of reading the records. Behind damage the next sound batch is
looked for, so that what is lost is counted and nothing else is. A batch's offset is outside its checksum: of batches
whose offsets do not grow, the fewest are called damaged.
"""

from __future__ import annotations

from bisect import bisect_left
from struct import Struct
from typing import Any, Final, NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from pipeline.batches import headers_at
from pipeline.inputs import SegmentFile
from protocol.batch import (
    COMPRESSION_MASK,
    CRC_FROM,
    DELETE_HORIZON,
    HEADER_BYTES,
    LENGTH_FROM,
    LOG_APPEND_TIME,
    MAGIC,
    Compression,
    CorruptBatch,
    read_header,
    validate,
)
from protocol.batch_record import INT64_MAX
from storage.tearing import BATCH_BYTES_MAX, RELATIVE_OFFSET_MAX, find_sound, is_torn

CHUNK_BYTES: Final = 4 << 20

_FRAME: Final = Struct(">8xi4xbI").unpack_from  # length, magic, checksum
_crc32c: Final = google_crc32c.value
COLUMNS: Final = np.dtype(
    [
        ("position", "i8"),
        ("size", "i8"),
        ("base", "i8"),
        ("last", "i8"),
        ("count", "i8"),
        ("first_ms", "i8"),
        ("max_ms", "i8"),
        ("producer_id", "i8"),
        ("attributes", "i4"),
        ("epoch", "i4"),
        ("crc", "u4"),
    ]
)


class Damage(NamedTuple):
    """Bytes that are no sound batch. `torn`: nothing sound follows; `interrupted`: as an interrupted write leaves it."""

    position: int
    size: int
    reason: str
    torn: bool = False
    interrupted: bool = False


class Survey(NamedTuple):
    batches: NDArray[Any]  # of COLUMNS
    damages: list[Damage]
    size: int  # of the file


def survey(segment: SegmentFile, begin: int = 0) -> Survey:
    """From a position on at which a batch begins."""
    found: list[NDArray[Any]] = []
    damages: list[Damage] = []
    file, end = segment.file, segment.size
    at = begin
    want = CHUNK_BYTES
    while at < end:
        data = file.read(at, min(want, end - at))
        positions, used = sound_batches(data)
        want = CHUNK_BYTES
        if positions:
            found.append(columns_of(data, positions, at))
            at += used
            continue
        try:
            size = read_header(data, 0).size
            if size > BATCH_BYTES_MAX:
                raise CorruptBatch(f"a batch of {size} bytes, more than a request can bring")
            if size > end - at:
                raise CorruptBatch(f"a batch of {size} bytes is cut short after {end - at}")
            if size > len(data):
                want = size
                continue
            validate(data, 0, len(data))
            raise AssertionError("a sound batch that was taken for none")
        except CorruptBatch as error:
            reason = str(error) if any(data[:HEADER_BYTES]) else "zeros where a batch must be"
        next_at = find_sound(file, at + 1, end, segment.base)
        torn = next_at >= end
        damages.append(Damage(at, next_at - at, reason, torn, torn and is_torn(file, at, end, segment.base)))
        at = next_at
    batches = np.concatenate(found) if found else np.empty(0, COLUMNS)
    batches, misplaced = _in_order(batches, segment.base)
    return Survey(batches, sorted(damages + misplaced), end)


def sound_batches(data: bytes) -> tuple[list[int], int]:
    """The positions of consecutive sound batches from the start on; and the end of the last one."""
    positions: list[int] = []
    at = 0
    end = len(data)
    last_at = end - HEADER_BYTES
    while at <= last_at:
        length, magic, crc = _FRAME(data, at)
        after = at + LENGTH_FROM + length
        if magic != MAGIC or not at + HEADER_BYTES <= after <= end or _crc32c(data[at + CRC_FROM : after]) != crc:
            break
        positions.append(at)
        at = after
    if positions:
        headers = headers_at(data, positions)
        last_delta = headers["last_offset_delta"].astype(np.int64)
        count = headers["record_count"].astype(np.int64)
        base = headers["base_offset"].astype(np.int64)
        last = base + last_delta  # below 0 where it is more than an int64
        wrong = (last_delta < 0) | (count < 0) | (count > last_delta + 1) | (base < 0) | (last < 0) | (last == INT64_MAX)
        wrong |= headers["attributes"] & COMPRESSION_MASK > Compression.ZSTD
        if wrong.any():
            first = int(np.argmax(wrong))
            at = positions[first]
            positions = positions[:first]
    return positions, at


def columns_of(data: bytes, positions: list[int], at: int) -> NDArray[Any]:
    headers = headers_at(data, positions)
    found = np.empty(len(positions), COLUMNS)
    found["position"] = np.array(positions, np.int64) + at
    found["size"] = headers["length"].astype(np.int64) + LENGTH_FROM
    found["base"] = headers["base_offset"]
    found["last"] = found["base"] + headers["last_offset_delta"]
    found["count"] = headers["record_count"]
    found["max_ms"] = headers["max_timestamp"]
    # With LogAppendTime all have the newest time; a delete horizon stands in the place of the first.
    attributes = headers["attributes"]
    found["first_ms"] = np.where(attributes & (LOG_APPEND_TIME | DELETE_HORIZON), headers["max_timestamp"], headers["base_timestamp"])
    found["producer_id"] = headers["producer_id"]
    found["attributes"] = attributes
    found["epoch"] = headers["leader_epoch"]
    found["crc"] = headers["crc"]
    return found


def _in_order(batches: NDArray[Any], base: int) -> tuple[NDArray[Any], list[Damage]]:
    """Those whose offsets grow, and the rest as damage."""
    if not len(batches):
        return batches, []
    sane = (batches["base"] >= base) & (batches["last"] - base <= RELATIVE_OFFSET_MAX)
    if sane.all() and (batches["base"][1:] > batches["last"][:-1]).all():
        return batches, []
    kept = np.zeros(len(batches), bool)
    kept[_longest_growing(batches, np.flatnonzero(sane))] = True
    misplaced = [Damage(int(one["position"]), int(one["size"]), f"offset {int(one['base'])} is out of order") for one in batches[~kept]]
    return batches[kept], misplaced


def _longest_growing(batches: NDArray[Any], among: NDArray[np.int64]) -> list[int]:
    """The longest sequence of batches that do not overlap."""
    ends: list[int] = []  # the least last offset that a sequence of so many ends in
    where: list[int] = []
    before: dict[int, int] = {}
    for index in among.tolist():
        first, last = int(batches["base"][index]), int(batches["last"][index])
        at = bisect_left(ends, first)
        before[index] = where[at - 1] if at else -1
        if at == len(ends):
            ends.append(last)
            where.append(index)
        elif last < ends[at]:
            ends[at], where[at] = last, index
    found: list[int] = []
    index = where[-1] if where else -1
    while index >= 0:
        found.append(index)
        index = before[index]
    return found[::-1]


EMPTY: Final = np.empty(0, COLUMNS)
