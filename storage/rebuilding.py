"""Rebuild the producer state when a log is opened: from the newest sound snapshot and the batches after it."""

from __future__ import annotations

import contextlib
from struct import Struct
from typing import Final

from protocol.batch import HEADER_BYTES, LENGTH_FROM, MAGIC, CorruptBatch, read_header
from storage.disk import Disk
from storage.errors import DamagedLog
from storage.producers import Producers
from storage.segment import CHUNK_BYTES, Segment
from storage.snapshots import read_snapshot, snapshot_offsets, snapshot_path, write_snapshot

# Base offset, length, magic, attributes, last offset delta, newest timestamp, producer's id, epoch and sequence.
_HEADER_FIELDS: Final = Struct(">qi4xb4xhi8xqqhi")


def rebuild(disk: Disk, folder: str, segments: list[Segment], next_offset: int, producers: Producers, clean: bool) -> None:
    """Fill `producers`. Snapshots that are unsound, unneeded or beyond the end of the log are removed.

    Raises DamagedLog and OSError as reading does.
    """
    offsets = snapshot_offsets(disk.list(folder))
    producers.clear()
    newest = -1
    # A snapshot older than the log's start is useless: the batches after it are missing.
    begin = segments[0].base if segments else next_offset
    for offset in reversed(offsets):
        if begin <= offset <= next_offset and read_snapshot(disk, folder, offset, producers):
            newest = offset
            break
    stale = [offset for offset in offsets if offset > newest]
    _remove(disk, folder, stale)
    if stale:  # synced: a stale snapshot must not reappear after a crash, when the log has other batches
        disk.sync_folder(folder)
    bases = {segment.base for segment in segments}
    with contextlib.suppress(OSError):  # older snapshots are harmless
        _remove(disk, folder, [offset for offset in offsets if offset < newest and offset not in bases])
    if clean and not offsets:
        return  # a clean stop without a snapshot: there were no producers
    for segment in segments:
        if segment.next_offset > newest:
            _note_batches(segment, segment.position_from(newest) if newest > segment.base else 0, producers)


def _remove(disk: Disk, folder: str, offsets: list[int]) -> None:
    for offset in offsets:
        disk.remove(snapshot_path(folder, offset))


def _note_batches(segment: Segment, at: int, producers: Producers) -> None:
    try:
        while at < segment.size:
            chunk = segment.bytes_at(at, min(CHUNK_BYTES, segment.size - at))
            used = _note_chunk(chunk, producers)
            if not used:
                size = read_header(chunk, 0).size  # raises CorruptBatch for an unsound header
                used = _note_chunk(segment.bytes_at(at, size), producers)
            at += used
    except CorruptBatch as error:
        raise DamagedLog(segment.log_path, at, str(error)) from error


def _note_chunk(chunk: bytes, producers: Producers) -> int:
    """Note the producers of the whole batches in `chunk`; return the size of these batches."""
    unpack = _HEADER_FIELDS.unpack_from
    note = producers.note_batch
    end = len(chunk)
    at = 0
    base: int
    length: int
    magic: int
    attributes: int
    delta: int
    timestamp: int
    producer: int
    epoch: int
    sequence: int
    while end - at >= HEADER_BYTES:
        base, length, magic, attributes, delta, timestamp, producer, epoch, sequence = unpack(chunk, at)
        after = at + LENGTH_FROM + length
        if magic != MAGIC or length < HEADER_BYTES - LENGTH_FROM or after > end:
            break
        if producer >= 0:
            note(producer, epoch, sequence, delta, base, timestamp, attributes)
        at = after
    return at


def save_producers(disk: Disk, folder: str, offset: int, producers: Producers) -> None:
    """Write a snapshot at the end of a segment or at a clean stop, unless the log never had producers.

    An existing snapshot of this offset is replaced: it may be torn or have expired producers.
    """
    if len(producers) or snapshot_offsets(disk.list(folder)):
        write_snapshot(disk, folder, offset, producers)
