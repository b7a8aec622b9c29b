"""Reads a split of a log as Arrow batches of `rows.Record`, in any process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.batches import headers_at, whole_batches
from pipeline.coverage import DAMAGED, Hole
from pipeline.decode import BatchLocation, rows_of_batch
from pipeline.inputs import LogId, open_for_reading
from pipeline.lockstep import PADDING, Batches, walk
from pipeline.record_columns import Chunk, record_batch
from pipeline.schema import in_order, joined, table_of
from pipeline.splits import Split
from protocol.batch import COMPRESSION_MASK, HEADER_BYTES, LENGTH_FROM, CorruptBatch, read_header
from protocol.compression import decompress
from protocol.errors import ProtocolError
from storage.disk import OsFile

CHUNK_BYTES: Final = 4 << 20
# The limit for one batch, whose records are all in memory: thirty times Kafka's default of message.max.bytes.
DECOMPRESSED_BYTES_MAX: Final = 32 << 20
UNPACKED_BYTES: Final = 8 << 20  # of decompressed batches that are read together


class SegmentReplaced(Exception):
    """A cleaner replaced the segment after the split was planned."""


@dataclass
class ReadResult:
    """The result of a read, apart from its rows."""

    records: int = 0
    holes: list[Hole] = field(default_factory=list)  # batches with a valid checksum and unreadable records
    bytes: int = 0  # of these batches


def read_split(split: Split, read: ReadResult | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a split, in log order. May raise SegmentReplaced at any time."""
    read = ReadResult() if read is None else read
    try:
        descriptor = open_for_reading(split.path)
    except FileNotFoundError as error:
        raise SegmentReplaced(split.path) from error
    with closing(OsFile(descriptor)) as file:
        _check(file, split)
        for span in split.spans:
            at = span.begin
            read_bytes = CHUNK_BYTES
            while at < span.end:
                data = file.read(at, min(read_bytes, span.end - at))
                try:
                    size = read_header(data, 0).size
                except CorruptBatch as error:
                    raise SegmentReplaced(split.path) from error
                if size > len(data):
                    if size > span.end - at or len(data) < min(read_bytes, span.end - at):
                        raise SegmentReplaced(split.path)
                    read_bytes = size
                    continue
                read_bytes = CHUNK_BYTES
                *positions, end = whole_batches(data)
                yield from read_batches(split.id, split.segment, data[:end], positions, at, read)
                at += end


def _check(file: OsFile, split: Split) -> None:
    for position, crc in ((split.spans[0].begin, split.first_crc), (split.last_at, split.last_crc)):
        try:
            header = read_header(file.read(position, HEADER_BYTES), 0)
        except CorruptBatch as error:
            raise SegmentReplaced(split.path) from error
        if header.crc != crc:
            raise SegmentReplaced(split.path)


def read_batches(id: LogId, segment: str, data: bytes, positions: list[int], at: int | None, read: ReadResult) -> Iterator[pa.RecordBatch]:
    """Read the complete, sound batches at these positions of `data`, which begins at `at` in its file (None: no file)."""
    headers = headers_at(data, positions)
    begins = np.array(positions, np.int64)
    in_file = np.full(len(begins), -1, np.int64) if at is None else begins + at
    if not (headers["attributes"] & COMPRESSION_MASK).any():
        ends = begins + headers["length"] + LENGTH_FROM
        yield from _read(id, segment, data, headers, begins, ends, in_file, data, begins, read)
        return
    bodies: list[bytes] = []
    first = 0
    size = 0
    for index, position in enumerate(positions):
        header = headers[index]
        end = position + int(header["length"]) + LENGTH_FROM
        body = data[position + HEADER_BYTES : end]
        codec = int(header["attributes"]) & COMPRESSION_MASK
        if codec:
            try:
                body = decompress(body, codec, DECOMPRESSED_BYTES_MAX)
            except ProtocolError:
                body = b"\xff"  # an invalid record, so that the reference decoder reports the error
        bodies.append(body)
        size += len(body)
        if size >= UNPACKED_BYTES or index + 1 == len(positions):
            batches_read = slice(first, index + 1)
            ends = np.cumsum([len(body) for body in bodies])
            starts = ends - [len(body) + HEADER_BYTES for body in bodies]
            yield from _read(id, segment, b"".join(bodies), headers[batches_read], starts, ends, in_file[batches_read], data, begins[batches_read], read)
            bodies, first, size = [], index + 1, 0


def _read(
    id: LogId,
    segment: str,
    body: bytes,
    headers: NDArray[Any],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    positions: NDArray[np.int64],
    data: bytes,
    places: NDArray[np.int64],
    read: ReadResult,
) -> Iterator[pa.RecordBatch]:
    """Positions of the batch headers: `begins` in `body`, `positions` in the file, `places` in `data`."""
    body += bytes(PADDING)
    chunk = Chunk(id, segment, body, headers, positions)
    batches = Batches(
        begins + HEADER_BYTES,
        ends,
        headers["record_count"].astype(np.int64),
        headers["last_offset_delta"].astype(np.int64),
        headers["base_timestamp"].astype(np.int64),
    )
    walked = walk(chunk.data, batches)
    batch_rows = record_batch(chunk, walked)
    irregular = np.flatnonzero(walked.irregular).tolist()
    if irregular:
        rows: list[Any] = []
        for index in irregular:
            place = int(places[index])
            header = read_header(data, place)
            try:
                rows.extend(rows_of_batch(data, place, header, BatchLocation(id, segment, int(positions[index])), DECOMPRESSED_BYTES_MAX))
            except CorruptBatch:
                read.holes.append(Hole(header.base_offset, header.last_offset, DAMAGED))
                read.bytes += header.size
        table = in_order("records", joined("records", [pa.Table.from_batches([batch_rows]), table_of("records", rows)]))
        read.records += len(table)
        yield from table.to_batches()
    elif batch_rows.num_rows:
        read.records += batch_rows.num_rows
        yield batch_rows


