"""Record batch v2, the format of records in Produce, Fetch and segments.

    base offset  length  leader epoch  magic  CRC  attributes  last offset delta  ...  record count  records
    8            4       4             1      4    2           4                       4

A batch is built once and then passed as bytes. Its offset and epoch are before the range of the checksum, so that a log can
stamp them into the received bytes. Reading trusts no byte: invalid data raises only CorruptBatch, and lengths are checked
against the available bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from struct import Struct
from typing import Final

import google_crc32c

from protocol.batch_record import (
    INT64_MAX,
    RECORD_BYTES_MIN,
    CorruptBatch,
    Fact,
    Record,
    as_int64,
    put_record,
    read_record,
)
from protocol.batch_writing import write_facts
from protocol.compression import Compression, compress, decompress
from protocol.errors import ProtocolError
from protocol.fact_layouts import FactLayouts
from protocol.wire import UNWRITABLE, unwritable

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = 61
MAGIC: Final = 2
LENGTH_AT: Final = 8
LENGTH_FROM: Final = 12  # the length field counts the bytes from here on
EPOCH_AT: Final = 12
SPAN_AT: Final = 23  # last offset delta, first and newest timestamp
CRC_FROM: Final = 21  # the checksum covers the bytes from the attributes on
ATTRIBUTES_AT: Final = 21

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40  # the base timestamp is the time from which a cleaner may drop tombstones

NO_TIMESTAMP: Final = -1

# 100 MiB, as large as a request may be (socket.request.max.bytes)
DECOMPRESSED_BYTES_MAX: Final = 100 * 1024 * 1024

_PREFIX: Final = Struct(">qiibI")
_BODY: Final = Struct(">hiqqqhii")
_LENGTH: Final = Struct(">i")
_SPAN: Final = Struct(">iqq").unpack_from
_OFFSET: Final = Struct(">q")
_PLACE: Final = Struct(">qii").pack_into  # base offset, length and leader epoch
_EPOCH: Final = Struct(">i")
_crc32c: Final = google_crc32c.value

__all__ = [
    "BatchHeader",
    "Compression",
    "CorruptBatch",
    "Fact",
    "Record",
    "TimestampType",
    "batch_end",
    "build",
    "build_facts",
    "facts_of",
    "iterate_headers",
    "read_facts_into",
    "read_header",
    "records",
    "rewrite",
    "seal",
    "stamp",
    "validate",
]


class TimestampType(IntEnum):
    """Kafka's timestamp types: set by the producer, or by the broker at append."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader:
    """The fixed part of a batch. `size` is the size of the whole batch; the length field on the wire excludes the first 12 bytes."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size",
    )

    def __init__(
        self,
        base_offset: int,
        length: int,
        leader_epoch: int,
        magic: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        record_count: int,
    ) -> None:
        self.base_offset = base_offset
        self.size = LENGTH_FROM + length
        self.leader_epoch = leader_epoch
        self.magic = magic
        self.crc = crc
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.record_count = record_count

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        return compression_of(self.attributes)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)


def compression_of(attributes: int) -> Compression:
    try:
        return Compression(attributes & COMPRESSION_MASK)
    except ValueError:
        raise CorruptBatch(f"unknown compression {attributes & COMPRESSION_MASK}") from None


# Headers


def read_header(data: bytes | bytearray, at: int) -> BatchHeader:
    """Read the header at `at`. Only `validate` checks that the batch is complete and sound."""
    if len(data) - at < HEADER_BYTES:
        raise CorruptBatch("a batch header is cut short")
    header = BatchHeader(*HEADER.unpack_from(data, at))
    if header.magic != MAGIC:
        raise CorruptBatch(f"a batch has magic {header.magic}, not {MAGIC}")
    if header.size < HEADER_BYTES:
        raise CorruptBatch(f"a batch's length field says {header.size} bytes, fewer than a header")
    return header


def batch_end(data: bytes | bytearray, at: int) -> int:
    """The end of the batch at `at`, which may be after the end of `data`. Reads only the length, as the cheapest step of a scan."""
    if len(data) - at < HEADER_BYTES:
        raise CorruptBatch("a batch header is cut short")
    length: int = _LENGTH.unpack_from(data, at + LENGTH_AT)[0]
    if length < HEADER_BYTES - LENGTH_FROM:
        raise CorruptBatch(f"a batch's length field says {LENGTH_FROM + length} bytes, fewer than a header")
    return at + LENGTH_FROM + length


def iterate_headers(data: bytes, at: int, end: int) -> Iterator[BatchHeader]:
    """The headers of the whole batches between two positions; checksums are not verified."""
    while at < end:
        header = read_header(data, at)
        if header.size > end - at:
            raise CorruptBatch("a batch is cut short")
        yield header
        at += header.size


def stamp(batch: bytearray, at: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch, which the checksum does not cover."""
    _OFFSET.pack_into(batch, at, base_offset)
    _EPOCH.pack_into(batch, at + EPOCH_AT, leader_epoch)


def stamp_whole(batch: bytearray, base_offset: int, leader_epoch: int) -> tuple[int, int]:
    """Stamp one sound batch in place; return its last offset delta and newest timestamp, which an append needs."""
    _PLACE(batch, 0, base_offset, len(batch) - LENGTH_FROM, leader_epoch)
    last_delta, _, max_timestamp = _SPAN(batch, SPAN_AT)
    return last_delta, max_timestamp


def validate(data: bytes, at: int, end: int) -> BatchHeader:
    """Verify that the batch at `at` is complete and its checksum is right; return its header.

    The records are not decoded. After compaction there may be fewer records than offsets, even none.
    """
    header = read_header(data, at)
    if header.size > end - at:
        raise CorruptBatch("a batch is cut short")
    if _crc32c(data[at + CRC_FROM : at + header.size]) != header.crc:
        raise CorruptBatch("a batch's checksum is wrong")
    last = header.last_offset_delta
    if last < 0 or not 0 <= header.record_count <= last + 1:
        raise CorruptBatch(f"a batch has {header.record_count} records for {last + 1} offsets")
    if header.base_offset < 0 or header.base_offset + last >= INT64_MAX:
        raise CorruptBatch(f"a batch has the invalid base offset {header.base_offset}")
    if header.attributes & COMPRESSION_MASK > Compression.ZSTD:
        raise CorruptBatch(f"unknown compression {header.attributes & COMPRESSION_MASK}")
    return header


# Building


def build_facts(facts: Sequence[Fact], timestamp: int) -> bytes:
    """A batch of keys and values that share one timestamp, for an internal log."""
    parts = [b""]
    write_facts(parts, facts, 0)
    return bytes(seal(parts, len(facts), timestamp))


def seal(parts: list[bytes], records: int, timestamp: int) -> bytearray:
    """Join encoded records into a batch that a log can stamp; the first part must be empty, for the header."""
    parts[0] = _BODY.pack(0, records - 1, timestamp, timestamp, -1, -1, -1, records)
    body = b"".join(parts)
    batch = bytearray(_PREFIX.pack(0, len(body) + CRC_FROM - LENGTH_FROM, -1, MAGIC, _crc32c(body)))
    batch += body
    return batch


def build(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    control: bool = False,
    transactional: bool = False,
) -> bytes:
    """A batch of at least one record. Their offsets ascend from `base_offset` on, with gaps allowed.

    With LOG_APPEND_TIME every reader sees the newest timestamp for all records.
    """
    assert records, "a batch has records"
    attributes = int(compression)
    if timestamp_type == TimestampType.LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME
    if transactional:
        attributes |= TRANSACTIONAL
    if control:
        attributes |= CONTROL
    first = records[0].timestamp
    newest = max(record.timestamp for record in records)
    parts: list[bytes] = []
    for record in records:
        put_record(parts, record, record.offset - base_offset, as_int64(record.timestamp - first))
    last = records[-1].offset - base_offset
    span = (last, first, newest)
    producer = (producer_id, producer_epoch, base_sequence)
    return assemble(b"".join(parts), len(records), attributes, span, producer, base_offset, leader_epoch, compression_level)


def assemble(
    body: bytes,
    count: int,
    attributes: int,
    span: tuple[int, int, int],
    producer: tuple[int, int, int],
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression_level: int | None = None,
) -> bytes:
    """The batch of `count` encoded records, compressed with the codec in `attributes`.

    `span`: last offset delta, first and newest timestamp; `producer`: id, epoch and first sequence.
    """
    try:
        fixed = _BODY.pack(attributes, *span, *producer, count)
        body = fixed + compress(body, attributes & COMPRESSION_MASK, compression_level)
        return _PREFIX.pack(base_offset, len(body) + CRC_FROM - LENGTH_FROM, leader_epoch, MAGIC, _crc32c(body)) + body
    except UNWRITABLE as error:
        raise unwritable("record batch", MAGIC, error) from error


def rewrite(header: BatchHeader, records: Sequence[Record], delete_horizon: int = -1) -> bytes:
    """The batch as compaction leaves it: with the kept records, or none, and the same offset range.

    `delete_horizon`: the time from which its tombstones may be removed. It is set if the batch has none yet; -1: do not set it.
    """
    attributes = header.attributes
    first = NO_TIMESTAMP
    newest = header.max_timestamp  # an empty batch keeps the time of its producer's last record
    if not records:
        attributes &= ~(COMPRESSION_MASK | DELETE_HORIZON)
    else:
        first = records[0].timestamp
        newest = header.max_timestamp if attributes & LOG_APPEND_TIME else max(record.timestamp for record in records)
        if attributes & DELETE_HORIZON:
            first = header.base_timestamp
        elif delete_horizon >= 0:
            attributes |= DELETE_HORIZON
            first = delete_horizon
    parts: list[bytes] = []
    for record in records:
        put_record(parts, record, record.offset - header.base_offset, as_int64(record.timestamp - first))
    fixed = _BODY.pack(
        attributes,
        header.last_offset_delta,
        first,
        newest,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        len(records),
    )
    body = fixed + (compress(b"".join(parts), compression_of(attributes)) if parts else b"")
    return _PREFIX.pack(header.base_offset, len(body) + CRC_FROM - LENGTH_FROM, header.leader_epoch, MAGIC, _crc32c(body)) + body


# Reading records


def _body(data: bytes, at: int, header: BatchHeader, decompressed_bytes_max: int) -> tuple[bytes, int, int]:
    """The bytes that contain the records, and their begin and end in these bytes. Uncompressed records are not copied."""
    end = at + header.size
    if end > len(data):
        raise CorruptBatch("a batch is cut short")
    at += HEADER_BYTES
    if header.attributes & COMPRESSION_MASK:
        try:
            data = decompress(data[at:end], header.attributes & COMPRESSION_MASK, decompressed_bytes_max)
        except ProtocolError as error:
            raise CorruptBatch(str(error)) from error
        at = 0
        end = len(data)
    check_record_count(header, end - at)
    return data, at, end


def check_record_count(header: BatchHeader, size: int) -> None:
    """Raise CorruptBatch if so many records do not fit into `size` bytes."""
    if header.record_count < 0 or header.record_count * RECORD_BYTES_MIN > size:
        raise CorruptBatch(f"a batch says {header.record_count} records, and has {size} bytes of records")


def records(data: bytes, at: int, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
    """The records of the batch at `at`, decompressed if necessary. The checksum is not verified."""
    header = read_header(data, at)
    body, at, end = _body(data, at, header, decompressed_bytes_max)
    decoded: list[Record] = []
    append_time = header.attributes & LOG_APPEND_TIME
    previous_delta = -1
    try:
        for _ in range(header.record_count):
            record, at = read_record(body, at, end, header.base_offset, header.base_timestamp)
            delta = record.offset - header.base_offset
            if not previous_delta < delta <= header.last_offset_delta:
                raise CorruptBatch(f"offset delta {delta} after {previous_delta} in a batch up to {header.last_offset_delta}")
            previous_delta = delta
            if append_time:
                record.timestamp = header.max_timestamp
            decoded.append(record)
    except IndexError:
        raise CorruptBatch("a record is cut short") from None
    if at != end:
        raise CorruptBatch(f"{end - at} bytes after the last record")
    return decoded


def facts_of(batches: bytes, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Fact]:
    """Key and value of every record in whole batches; a missing key is returned as empty bytes. Control batches contain no facts."""
    at = 0
    layouts = FactLayouts()
    for header in iterate_headers(batches, 0, len(batches)):
        facts: list[Fact] = []
        read_facts_into(batches, at, header, facts, layouts, decompressed_bytes_max)
        at += header.size
        yield from facts


def read_facts_into(
    data: bytes, at: int, header: BatchHeader, facts: list[Fact], layouts: FactLayouts, decompressed_bytes_max: int
) -> None:
    """Add the facts of the batch at `at`, which has this header."""
    if header.attributes & CONTROL:
        return
    body, at, end = _body(data, at, header, decompressed_bytes_max)
    try:
        layouts.read(body, at, end, header.record_count, facts)
    except IndexError:
        raise CorruptBatch("a record is cut short") from None
