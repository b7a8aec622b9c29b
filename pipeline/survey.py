"""Surveys a segment: its batches with verified checksums, as columns, and the damaged ranges between them.

Planning needs no more, and a survey is much cheaper than reading the records. After damage the next sound batch is searched for. The checksum does
not cover a batch's offset: if offsets are not ascending, the smallest possible number of batches counts as damaged.
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
from storage.tearing import BATCH_BYTES_MAX, RELATIVE_OFFSET_MAX, find_sound_batch, is_torn

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
    """Bytes that are not a sound batch. `torn`: no sound batch follows; `interrupted`: an interrupted write can leave such bytes."""

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
    """Survey the segment from `begin` on, where a batch must begin."""
    chunks: list[NDArray[Any]] = []
    damages: list[Damage] = []
    file, end = segment.file, segment.size
    at = begin
    read_bytes = CHUNK_BYTES
    while at < end:
        data = file.read(at, min(read_bytes, end - at))
        positions, used = sound_batches(data)
        read_bytes = CHUNK_BYTES
        if positions:
            chunks.append(columns_of(data, positions, at))
            at += used
            continue
        try:
            size = read_header(data, 0).size
            if size > BATCH_BYTES_MAX:
                raise CorruptBatch(f"a batch of {size} bytes, more than a request can contain")
            if size > end - at:
                raise CorruptBatch(f"a batch of {size} bytes is cut short after {end - at}")
            if size > len(data):
                read_bytes = size
                continue
            validate(data, 0, len(data))
            raise AssertionError("a sound batch was not recognized")
        except CorruptBatch as error:
            reason = str(error) if any(data[:HEADER_BYTES]) else "zeros instead of a batch"
        next_at = find_sound_batch(file, at + 1, end, segment.base)
        torn = next_at >= end
        damages.append(Damage(at, next_at - at, reason, torn, torn and is_torn(file, at, end, segment.base)))
        at = next_at
    batches = np.concatenate(chunks) if chunks else np.empty(0, COLUMNS)
    batches, misplaced = _in_order(batches, segment.base)
    return Survey(batches, sorted(damages + misplaced), end)


def sound_batches(data: bytes) -> tuple[list[int], int]:
    """The positions of consecutive sound batches from the start on, and the end of the last one."""
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
        last = base + last_delta  # negative on overflow
        invalid = (last_delta < 0) | (count < 0) | (count > last_delta + 1) | (base < 0) | (last < 0) | (last == INT64_MAX)
        invalid |= headers["attributes"] & COMPRESSION_MASK > Compression.ZSTD
        if invalid.any():
            first = int(np.argmax(invalid))
            at = positions[first]
            positions = positions[:first]
    return positions, at


def columns_of(data: bytes, positions: list[int], at: int) -> NDArray[Any]:
    headers = headers_at(data, positions)
    columns = np.empty(len(positions), COLUMNS)
    columns["position"] = np.array(positions, np.int64) + at
    columns["size"] = headers["length"].astype(np.int64) + LENGTH_FROM
    columns["base"] = headers["base_offset"]
    columns["last"] = columns["base"] + headers["last_offset_delta"]
    columns["count"] = headers["record_count"]
    columns["max_ms"] = headers["max_timestamp"]
    # With LogAppendTime all records have the newest time; a delete horizon replaces the first timestamp.
    attributes = headers["attributes"]
    columns["first_ms"] = np.where(attributes & (LOG_APPEND_TIME | DELETE_HORIZON), headers["max_timestamp"], headers["base_timestamp"])
    columns["producer_id"] = headers["producer_id"]
    columns["attributes"] = attributes
    columns["epoch"] = headers["leader_epoch"]
    columns["crc"] = headers["crc"]
    return columns


def _in_order(batches: NDArray[Any], base: int) -> tuple[NDArray[Any], list[Damage]]:
    """The batches with ascending offsets, and the others as damage."""
    if not len(batches):
        return batches, []
    in_range = (batches["base"] >= base) & (batches["last"] - base <= RELATIVE_OFFSET_MAX)
    if in_range.all() and (batches["base"][1:] > batches["last"][:-1]).all():
        return batches, []
    in_order = np.zeros(len(batches), bool)
    in_order[_longest_ascending(batches, np.flatnonzero(in_range))] = True
    misplaced = [Damage(int(batch["position"]), int(batch["size"]), f"offset {int(batch['base'])} is out of order") for batch in batches[~in_order]]
    return batches[in_order], misplaced


def _longest_ascending(batches: NDArray[Any], candidates: NDArray[np.int64]) -> list[int]:
    """The longest sequence of batches with ascending offsets that do not overlap."""
    ends: list[int] = []  # for each length the lowest last offset of such a sequence
    last_index: list[int] = []
    predecessor: dict[int, int] = {}
    for index in candidates.tolist():
        first, last = int(batches["base"][index]), int(batches["last"][index])
        at = bisect_left(ends, first)
        predecessor[index] = last_index[at - 1] if at else -1
        if at == len(ends):
            ends.append(last)
            last_index.append(index)
        elif last < ends[at]:
            ends[at], last_index[at] = last, index
    sequence: list[int] = []
    index = last_index[-1] if last_index else -1
    while index >= 0:
        sequence.append(index)
        index = predecessor[index]
    return sequence[::-1]


EMPTY: Final = np.empty(0, COLUMNS)
