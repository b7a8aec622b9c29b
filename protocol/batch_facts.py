"""Facts out of a log's bytes: replaying a log is this file.

Most batches of our own logs are small: one record, or a few, uncompressed. One `Struct` reads all that tells such a batch
of one record apart, from the header into the record, and nothing is made of it but the checksum, the key and the value.
Whatever is unusual (several records, long keys, headers, compression, what a cleaner left) goes the general way, and so
does whatever is wrong, so that there is one place that says what.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import google_crc32c

from protocol.batch import (
    CRC_FROM,
    DECOMPRESSED_BYTES_MAX,
    HEADER_BYTES,
    LENGTH_FROM,
    MAGIC,
    CorruptBatch,
    Fact,
    batch_end,
    put_facts,
    read_header,
    validate,
)
from protocol.fact_layouts import FactLayouts

# Base offset, length, magic, checksum, attributes, last offset delta, record count; then of a record its length in one
# byte or two, and what follows in either case: attributes, timestamp delta and offset delta, each 0, and the key's length.
_ONE_RECORD: Final = Struct(">qi4xbIhi30xiBBHBB")
_crc32c: Final = google_crc32c.value


class FactReader:
    """Reads a log piece by piece; offsets must grow from piece to piece.

    After `read` its `used` says how many bytes were whole batches; `ended` that the next one reaches `end_offset` or
    further. After CorruptBatch `used` is where the batch begins that is none.
    """

    __slots__ = ("_layouts", "end_offset", "ended", "last_offset", "offset_max", "used", "verify")

    def __init__(self, last_offset: int, end_offset: int, offset_max: int, verify: bool) -> None:
        self.last_offset = last_offset  # every batch begins behind it
        self.end_offset = end_offset
        self.offset_max = offset_max  # the log is known to end before it: who says more is wrong
        self.verify = verify
        self.used = 0
        self.ended = False
        self._layouts = FactLayouts()

    def read(self, data: bytes) -> list[Fact]:
        """Key and value of every record in the whole batches that `data` begins with, as `facts_of` has them."""
        facts: list[Fact] = []
        unpack = _ONE_RECORD.unpack_from
        verify = self.verify
        stop_offset = min(self.end_offset, self.offset_max)
        last = self.last_offset
        end = len(data)
        quick_end = end - _ONE_RECORD.size - 1
        at = 0
        base: int
        length: int
        magic: int
        crc: int
        attributes: int
        delta: int
        count: int
        size: int
        more: int
        zeros: int
        key_size: int
        long_key_size: int
        while at < end:
            # The checks are those of the general way, as far as they can fail here.
            if at <= quick_end:
                base, length, magic, crc, attributes, delta, count, size, more, zeros, key_size, long_key_size = unpack(data, at)
                after = at + LENGTH_FROM + length
                if (
                    count == 1
                    and not (attributes or delta or zeros)
                    and last < base < stop_offset
                    and magic == MAGIC
                    and at + HEADER_BYTES < after <= end
                    and not (verify and _crc32c(data[at + CRC_FROM : after]) != crc)
                ):
                    if more:  # the length takes two bytes, so the offset delta stands where the key's length would
                        begin = at + 67
                        if long_key_size > 127 and data[begin] < 128:
                            long_key_size += (data[begin] << 7) - 128
                            begin += 1
                        if key_size or long_key_size & 1 or size < 128 or more > 127 or size - 128 + (more << 7) != (after - at - 63) << 1:
                            begin = 0
                        value_at = begin + (long_key_size >> 1)
                    else:
                        begin = at + 66
                        if key_size > 127 or key_size & 1 or size != (after - at - 62) << 1:
                            begin = 0
                        value_at = begin + (key_size >> 1)
                    if begin and value_at < after:
                        value_size = data[value_at]
                        value_at += 1
                        value_end = value_at + (value_size >> 1)
                        # One byte, the number of headers, is left: not less, so the sizes are right, and not more.
                        if value_end + 1 == after and value_size < 128 and (value_size == 1 or not value_size & 1):
                            facts.append((data[begin : value_at - 1], None if value_size == 1 else data[value_at:value_end]))
                            last = base
                            at = after
                            continue
            self.last_offset = last
            self.used = at
            read = self._read_any(data, at, facts)
            if not read:
                break
            at += read
            last = self.last_offset
        self.last_offset = last
        self.used = at
        return facts

    def _read_any(self, data: bytes, at: int, facts: list[Fact]) -> int:
        """The general way for one batch: its size, or 0 where it is not whole here or is not to be read any more."""
        end = len(data)
        if end - at < HEADER_BYTES or batch_end(data, at) > end:
            return 0
        header = validate(data, at, end) if self.verify else read_header(data, at)
        # The checksum does not cover the offset: one that is wrong must not pass for the end.
        if header.base_offset <= self.last_offset or header.last_offset >= self.offset_max:
            raise CorruptBatch(f"offset {header.base_offset} between {self.last_offset} and {self.offset_max}")
        if header.last_offset >= self.end_offset:
            self.ended = True
            return 0
        self.last_offset = header.last_offset
        put_facts(data, at, header, facts, self._layouts, DECOMPRESSED_BYTES_MAX)
        return header.size
