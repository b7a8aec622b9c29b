"""Judge a promoted segment (`.swap`) found at opening: does it belong to this log, and is it still needed?

A compaction only removes records, so each batch of the new segment must be in the segments it was made from: those still in
place (`.log`), or set aside by the exchange (`.log.deleted`). Otherwise it belongs to another log: an earlier one of this
name, or this one before it was cut and written again.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from protocol.batch import BatchHeader, CorruptBatch, records
from storage.disk import Disk
from storage.handles import Handles
from storage.segment import NAME_DIGITS, Segment, segment_bases

DELETED: Final = ".deleted"


class Verdict(Enum):
    FOREIGN = "it holds what the log does not"
    COVERED = "the segments in its place hold all of it"
    NEEDED = "a part of it is nowhere else: the exchange had begun"


class Found(NamedTuple):
    header: BatchHeader
    chunk: bytes
    at: int


def judge(disk: Disk, folder: str, promoted: Segment) -> Verdict:
    """Compare `promoted`, which is verified, with the other segments of the folder. Raises OSError."""
    standing = segment_bases(disk, folder)
    aside = [base for base in _set_aside(disk, folder) if base not in standing]
    begin, end = promoted.base, promoted.next_offset
    if not promoted.size:  # Kafka makes an empty segment if all records were removed
        return Verdict.COVERED if begin in standing else Verdict.NEEDED
    before = max((base for base in standing if base <= begin), default=begin)
    bases = sorted(base for base in {*standing, *aside} if before <= base < end)
    handles = Handles(disk, 4)
    try:
        sources = [Segment(handles, folder, base, "" if base in standing else DELETED) for base in bases]
        verdict = _compared(promoted, sources)
        if verdict is Verdict.NEEDED and (any(begin <= base < end for base in standing) or not any(base >= end for base in standing)):
            return Verdict.FOREIGN  # all its sources would be there, in place or set aside, with the active segment after them
        if verdict is Verdict.COVERED and any(begin <= base < end for base in aside):
            return Verdict.NEEDED
        return verdict
    finally:
        handles.close()


def _set_aside(disk: Disk, folder: str) -> list[int]:
    ending = f".log{DELETED}"
    names = [name for name in disk.list(folder) if name.endswith(ending) and len(name) == NAME_DIGITS + len(ending)]
    return [int(name[:NAME_DIGITS]) for name in names if name.isascii() and name[:NAME_DIGITS].isdigit()]


def _compared(promoted: Segment, sources: list[Segment]) -> Verdict:
    """COVERED: each batch is in the sources; NEEDED: some are at offsets of no source, and all others are."""
    batches = _all(sources)
    source = next(batches, None)
    reached = -1  # the end offset of the source batches compared so far
    verdict = Verdict.COVERED
    for header, chunk, at in _sound(promoted):
        while source is not None and source.header.base_offset < header.base_offset:
            reached = source.header.next_offset
            source = next(batches, None)
        if source is not None and source.header.base_offset == header.base_offset:
            if not _made_from(Found(header, chunk, at), source):
                return Verdict.FOREIGN
        elif source is not None or header.base_offset < reached:
            return Verdict.FOREIGN  # a source covers these offsets without the batch
        else:
            verdict = Verdict.NEEDED
    return verdict


def _all(sources: list[Segment]) -> Iterator[Found]:
    for source in sources:
        yield from _sound(source)


def _sound(segment: Segment) -> Iterator[Found]:
    """The segment's batches up to the first torn one."""
    try:
        for header, chunk, at in segment.batches(0, segment.file.size(), True):
            yield Found(header, chunk, at)
    except CorruptBatch:
        return


def _made_from(new: Found, old: Found) -> bool:
    """Whether `new` is `old` after a compaction, which may only remove records and set the delete horizon."""
    header, before = new.header, old.header
    if new.chunk[new.at : new.at + header.size] == old.chunk[old.at : old.at + before.size]:
        return True
    same = (
        header.last_offset == before.last_offset
        and header.leader_epoch == before.leader_epoch
        and header.producer_id == before.producer_id
        and header.producer_epoch == before.producer_epoch
        and header.base_sequence == before.base_sequence
        and (header.max_timestamp == before.max_timestamp or (header.record_count > 0 and header.max_timestamp < before.max_timestamp))
    )
    if not same:
        return False
    known = {record.offset: record for record in records(old.chunk, old.at)}
    return all(known.get(record.offset) == record for record in records(new.chunk, new.at))
