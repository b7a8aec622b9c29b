"""Judge a promoted segment (`.swap`) at opening: whether it belongs to this log, and whether it is still needed.

A compaction only removes records, so each batch of the new segment must be in its source segments: those still in place (`.log`),
or those set aside by the exchange (`.log.deleted`). Otherwise it belongs to another log: an earlier log of this name, or an earlier
state of this log, which was cut and written again.
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


class PromotedVerdict(Enum):
    FOREIGN = "it contains batches that the log does not have"
    COVERED = "the segments that it would replace contain all its batches"
    NEEDED = "only it contains some of its batches: the exchange had begun"


class PlacedBatch(NamedTuple):
    header: BatchHeader
    chunk: bytes
    at: int


def judge(disk: Disk, folder: str, promoted: Segment) -> PromotedVerdict:
    """Compare `promoted`, which is verified, with the other segments of the folder. Raises OSError."""
    active_bases = segment_bases(disk, folder)
    aside_bases = [base for base in _set_aside_bases(disk, folder) if base not in active_bases]
    begin, end = promoted.base, promoted.next_offset
    if not promoted.size:  # Kafka makes an empty segment if all records were removed
        return PromotedVerdict.COVERED if begin in active_bases else PromotedVerdict.NEEDED
    before = max((base for base in active_bases if base <= begin), default=begin)
    bases = sorted(base for base in {*active_bases, *aside_bases} if before <= base < end)
    handles = Handles(disk, 4)
    try:
        sources = [Segment(handles, folder, base, "" if base in active_bases else DELETED) for base in bases]
        verdict = _compare(promoted, sources)
        if verdict is PromotedVerdict.NEEDED and (
            any(begin <= base < end for base in active_bases) or not any(base >= end for base in active_bases)
        ):
            # An unfinished exchange of this log would have all sources, in place or set aside, and the active segment.
            return PromotedVerdict.FOREIGN
        if verdict is PromotedVerdict.COVERED and any(begin <= base < end for base in aside_bases):
            return PromotedVerdict.NEEDED
        return verdict
    finally:
        handles.close()


def _set_aside_bases(disk: Disk, folder: str) -> list[int]:
    ending = f".log{DELETED}"
    names = [name for name in disk.list(folder) if name.endswith(ending) and len(name) == NAME_DIGITS + len(ending)]
    return [int(name[:NAME_DIGITS]) for name in names if name.isascii() and name[:NAME_DIGITS].isdigit()]


def _compare(promoted: Segment, sources: list[Segment]) -> PromotedVerdict:
    """COVERED: each batch is in the sources; NEEDED: some batches are at offsets that no source has, and all others are in the sources."""
    batches = _all_batches(sources)
    source = next(batches, None)
    compared_to = -1  # the end offset of the source batches compared so far
    verdict = PromotedVerdict.COVERED
    for header, chunk, at in _sound_batches(promoted):
        while source is not None and source.header.base_offset < header.base_offset:
            compared_to = source.header.next_offset
            source = next(batches, None)
        if source is not None and source.header.base_offset == header.base_offset:
            if not _made_from(PlacedBatch(header, chunk, at), source):
                return PromotedVerdict.FOREIGN
        elif source is not None or header.base_offset < compared_to:
            return PromotedVerdict.FOREIGN  # a source has these offsets, but not this batch
        else:
            verdict = PromotedVerdict.NEEDED
    return verdict


def _all_batches(sources: list[Segment]) -> Iterator[PlacedBatch]:
    for source in sources:
        yield from _sound_batches(source)


def _sound_batches(segment: Segment) -> Iterator[PlacedBatch]:
    """The segment's batches up to the first torn one."""
    try:
        for header, chunk, at in segment.batches(0, segment.file.size(), True):
            yield PlacedBatch(header, chunk, at)
    except CorruptBatch:
        return


def _made_from(new: PlacedBatch, old: PlacedBatch) -> bool:
    """Whether `new` is `old` after a compaction, which may only remove records and set the delete horizon."""
    header, original = new.header, old.header
    if new.chunk[new.at : new.at + header.size] == old.chunk[old.at : old.at + original.size]:
        return True
    same = (
        header.last_offset == original.last_offset
        and header.leader_epoch == original.leader_epoch
        and header.producer_id == original.producer_id
        and header.producer_epoch == original.producer_epoch
        and header.base_sequence == original.base_sequence
        and (header.max_timestamp == original.max_timestamp or (header.record_count > 0 and header.max_timestamp < original.max_timestamp))
    )
    if not same:
        return False
    original_records = {record.offset: record for record in records(old.chunk, old.at)}
    return all(original_records.get(record.offset) == record for record in records(new.chunk, new.at))
