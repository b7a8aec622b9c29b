"""Records of one segment by their time: the first that is late enough, the latest of all, the first of all."""

from __future__ import annotations

from typing import Final, NamedTuple

from protocol.batch import CorruptBatch, records
from storage.errors import DamagedLog
from storage.segment import LOOK_BYTES, Segment

UNKNOWN: Final = -2  # a timestamp that nobody has looked for yet; -1 stands in batches that have none


class Found(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


def find_time(segment: Segment, timestamp: int, from_offset: int) -> Found | None:
    """The first record at `from_offset` or behind it that is at least as late."""
    if segment.max_timestamp < timestamp:
        return None
    at = _near_time(segment, timestamp)
    if from_offset > segment.base:
        at = max(at, segment.position_from(from_offset))
    try:
        for header, chunk, where in segment.batches(at, segment.size, False, LOOK_BYTES):
            if header.max_timestamp >= timestamp:
                for record in records(chunk, where):
                    if record.timestamp >= timestamp and record.offset >= from_offset:
                        return Found(record.timestamp, record.offset, header.leader_epoch)
            at += header.size
    except CorruptBatch as error:
        raise DamagedLog(segment.log_path, at, str(error)) from error
    return None


def latest(segment: Segment, from_offset: int) -> Found | None:
    """The record with the largest timestamp at `from_offset` or behind it; the first of several."""
    if segment.max_timestamp_offset < from_offset:
        return _latest_from(segment, from_offset)  # the record may be gone
    found = find_time(segment, segment.max_timestamp, from_offset)
    return found if found is not None else _latest_from(segment, from_offset)  # a stored index may name an emptied batch


def _latest_from(segment: Segment, from_offset: int) -> Found | None:
    """Read in full: the beginning of the segment was given up, and with it what the index knows."""
    best: Found | None = None
    at = segment.position_from(from_offset)
    try:
        for header, chunk, where in segment.batches(at, segment.size, False):
            if best is None or header.max_timestamp > best.timestamp:
                for record in records(chunk, where):
                    if record.offset >= from_offset and (best is None or record.timestamp > best.timestamp):
                        best = Found(record.timestamp, record.offset, header.leader_epoch)
            at += header.size
    except CorruptBatch as error:
        raise DamagedLog(segment.log_path, at, str(error)) from error
    return best


def first_timestamp(segment: Segment) -> int:
    """Of the first batch, as Kafka counts the age of a segment; -1 where there is none."""
    if segment.first_timestamp == UNKNOWN:
        if not segment.size:
            return -1
        header = segment.header_at(0)
        segment.first_timestamp = header.max_timestamp if header is not None else -1
    return segment.first_timestamp


def _near_time(segment: Segment, timestamp: int) -> int:
    """Where to begin looking for `timestamp`; the start if the index does not lead to the batch that it means."""
    earlier, offset = segment.index.time_before(timestamp)
    if earlier < 0:
        return 0
    position = segment.position_from(offset)
    header = segment.header_at(position)
    return position if header is not None and header.max_timestamp == earlier else 0
