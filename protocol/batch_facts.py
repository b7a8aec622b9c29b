"""Decode facts (the key and value of each record) from a log's bytes: the inner loop of a replay.

Most batches of internal logs are small: one record, or a few, uncompressed. For a batch of one record, one `Struct` reads all fields
that identify its layout, from the batch header into the record; then only checksum, key and value are extracted. `FactLayouts` reads a
batch of several records. Unusual batches (long keys, headers, compression, a delete horizon) take the general path. Invalid batches take
it too, so that errors are described in one place.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import google_crc32c

from protocol.batch import (
    CRC_FROM,
    DECOMPRESSED_BYTES_MAX,
    HEADER_BYTES,
    LENGTH_AT,
    LENGTH_FROM,
    MAGIC,
    CorruptBatch,
    Fact,
    batch_end,
    read_facts_into,
    read_header,
    validate,
)
from protocol.equal_runs import RUN_MIN, count_equal
from protocol.fact_layouts import LAYOUTS_MAX, RUN_MAX, FactLayouts

# Base offset, length, magic, checksum, attributes, last offset delta, record count; then the record's length in one or two
# bytes, attributes, timestamp delta and offset delta, each 0, and the key's length.
_ONE_RECORD: Final = Struct(">qi4xbIhi30xiBBHBB")
_crc32c: Final = google_crc32c.value

# The header bytes that are equal in batches of the same layout: length, magic, attributes, last offset delta, number of records.
SAME_AT: Final = (LENGTH_AT + 3, LENGTH_AT, LENGTH_AT + 1, LENGTH_AT + 2, 16, *range(CRC_FROM, 27), *range(57, HEADER_BYTES))


class OneRecordLayout:
    """The common layout of similar batches of one record: positions and sizes of key and value."""

    __slots__ = ("bases", "checked", "fixed", "pairs")

    def __init__(self, size: int, key_at: int, value_at: int, value_size: int) -> None:
        # Positions of the bytes that are equal in all batches of this layout: all but the offset, unread fields, checksum, key and value.
        # The size of the key and the length come first, since they differ most often.
        self.fixed: Final = (key_at - 1, *SAME_AT, *range(HEADER_BYTES, key_at - 1), value_at - 1)
        self.checked: Final = Struct(f">q9xI{size - CRC_FROM}s").iter_unpack
        self.bases: Final = Struct(f">q{size - LENGTH_AT}x").iter_unpack
        self.pairs: Final = Struct(f"{key_at}x{value_at - 1 - key_at}sx{value_size}sx").iter_unpack


class FactReader:
    """Reads a log in pieces; offsets must ascend from piece to piece.

    After `read`, `used` is the size of the whole batches, and `ended` is True if the next batch reaches `end_offset`. After
    CorruptBatch, `used` is the position of the corrupt batch.
    """

    __slots__ = ("_layouts", "_one_record_layouts", "end_offset", "ended", "last_offset", "offset_max", "used", "verify")

    def __init__(self, last_offset: int, end_offset: int, offset_max: int, verify: bool) -> None:
        self.last_offset = last_offset  # of the previous batch
        self.end_offset = end_offset
        self.offset_max = offset_max  # the end of the log: larger offsets are invalid
        self.verify = verify
        self.used = 0
        self.ended = False
        self._layouts = FactLayouts()
        self._one_record_layouts: dict[tuple[int, int, int, int], OneRecordLayout] = {}

    def read(self, data: bytes) -> list[Fact]:
        """Key and value of every record in the whole batches at the begin of `data`, as `facts_of` returns them."""
        facts: list[Fact] = []
        unpack = _ONE_RECORD.unpack_from
        verify = self.verify
        stop_offset = min(self.end_offset, self.offset_max)
        last = self.last_offset
        size_before = 0  # of the previous batch, if it had one record and a run of the same layout may follow
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
            # The checks of `_read_any_batch` that can fail here.
            if at <= quick_end:
                base, length, magic, crc, attributes, delta, count, size, more, zeros, key_size, long_key_size = unpack(data, at)
                after = at + LENGTH_FROM + length
                if (
                    not attributes
                    and last < base < stop_offset - delta
                    and 0 < count <= delta + 1
                    and magic == MAGIC
                    and at + HEADER_BYTES < after <= end
                    and not (verify and _crc32c(data[at + CRC_FROM : after]) != crc)
                ):
                    if delta:
                        self.used = at
                        try:
                            self._layouts.read(data, at + HEADER_BYTES, after, count, facts)
                        except IndexError:
                            raise CorruptBatch("a record is cut short") from None
                        last = base + delta
                        at = after
                        continue
                    if more:  # the length takes two bytes, so the offset delta is in the byte of the key's length
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
                    if begin and not zeros and value_at < after:
                        value_size = data[value_at]
                        value_at += 1
                        value_end = value_at + (value_size >> 1)
                        # Exactly one byte must follow, the number of headers; otherwise a size is wrong.
                        if value_end + 1 == after and value_size < 128 and (value_size == 1 or not value_size & 1):
                            facts.append((data[begin : value_at - 1], None if value_size == 1 else data[value_at:value_end]))
                            last = base
                            size = after - at
                            if size == size_before and value_size != 1:
                                self.last_offset = last
                                read = self._read_run(data, at, size, begin - at, value_at - at, value_end - value_at, facts)
                                if read:
                                    last = self.last_offset
                                    after += read * size
                                else:
                                    size = 0
                            size_before = size
                            at = after
                            continue
            self.last_offset = last
            self.used = at
            read = self._read_any_batch(data, at, facts)
            if not read:
                break
            at += read
            last = self.last_offset
        self.last_offset = last
        self.used = at
        return facts

    def _read_run(self, data: bytes, at: int, size: int, key_at: int, value_at: int, value_size: int, facts: list[Fact]) -> int:
        """Add the facts of the batches after the one at `at` that have the same layout; return their number."""
        sizes = size, key_at, value_at, value_size
        layout = self._one_record_layouts.get(sizes)
        if layout is None:
            if len(self._one_record_layouts) >= LAYOUTS_MAX:
                self._one_record_layouts.clear()
            layout = self._one_record_layouts[sizes] = OneRecordLayout(size, key_at, value_at, value_size)
        count = count_equal(data, at, size, min((len(data) - at) // size, RUN_MAX), layout.fixed) - 1
        if count < RUN_MIN:
            return 0
        at += size
        block = data[at : at + count * size]
        last = self.last_offset
        stop_offset = min(self.end_offset, self.offset_max)
        count = 0
        base: int
        crc: int
        body: bytes
        if self.verify:
            for base, crc, body in layout.checked(block):
                if not last < base < stop_offset or _crc32c(body) != crc:
                    break
                last = base
                count += 1
        else:
            for (base,) in layout.bases(block):
                if not last < base < stop_offset:
                    break
                last = base
                count += 1
        self.last_offset = last
        facts.extend(layout.pairs(block[: count * size]))
        return count

    def _read_any_batch(self, data: bytes, at: int, facts: list[Fact]) -> int:
        """The general path for one batch: return its size, or 0 if it is incomplete or beyond `end_offset`."""
        end = len(data)
        if end - at < HEADER_BYTES or batch_end(data, at) > end:
            return 0
        header = validate(data, at, end) if self.verify else read_header(data, at)
        # The checksum does not cover the offset: a wrong offset must not end the reading as if it were after `end_offset`.
        if header.base_offset <= self.last_offset or header.last_offset >= self.offset_max:
            raise CorruptBatch(f"offset {header.base_offset} between {self.last_offset} and {self.offset_max}")
        if header.last_offset >= self.end_offset:
            self.ended = True
            return 0
        self.last_offset = header.last_offset
        read_facts_into(data, at, header, facts, self._layouts, DECOMPRESSED_BYTES_MAX)
        return header.size
