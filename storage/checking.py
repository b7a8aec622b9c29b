"""Find the sound part of a segment's file, when it is opened and when its end is cut.

Usually only batch headers are read, from the last indexed position on. After a crash, every checksum of a segment that may be torn is
verified (verifying.py).
"""

from __future__ import annotations

from protocol.batch import CorruptBatch
from storage.index import RELATIVE_OFFSET_MAX, Index
from storage.segment import Segment, newest_record_timestamp
from storage.verifying import verify_all


def check(segment: Segment, from_start: bool, trust_index: bool = True) -> str:
    """Read the file up to its end or the first unsound batch; return what is wrong with that batch, or "".

    `from_start`: verify every checksum; otherwise read headers from the last position in the stored index. `trust_index`: the
    process that wrote the index files stopped cleanly. Raises DamagedLog if the index points to an unsound batch.
    """
    length = segment.handles.file(segment.log_path).size()
    stored = None if from_start else _load_index(segment, length, trust_index)
    segment.verified = from_start
    try:
        reason = verify_all(segment, length) if from_start else _read_headers(segment, length)
        if not reason and segment.index.last_time > max(segment.max_timestamp, 0):  # the index has a timestamp that no batch has
            _reset(segment)
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
            return f"offset {header.base_offset} where at least {segment.next_offset} is expected"
        if header.last_offset - segment.base > RELATIVE_OFFSET_MAX:
            return f"offset {header.last_offset} is too far from the segment's first, {segment.base}"
        segment.extend(header)
    return ""


def cut(segment: Segment, position: int) -> None:
    """Cut the file at `position`, where a batch begins or the file ends."""
    file = segment.handles.file(segment.log_path)
    if file.size() != position:
        file.truncate(position)
        segment.unsynced = True
    segment.positions.clear()
    segment.index.cut(position)
    _resume(segment)
    try:
        for header, _, _ in segment.batches(segment.size, position, False):
            segment.extend(header)
    except CorruptBatch as error:
        raise segment.damaged_at(str(error)) from error
    segment.index_saved = False


def _resume(segment: Segment) -> None:
    """Set the sound part's end to the last indexed batch, or to the start of the file."""
    position, last_offset = segment.index.last_entry()
    header = segment.header_with_last_offset(position, last_offset) if position else None
    if header is None:
        _reset(segment)
    else:
        segment.size, segment.next_offset = position, header.base_offset
        segment.max_timestamp, segment.max_timestamp_offset = segment.index.last_record_time()


def _reset(segment: Segment) -> None:
    """Restart at the start of the file with an empty index."""
    segment.index = Index(segment.handles, segment.path, segment.suffix, segment.base)
    segment.size, segment.next_offset = 0, segment.base
    segment.max_timestamp, segment.max_timestamp_offset = -1, segment.base


def _load_index(segment: Segment, length: int, trust: bool) -> Index | None:
    """Load the stored index and resume at its last batch; None if the index is missing or inconsistent."""
    index = Index(segment.handles, segment.path, segment.suffix, segment.base)
    if not index.load(length):
        return None
    segment.index = index
    _resume(segment)
    if segment.size and not trust and not _resume_at_newest(segment):
        _reset(segment)
    return index


def _resume_at_newest(segment: Segment) -> bool:
    """Resume further back, at the batch with the newest stored timestamp; False if the time index points to no such batch.

    The index files are never synced, so after a power failure the time index may lack entries that the offset index has.
    Reading on from this batch finds the timestamps that the time index lacks.
    """
    newest, offset = segment.index.newest_before(segment.next_offset)
    if newest < 0:
        return False
    position = segment.position_from(offset)
    header = segment.header_at(position)
    if header is None or newest_record_timestamp(header) != newest:
        return False
    segment.size, segment.next_offset = position, header.base_offset
    segment.max_timestamp, segment.max_timestamp_offset = newest, offset
    return True
