"""A segment built from a known list of batches."""

from __future__ import annotations

from typing import NamedTuple

from protocol.batch import Record, build, stamp_whole
from simulator.disk import SimDisk
from storage import Handles
from storage.checking import check
from storage.segment import Segment
from tests.storage.logs import overwrite

PATH = "/data"
BASE = 100


class Batch(NamedTuple):
    base: int
    last: int
    data: bytes


def batch_at(base: int, records: int = 1, padding: int = 0, timestamp: int = 1_000, epoch: int = 0) -> Batch:
    data = bytearray(build([Record(n, timestamp + n, b"%d" % (base + n), b"x" * padding) for n in range(records)]))
    stamp_whole(data, base, epoch)
    return Batch(base, base + records - 1, bytes(data))


# Offsets 100 to 102, 103, 110 to 114 (a compaction removed those between), 115, 120.
BATCHES = [batch_at(100, 3), batch_at(103, padding=30), batch_at(110, 5, timestamp=3_000), batch_at(115, epoch=2), batch_at(120, timestamp=2_000, epoch=2)]
NEXT = 121


def write_segment(disk: SimDisk, batches: list[Batch], more: bytes = b"") -> Segment:
    """A segment of these batches, not yet checked."""
    segment = Segment(Handles(disk), PATH, BASE)
    overwrite(disk, segment.log_path, b"".join(batch.data for batch in batches) + more)
    return segment


def state_of(segment: Segment) -> tuple[object, ...]:
    return (segment.size, segment.next_offset, segment.max_timestamp, segment.max_timestamp_offset)


def checked_segment(disk: SimDisk, batches: list[Batch], from_start: bool = True) -> Segment:
    segment = write_segment(disk, batches)
    assert check(segment, from_start) == ""
    return segment
