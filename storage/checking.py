"""How far a segment's file is good: found out when it is opened, and again when its end is cut.

Headers tell where the file was closed in order, from the last place on that the stored index knows; every checksum
after a crash (verifying.py).
"""

from __future__ import annotations

from protocol.batch import CorruptBatch
from storage.index import RELATIVE_OFFSET_MAX, Index
from storage.segment import Segment, newest_record
from storage.verifying import verify_all


def check(segment: Segment, from_start: bool, believe_index: bool = True) -> str:
    """Read the file up to its end or the first batch that is none; why it stopped short, or "".

    Raises DamagedLog for what its index leads to and is none. From the start every checksum is verified. Otherwise headers alone are read, from the last place that the
    stored index knows. `believe_index`: its two files were written by a process that went on or stopped in order.
    """
    length = segment.handles.file(segment.log_path).size()
    stored = None if from_start else _load_index(segment, length, believe_index)
    segment.verified = from_start
    try:
        reason = verify_all(segment, length) if from_start else _read_headers(segment, length)
        if not reason and segment.index.last_time > max(segment.max_timestamp, 0):  # it has a time that no batch has
            _begin_anew(segment)
            reason = _read_headers(segment, length)
    except CorruptBatch as error:
        reason = str(error)
    index = segment.index
    index.add_time(segment.max_timestamp, segment.max_timestamp_offset)
    segment.index_saved = index is stored and not index.positions and not index.times
    return reason


def _read_headers(segment: Segment, length: int) -> str:
    for header, _, _ in segment.batches(segment.size, length, False):
        if header.base_offset < segment.next_offset or header.last_offset < header.base_offset:
            return f"offset {header.base_offset} where at least {segment.next_offset} must be"
        if header.last_offset - segment.base > RELATIVE_OFFSET_MAX:
            return f"offset {header.last_offset} is too far from the segment's first, {segment.base}"
        segment.note(header)
    return ""


def cut(segment: Segment, position: int) -> None:
    """Forget and remove everything from `position` on; a batch begins there or the file ends."""
    file = segment.handles.file(segment.log_path)
    if file.size() != position:
        file.truncate(position)
        segment.unsynced = True
    segment.places.clear()
    segment.index.cut(position)
    _resume(segment)
    try:
        for header, _, _ in segment.batches(segment.size, position, False):
            segment.note(header)
    except CorruptBatch as error:
        raise segment.damaged_at(str(error)) from error
    segment.index_saved = False


def _resume(segment: Segment) -> None:
    """Go back to the last batch that the index names, or to the start."""
    position, last_offset = segment.index.last_place()
    header = segment.header_named(position, last_offset) if position else None
    if header is None:
        _begin_anew(segment)
    else:
        segment.size, segment.next_offset = position, header.base_offset
        segment.max_timestamp, segment.max_timestamp_offset = segment.index.last_record_time()


def _begin_anew(segment: Segment) -> None:
    """Nothing is known, and the index is built again."""
    segment.index = Index(segment.handles, segment.path, segment.suffix, segment.base)
    segment.size, segment.next_offset = 0, segment.base
    segment.max_timestamp, segment.max_timestamp_offset = -1, segment.base


def _load_index(segment: Segment, length: int, believe: bool) -> Index | None:
    """The stored index, if it makes sense; it is taken up as far as it leads to batches."""
    index = Index(segment.handles, segment.path, segment.suffix, segment.base)
    if not index.load(length):
        return None
    segment.index = index
    _resume(segment)
    if segment.size and not believe and not _resume_at_newest(segment):
        _begin_anew(segment)
    return index


def _resume_at_newest(segment: Segment) -> bool:
    """Go further back, to the batch that the time index has as the newest so far; whether it leads to one.

    Nobody waits until the index files are on the disk. After a power failure the offsets may be there and the times of
    the same batches may not: then the newest is among what is read from here on.
    """
    newest, offset = segment.index.newest_before(segment.next_offset)
    if newest < 0:
        return False
    position = segment.position_from(offset)
    header = segment.header_at(position)
    if header is None or newest_record(header) != newest:
        return False
    segment.size, segment.next_offset = position, header.base_offset
    segment.max_timestamp, segment.max_timestamp_offset = newest, offset
    return True
