"""End offsets without notes: from data directories of Tenure or Kafka, and from ListOffsets replies.

In a topic's log only the time indexes are read, and in the last segment the batch headers after the last entry of its offset index: the timestamp
of an offset is the time at which the log ended there. The high watermark checkpoint is a sample at its modification time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import numpy as np

from pipeline.inputs import PlainFiles, open_for_reading
from pipeline.rows import EndOffset
from protocol.batch import HEADER_BYTES, CorruptBatch, read_header
from storage.checkpoints import HIGH_WATERMARKS, LOG_STARTS, read_offsets
from storage.disk import OsDisk
from storage.segment import segment_bases, segment_name

SAMPLE_MS: Final = 10_000  # the minimum time between two samples
ENTRY: Final = np.dtype([("at", ">i8"), ("offset", ">i4")])  # of a time index
PLACE: Final = np.dtype([("offset", ">i4"), ("position", ">i4")])  # of an offset index
_FOLDER: Final = re.compile(r"(.+)-(\d{1,10})", re.ASCII)


def from_directory(cluster: str, directory: str, topics: Collection[str]) -> list[EndOffset]:
    """Samples for these topics, in table order. Files that disappear in the meantime are skipped."""
    starts = read_offsets(PlainFiles(), os.path.join(directory, LOG_STARTS))
    rows = list(_of_checkpoint(cluster, directory, topics, starts))
    for name in sorted(os.listdir(directory)):
        match = _FOLDER.fullmatch(name)
        if match is None or match[1] not in topics:
            continue
        topic, partition = match[1], int(match[2])
        rows += _of_log(cluster, os.path.join(directory, name), topic, partition, starts.get((topic, partition)))
    return sorted(rows, key=lambda row: (row.topic, row.topic_partition, row.at_ms, row.origin))


def from_list_offsets(cluster: str, at_ms: int, ends: Mapping[tuple[str, int], tuple[int | None, int]]) -> list[EndOffset]:
    """Samples from a ListOffsets reply: the end offset of each partition, and its log start offset if that was requested."""
    return [EndOffset(cluster, *key, at_ms, end, start, "live", None) for key, (start, end) in sorted(ends.items())]


def _of_checkpoint(cluster: str, directory: str, topics: Collection[str], starts: Mapping[tuple[str, int], int]) -> Iterator[EndOffset]:
    path = os.path.join(directory, HIGH_WATERMARKS)
    try:
        at_ms = os.stat(path).st_mtime_ns // 1_000_000
    except OSError:
        return
    for (topic, partition), end in read_offsets(PlainFiles(), path).items():
        if topic in topics:
            yield EndOffset(cluster, topic, partition, at_ms, end, starts.get((topic, partition)), "checkpoint", None)


def _of_log(cluster: str, folder: str, topic: str, partition: int, start: int | None) -> list[EndOffset]:
    try:
        bases = segment_bases(OsDisk(), folder)
        if not bases:
            return []
        samples: dict[int, int] = {}
        for base in bases:
            samples.update(_time_index(folder, base))
        written, at_ms, end = _read_log_end(folder, bases[-1])
    except OSError:
        return []
    samples = {at: offset for at, offset in samples.items() if offset <= end}  # an index may have entries for a truncated end
    samples[at_ms] = end
    samples[max(written, at_ms)] = end
    start = max(start or 0, bases[0])
    highest, rows = -1, []
    for at, offset in sorted(samples.items()):
        if offset >= highest:  # otherwise the clock had been set back, and the time is wrong
            highest = offset
            rows.append(EndOffset(cluster, topic, partition, at, offset, None, "segments", None))
    return [*rows[:-1], rows[-1]._replace(log_start=start)]  # the log start offset is known only for the last sample


def _time_index(folder: str, base: int) -> list[tuple[int, int]]:
    """(time, end) about every ten seconds. Kafka preallocates entries as zeros."""
    try:
        with open(os.path.join(folder, f"{segment_name(base)}.timeindex"), "rb", opener=open_for_reading) as file:
            data = file.read()
    except FileNotFoundError:
        return []
    entries = np.frombuffer(data[: len(data) // ENTRY.itemsize * ENTRY.itemsize], ENTRY)
    at, offsets = entries["at"].astype(np.int64), entries["offset"].astype(np.int64)
    valid = (at > 0) & (offsets >= 0)
    at, offsets = at[valid], offsets[valid] + base + 1
    last = np.append(at[1:] // SAMPLE_MS != at[:-1] // SAMPLE_MS, True) if len(at) else valid[:0]
    return list(zip(at[last].tolist(), offsets[last].tolist(), strict=True))


def _read_log_end(folder: str, base: int) -> tuple[int, int, int]:
    """For the last segment: its modification time, the time of its last batch, and the offset after that batch."""
    path = os.path.join(folder, f"{segment_name(base)}.log")
    with open(path, "rb", opener=open_for_reading) as file:
        stat = os.fstat(file.fileno())
        written = stat.st_mtime_ns // 1_000_000
        at_ms, end = written, base
        begin = position = _last_position(folder, base)
        while position + HEADER_BYTES <= stat.st_size:
            file.seek(position)
            try:
                header = read_header(file.read(HEADER_BYTES), 0)
            except CorruptBatch:
                if not begin or position != begin:
                    break  # a torn end of the log
                begin = position = 0  # the index points to no batch
                continue
            position += header.size
            if position > stat.st_size:
                break
            end = header.next_offset
            at_ms = header.max_timestamp if header.max_timestamp >= 0 else written
        return written, at_ms, end


def _last_position(folder: str, base: int) -> int:
    try:
        with open(os.path.join(folder, f"{segment_name(base)}.index"), "rb", opener=open_for_reading) as file:
            data = file.read()
    except FileNotFoundError:
        return 0
    places = np.frombuffer(data[: len(data) // PLACE.itemsize * PLACE.itemsize], PLACE)["position"]
    return int(places.max()) if len(places) else 0
