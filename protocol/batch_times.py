"""Read only timestamp and offset of each record in a batch."""

from __future__ import annotations

from collections.abc import Iterator

from protocol.batch import DECOMPRESSED_BYTES_MAX, LOG_APPEND_TIME, _body, read_header
from protocol.batch_record import INT64_MAX, INT64_MIN, VARINT_SHIFT_MAX, VARLONG_SHIFT_MAX, CorruptBatch, as_int64, longer_varint


def record_times(data: bytes, at: int) -> Iterator[tuple[int, int]]:
    """(timestamp, offset) of each record of the batch at `at`. Raises CorruptBatch."""
    header = read_header(data, at)
    body, at, end = _body(data, at, header, DECOMPRESSED_BYTES_MAX)
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.attributes & LOG_APPEND_TIME
    max_timestamp = header.max_timestamp
    last = header.last_offset_delta
    previous = -1
    try:
        for _ in range(header.record_count):
            n = body[at]
            at += 1
            if n > 127:
                n, at = longer_varint(body, at, n, VARINT_SHIFT_MAX)
            record_end = at + (n >> 1)
            if n & 1 or record_end > end:
                raise CorruptBatch(f"a record of {n >> 1} bytes with {end - at} left")
            at += 1  # attributes, which are unused
            n = body[at]
            at += 1
            if n > 127:
                n, at = longer_varint(body, at, n, VARLONG_SHIFT_MAX)
            timestamp = base_timestamp + ((n >> 1) ^ -(n & 1))
            if not INT64_MIN <= timestamp <= INT64_MAX:
                timestamp = as_int64(timestamp)
            n = body[at]
            at += 1
            if n > 127:
                n, at = longer_varint(body, at, n, VARINT_SHIFT_MAX)
            delta = (n >> 1) ^ -(n & 1)
            if not previous < delta <= last or at > record_end:
                raise CorruptBatch(f"offset delta {delta} after {previous} in a batch up to {last}")
            previous = delta
            at = record_end
            yield (max_timestamp if append_time else timestamp), base_offset + delta
    except IndexError:
        raise CorruptBatch("a record is cut short") from None
