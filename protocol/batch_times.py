"""Read only timestamp and offset of each record in a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from protocol.batch import COMPRESSION_MASK, DECOMPRESSED_BYTES_MAX, HEADER_BYTES, LOG_APPEND_TIME, _body, check_record_count, read_header
from protocol.batch_record import INT64_MAX, INT64_MIN, VARINT_SHIFT_MAX, VARLONG_SHIFT_MAX, CorruptBatch, as_int64, longer_varint
from protocol.compression import TooLarge, decompress
from protocol.errors import ProtocolError

UNPACKED_AT_ONCE_MAX: Final = 1 << 20


class UnpackedBatch:
    """A batch, decompressed if necessary.

    Decompressing one that `is_large` takes long. It is done by `run`, in another thread if the caller has one, or else by `times`.
    """

    __slots__ = ("_batch", "_body", "_problem", "is_large")

    def __init__(self, batch: bytes) -> None:
        """Raises CorruptBatch."""
        self._batch = batch
        self._body: bytes | None = None
        self._problem = ""
        self.is_large = False
        try:
            self._unpack(UNPACKED_AT_ONCE_MAX)
        except TooLarge:
            self.is_large = True
        except ProtocolError as error:
            raise CorruptBatch(str(error)) from error

    def _unpack(self, bytes_max: int) -> None:
        header = read_header(self._batch, 0)
        codec = header.attributes & COMPRESSION_MASK
        if codec:
            if header.size > len(self._batch):
                raise CorruptBatch("a batch is cut short")
            self._body = decompress(self._batch[HEADER_BYTES : header.size], codec, bytes_max)

    def run(self) -> None:
        try:
            self._unpack(DECOMPRESSED_BYTES_MAX)
        except ProtocolError as error:
            self._problem = str(error)
        self.is_large = False

    def times(self) -> Iterator[tuple[int, int]]:
        """(timestamp, offset) of each record. Raises CorruptBatch."""
        if self.is_large:
            self.run()
        if self._problem:
            raise CorruptBatch(self._problem)
        return record_times(self._batch, 0, self._body)


def record_times(data: bytes, at: int, unpacked: bytes | None = None) -> Iterator[tuple[int, int]]:
    """(timestamp, offset) of each record of the batch at `at`; `unpacked`: its records, if they were decompressed. Raises CorruptBatch."""
    header = read_header(data, at)
    if unpacked is None:
        body, at, end = _body(data, at, header, DECOMPRESSED_BYTES_MAX)
    else:
        body, at, end = unpacked, 0, len(unpacked)
        check_record_count(header, end)
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
