"""Validate a producer's batch by the rules of Apache Kafka 4.3, with the same errors, and prepare it for the log.

Nearly every batch is stored as received, after one pass over its records. A batch is changed if its topic has LogAppendTime or another
compression, or if the newest timestamp in its header is wrong.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

import google_crc32c

from broker.topics.settings import PRODUCER, LogSettings
from protocol.batch import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    CONTROL,
    CRC_FROM,
    DECOMPRESSED_BYTES_MAX,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LENGTH_FROM,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    Record,
    assemble,
    read_header,
)
from protocol.batch_record import INT64_MAX, INT64_MIN, CutShort, as_int64, put_record, read_record
from protocol.batch_survey import UNLIMITED as UNLIMITED_STEPS
from protocol.batch_survey import TooManyRecords, survey
from protocol.compression import BLOCKS_MAX, Compression, Damaged, TooLarge, decompress
from protocol.errors import ErrorCode, ProtocolError

MAGIC_BYTES: Final = 17  # the bytes up to the magic byte, in every format
OLDEST_RECORD_BYTES_MIN: Final = 14  # a record of format 0 without offset and size
NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
ERRORS_IN_MESSAGE_MAX: Final = 3
RECORD_ERRORS_MAX: Final = 1_000  # per batch in a reply; the message has the total
RECORDS_WRITTEN_AT_ONCE: Final = 1_024
ZSTD_FROM: Final = 7  # Produce version

_LENGTH_AND_MAGIC: Final = Struct(">8xi4xb").unpack_from
_MAX_TIMESTAMP_AT: Final = 35
_ATTRIBUTES: Final = Struct(">h")
_TIMESTAMP: Final = Struct(">q")
_PRODUCER_ID: Final = Struct(">43xq").unpack_from
_CRC_AT: Final = 17
_CRC: Final = Struct(">I")
_crc32c: Final = google_crc32c.value
_KNOWN_ATTRIBUTES: Final = COMPRESSION_MASK | LOG_APPEND_TIME | TRANSACTIONAL | CONTROL | DELETE_HORIZON


class RecordError(NamedTuple):
    record: int  # its index in the batch
    message: str


class BatchRefused(Exception):
    """The batch is refused. `with_start`: the reply has the log start offset, as Kafka's for a batch that reached the log."""

    def __init__(
        self, error: ErrorCode, message: str | None = None, records: list[RecordError] | None = None, with_start: bool = True
    ) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
        self.records = records or []
        self.with_start = with_start


class TooMuchWork(Exception):
    """Checking the batch exceeds the work limits; it is neither accepted nor refused."""


class CheckLimits(NamedTuple):
    """The work limits of a check, in figures that are known before the work."""

    batch_bytes: int  # the size as received
    gzip_bytes: int  # the compressed size: a gzip of empty members is slow for its size
    blocks: int  # of snappy or lz4
    unpacked_bytes: int
    survey_steps: int  # records read one by one, and headers
    changed_records: int  # records to recompress, or to refuse one by one
    changed_bytes: int


# For the event loop: at worst some milliseconds in plain Python.
INLINE_LIMITS: Final = CheckLimits(8 << 20, 32 << 10, 1_024, 2 << 20, 3_000, 400, 64 << 10)
UNLIMITED: Final = CheckLimits(1 << 31, 1 << 31, BLOCKS_MAX, DECOMPRESSED_BYTES_MAX, UNLIMITED_STEPS, 1 << 31, 1 << 31)
SLOW_LEVEL_FROM: Final = 10  # from this level on, zstd and lz4 take SLOW_LEVEL_FACTOR times longer
SLOW_LEVEL_FACTOR: Final = 32


class Checked(NamedTuple):
    """A valid batch: the newest timestamp of its records, and the recompressed batch if its compression had to change."""

    newest: int
    rebuilt: bytes | None


class InvalidBatch(Exception):
    """The records have no valid first batch: the whole request is refused."""


# Checks before the partition is looked up.


def batch_size(data: bytes, at: int) -> int:
    """The size of the batch at `at`; 0 for none or an incomplete one. Raises InvalidBatch."""
    available = len(data) - at
    if available < MAGIC_BYTES:
        if available < LENGTH_FROM:
            return 0
        length, magic = int.from_bytes(data[at + 8 : at + LENGTH_FROM], "big", signed=True), MAGIC
    else:
        length, magic = _LENGTH_AND_MAGIC(data, at)
    if length < OLDEST_RECORD_BYTES_MIN:
        raise InvalidBatch(f"Record size {length} is less than the minimum record overhead ({OLDEST_RECORD_BYTES_MIN})")
    if not 0 <= magic <= MAGIC:
        raise InvalidBatch(f"Invalid magic found in record: {magic}")
    return LENGTH_FROM + length if LENGTH_FROM + length <= available else 0


def is_transactional(data: bytes, size: int) -> bool:
    """Whether the first batch, of `size` bytes, is transactional."""
    return size > 0 and data[MAGIC_BYTES - 1] == MAGIC and bool(data[ATTRIBUTES_AT + 1] & TRANSACTIONAL)


def producer_id_of(data: bytes) -> int:
    """The producer id of the first batch, which may be cut short; below 0: none."""
    id: int = _PRODUCER_ID(data)[0] if len(data) >= HEADER_BYTES else -1
    return id


def check_single_batch(data: bytes, size: int, version: int) -> None:
    """Require one batch, of the current format, in a compression that the request version allows. Raises BatchRefused."""
    if not size or data[MAGIC_BYTES - 1] != MAGIC:
        raise BatchRefused(ErrorCode.INVALID_RECORD, with_start=False)
    if version < ZSTD_FROM:
        codec = data[ATTRIBUTES_AT + 1] & COMPRESSION_MASK
        if codec == Compression.ZSTD:
            raise BatchRefused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, with_start=False)
        if codec > Compression.ZSTD:
            raise BatchRefused(ErrorCode.UNKNOWN_SERVER_ERROR, with_start=False)
    if size == len(data):
        return
    try:
        second = batch_size(data, size)
    except InvalidBatch:
        raise BatchRefused(ErrorCode.CORRUPT_MESSAGE, with_start=False) from None
    if second:
        raise BatchRefused(ErrorCode.INVALID_RECORD, with_start=False)


# Checks against the settings of the log.


def prepare(
    data: bytes, at: int, size: int, settings: LogSettings, now: int, name: object, limits: CheckLimits = UNLIMITED
) -> tuple[bytearray, BatchHeader]:
    """Check the batch of `size` bytes at `at` and prepare it for partition `name`. Raises BatchRefused and TooMuchWork."""
    if size > limits.batch_bytes:
        raise TooMuchWork
    header = _header(data, at, at + size, settings)
    newest, rebuilt = _check(header, data, at, at + size, settings, now, name, limits)
    return _finish(header, data, at, size, settings, now, newest, rebuilt)


def check(data: bytes, at: int, size: int, settings: LogSettings, now: int, name: object, limits: CheckLimits) -> Checked:
    """Run the checks that may take long; `finish` then prepares the batch for the log. Raises BatchRefused and TooMuchWork."""
    if size > limits.batch_bytes:
        raise TooMuchWork
    header = _header(data, at, at + size, settings)
    newest, rebuilt = _check(header, data, at, at + size, settings, now, name, limits)
    return Checked(newest, rebuilt)


def _check(
    header: BatchHeader, data: bytes, at: int, end: int, settings: LogSettings, now: int, name: object, limits: CheckLimits
) -> tuple[int, bytes | None]:
    """Check the records, and recompress them if necessary; returns the fields of `Checked`."""
    codec = header.attributes & COMPRESSION_MASK
    target = codec
    if settings.compression_type != PRODUCER:
        target = _CODECS[settings.compression_type]
    body, body_at, body_end = data, at + HEADER_BYTES, end
    damaged = False
    if codec:
        if codec == Compression.GZIP and end - at > limits.gzip_bytes:
            raise TooMuchWork
        body, damaged = _decompressed(data[body_at:end], codec, limits)
        body_at, body_end = 0, len(body)
    try:
        record_survey = survey(body, body_at, body_end, header.record_count, limits.survey_steps)
    except CutShort:
        raise BatchRefused(ErrorCode.UNKNOWN_SERVER_ERROR if damaged else ErrorCode.INVALID_RECORD) from None
    except CorruptBatch:
        raise BatchRefused(ErrorCode.INVALID_RECORD) from None
    except TooManyRecords:
        raise TooMuchWork from None
    if damaged:  # after the last record
        raise BatchRefused(ErrorCode.UNKNOWN_SERVER_ERROR)
    oldest, newest = header.base_timestamp + record_survey.oldest, header.base_timestamp + record_survey.newest
    if oldest < INT64_MIN or newest > INT64_MAX:
        if header.record_count > limits.changed_records:
            raise TooMuchWork
        oldest, newest = _overflowed_times(body, body_at, body_end, header)
    sets_time = bool(header.attributes & LOG_APPEND_TIME)  # only the broker may set this attribute
    if sets_time:
        oldest = newest = header.max_timestamp
    if settings.log_append_time:
        in_time = not sets_time
    else:
        in_time = now - settings.message_timestamp_before_max_ms <= oldest and newest <= now + settings.message_timestamp_after_max_ms
        in_time = in_time and not (sets_time and newest == NO_TIMESTAMP)
    if not in_time or (settings.compact and not record_survey.keyed):
        if header.record_count > limits.changed_records:
            raise TooMuchWork
        _refuse_records(body, body_at, body_end, header, settings, now, name)
    if target == codec:
        return newest, None
    level = _level(target, settings)
    slower = SLOW_LEVEL_FACTOR if target != Compression.GZIP and level is not None and level >= SLOW_LEVEL_FROM else 1
    if header.record_count > limits.changed_records or (body_end - body_at) * slower > limits.changed_bytes:
        raise TooMuchWork
    batch = _rebuilt(body, body_at, body_end, header, Compression(target), level)
    if len(batch) > settings.max_message_bytes:
        raise BatchRefused(ErrorCode.MESSAGE_TOO_LARGE, with_start=False)
    return read_header(batch, 0).max_timestamp, batch


def finish(data: bytes, at: int, size: int, settings: LogSettings, now: int, checked: Checked) -> tuple[bytearray, BatchHeader]:
    """Prepare a checked batch for the log. Raises BatchRefused."""
    header = BatchHeader(*HEADER.unpack_from(data, at))
    return _finish(header, data, at, size, settings, now, checked.newest, checked.rebuilt)


def _finish(
    header: BatchHeader, data: bytes, at: int, size: int, settings: LogSettings, now: int, newest: int, rebuilt: bytes | None
) -> tuple[bytearray, BatchHeader]:
    if rebuilt is None:
        batch = bytearray(memoryview(data)[at : at + size])
    else:
        batch = bytearray(rebuilt)
        header = BatchHeader(*HEADER.unpack_from(batch, 0))
    _set_time(batch, header, settings.log_append_time, now if settings.log_append_time else max(newest, NO_TIMESTAMP))
    if len(batch) > settings.segment_bytes:
        raise BatchRefused(ErrorCode.RECORD_LIST_TOO_LARGE, with_start=False)
    return batch, header


_CODECS: Final = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


def _header(data: bytes, at: int, end: int, settings: LogSettings) -> BatchHeader:
    """Read and check the header: base offset, size, checksum, attributes and counts."""
    if _TIMESTAMP.unpack_from(data, at)[0]:  # the base offset must be 0; the broker assigns it
        raise BatchRefused(ErrorCode.INVALID_RECORD)
    if end - at > settings.max_message_bytes:
        raise BatchRefused(ErrorCode.MESSAGE_TOO_LARGE, with_start=False)
    if end - at < HEADER_BYTES:
        raise BatchRefused(ErrorCode.CORRUPT_MESSAGE, with_start=False)
    header = BatchHeader(*HEADER.unpack_from(data, at))
    if _crc32c(data[at + CRC_FROM : end]) != header.crc:
        raise BatchRefused(ErrorCode.CORRUPT_MESSAGE, with_start=False)
    attributes = header.attributes
    if attributes & COMPRESSION_MASK > Compression.ZSTD:
        raise BatchRefused(ErrorCode.UNKNOWN_SERVER_ERROR)
    if (
        header.record_count <= 0
        or header.last_offset_delta != header.record_count - 1
        or attributes & CONTROL
        or (header.producer_id >= 0 and header.base_sequence < 0)
    ):
        raise BatchRefused(ErrorCode.INVALID_RECORD)
    return header


def _overflowed_times(body: bytes, at: int, end: int, header: BatchHeader) -> tuple[int, int]:
    """The oldest and the newest timestamp of records of which some overflow, as in Java."""
    oldest, newest = INT64_MAX, INT64_MIN
    for _ in range(header.record_count):
        record, at = read_record(body, at, end, 0, header.base_timestamp)
        oldest, newest = min(oldest, record.timestamp), max(newest, record.timestamp)
    return oldest, newest


def _decompressed(body: bytes, codec: int, limits: CheckLimits) -> tuple[bytes, bool]:
    """The unpacked bytes, and whether the container is damaged after them."""
    if not body and codec == Compression.ZSTD:  # no frames: no records
        return body, False
    try:
        return decompress(body, codec, limits.unpacked_bytes, limits.blocks), False
    except TooLarge:
        if limits.unpacked_bytes < DECOMPRESSED_BYTES_MAX:
            raise TooMuchWork from None
        raise BatchRefused(ErrorCode.UNKNOWN_SERVER_ERROR) from None
    except Damaged as damaged:
        return damaged.unpacked, True
    except ProtocolError:
        raise BatchRefused(ErrorCode.UNKNOWN_SERVER_ERROR) from None


def _set_time(batch: bytearray, header: BatchHeader, log_append_time: bool, newest: int) -> None:
    attributes = header.attributes | LOG_APPEND_TIME if log_append_time else header.attributes & ~LOG_APPEND_TIME
    if header.max_timestamp == newest and header.attributes == attributes:
        return
    attributes &= _KNOWN_ATTRIBUTES  # Kafka clears unknown attributes when it changes the time, and only then
    header.attributes = attributes
    header.max_timestamp = newest
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_AT, attributes)
    _TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_AT, newest)
    header.crc = _crc32c(bytes(memoryview(batch)[CRC_FROM:]))
    _CRC.pack_into(batch, _CRC_AT, header.crc)


# Reading records one by one, when some are refused or the compression changes.


def _record(body: bytes, at: int, end: int, header: BatchHeader) -> tuple[Record, int]:
    """Return the record at `at`, and its end. Offsets count from 0; timestamps overflow as in Java."""
    record, at = read_record(body, at, end, 0, 0)
    if header.attributes & LOG_APPEND_TIME:
        record.timestamp = header.max_timestamp
    else:
        record.timestamp = as_int64(header.base_timestamp + record.timestamp)
    return record, at


def _refuse_records(body: bytes, at: int, end: int, header: BatchHeader, settings: LogSettings, now: int, name: object) -> None:
    """Raise BatchRefused with the invalid records, if any: the caller's quicker check also fails for a missing timestamp (-1), which is valid."""
    errors: list[RecordError] = []
    count = 0
    error = ErrorCode.INVALID_RECORD
    for index in range(header.record_count):
        record, at = _record(body, at, end, header)
        if settings.compact and record.key is None:
            problem = f"Compacted topic cannot accept message without key in topic partition {name}"
        else:
            out_of_time = _time_problem(record, header, settings, now)
            if out_of_time is None:
                continue
            problem = out_of_time
            error = ErrorCode.INVALID_TIMESTAMP
        count += 1
        if count <= RECORD_ERRORS_MAX:
            errors.append(RecordError(index, problem))
    if error == ErrorCode.INVALID_TIMESTAMP:
        raise BatchRefused(error, "One or more records have been rejected due to invalid timestamp", errors)
    if errors:
        first = ", ".join(f"RecordError(batchIndex={invalid.record}, message='{invalid.message}')" for invalid in errors[:ERRORS_IN_MESSAGE_MAX])
        counted = f"{count} record errors in total, and only showing the first three errors at most"
        raise BatchRefused(error, f"One or more records have been rejected due to {counted}: [{first}]", errors)


def _time_problem(record: Record, header: BatchHeader, settings: LogSettings, now: int) -> str | None:
    timestamp = record.timestamp
    if not settings.log_append_time and timestamp != NO_TIMESTAMP:
        earliest, latest = now - settings.message_timestamp_before_max_ms, now + settings.message_timestamp_after_max_ms
        difference = as_int64(timestamp - now)  # overflows as in Java
        if difference <= settings.message_timestamp_after_max_ms and as_int64(-difference) <= settings.message_timestamp_before_max_ms:
            return None
        allowed = f"[{as_int64(earliest)}, {as_int64(latest)}]"
        return f"Timestamp {timestamp} of message with offset {record.offset} is out of range. The timestamp should be within {allowed}"
    if header.attributes & LOG_APPEND_TIME:
        key, value = len(record.key or b""), len(record.value or b"")
        record_text = f"DefaultRecord(offset={record.offset}, timestamp={timestamp}, key={key} bytes, value={value} bytes)"
        return f"Invalid timestamp type in message {record_text}. Producer should not set timestamp type to LogAppendTime."
    return None


def _rebuilt(body: bytes, at: int, end: int, header: BatchHeader, codec: Compression, level: int | None) -> bytes:
    """Recompress the records for the topic, some at a time: the objects of all records could take gigabytes."""
    if header.producer_id != NO_PRODUCER_ID and (header.producer_epoch == NO_EPOCH or header.base_sequence < 0):
        raise BatchRefused(ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka does not write such a batch itself
    count = header.record_count
    parts: list[bytes] = []
    written = bytearray()
    first = newest = NO_TIMESTAMP
    for index in range(count):
        record, at = _record(body, at, end, header)
        if record.timestamp < NO_TIMESTAMP:
            raise BatchRefused(ErrorCode.UNKNOWN_SERVER_ERROR)  # not encodable, as in Kafka
        if not index:
            first = record.timestamp
        newest = max(newest, record.timestamp)
        put_record(parts, record, index, record.timestamp - first)
        if index % RECORDS_WRITTEN_AT_ONCE == RECORDS_WRITTEN_AT_ONCE - 1:
            written += b"".join(parts)
            parts.clear()
    written += b"".join(parts)
    span = (count - 1, first, newest)
    producer = (header.producer_id, header.producer_epoch, header.base_sequence)
    return assemble(bytes(written), count, int(codec), span, producer, compression_level=level)


def _level(codec: int, settings: LogSettings) -> int | None:
    if codec == Compression.GZIP:
        return None if settings.compression_gzip_level < 0 else settings.compression_gzip_level
    if codec == Compression.LZ4:
        return settings.compression_lz4_level
    return settings.compression_zstd_level if codec == Compression.ZSTD else None
