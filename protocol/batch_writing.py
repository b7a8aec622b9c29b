"""Encode facts as records of a batch, for internal logs. All records have the batch's timestamp.

A record has its length, attributes, timestamp delta, offset delta, length of the key, key, length of the value, value and number of
headers; each number but the attributes is a zigzag varint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

from protocol.batch_record import VARINTS, Fact, varint

_TWO_BYTES_FROM: Final = 64  # from here on an offset delta takes two bytes, so the record is one byte longer
_THREE_BYTES_FROM: Final = 8_192
CUT_BYTES: Final = 8
_TIME_BYTES: Final = 8
encode_time_end: Final = Struct(">qx").pack  # a timestamp, and the header count 0


def _encode_lead(size: int) -> bytes:
    """The bytes of a record before its offset delta, by its size."""
    return varint(size) + b"\0\0"


_LEADS: Final = tuple([_encode_lead(size) for size in range(512)])  # for common sizes


def _lead(size: int) -> bytes:
    return _LEADS[size] if size < 512 else _encode_lead(size)


def write_facts(parts: list[bytes], facts: Sequence[Fact], delta: int) -> None:
    """Add the facts as records, the first with the offset delta `delta`.

    Varints are looked up inline, since a commit of many partitions spends most of its time here. The table has varints of common lengths.
    """
    table = VARINTS
    table_max = len(table) - 8  # a record is a few bytes longer than its key and value
    last_key_size = last_size = last_width = -1
    lead = key_length = value_length = b""
    for key, value in facts:
        key_size = len(key)
        encoded_delta = table[delta] if delta < table_max else varint(delta)
        width = len(encoded_delta)
        delta += 1
        if value is None:
            key_length = varint(key_size)
            parts += (varint(4 + width + len(key_length) + key_size), b"\0\0", encoded_delta, key_length, key, b"\1\0")
            last_key_size = -1
            continue
        size = len(value)
        if size != last_size or key_size != last_key_size or width != last_width:  # consecutive facts mostly have equal sizes
            last_size, last_key_size, last_width = size, key_size, width
            key_length = table[key_size] if key_size < table_max else varint(key_size)
            value_length = table[size] if size < table_max else varint(size)
            record_size = 3 + width + len(key_length) + key_size + len(value_length) + size
            lead = (table[record_size] if record_size < table_max else varint(record_size)) + b"\0\0"
        parts += (lead, encoded_delta, key_length, key, value_length, value, b"\0")


class RecordForm:
    """A template for the records of a repeated offset commit: only the offset and the time in each value change, the rest is encoded once.

    The eight bytes of an offset are cut out of the request's frame. A value is `head`, these bytes, one of `afters`, and the time in
    milliseconds.
    """

    __slots__ = ("_afters", "_cut", "_head", "_pieces", "_sizes", "_two_byte_leads", "records")

    def __init__(self, keys: Sequence[bytes], head: bytes, afters: Sequence[bytes], positions: Sequence[int], frame_bytes: int) -> None:
        """At least one key. `positions`: where the eight bytes for each key are in a frame of `frame_bytes`, ascending."""
        self.records = len(keys)
        self._cut = _make_cutter(tuple(positions), frame_bytes)
        self._head = head
        self._sizes: list[int] = []  # of each record, without its offset delta
        self._pieces: list[bytes] = []  # five for each record: lead, offset delta, key and head, the eight bytes, the end
        for key, after in zip(keys, afters, strict=True):
            value_size = len(head) + CUT_BYTES + len(after) + _TIME_BYTES
            framed = varint(len(key)) + key + varint(value_size)
            size = 2 + len(framed) + value_size + 1
            self._sizes.append(size)
            self._pieces += (_lead(size + 1), b"", framed + head, b"", b"")
        self._two_byte_leads = [_lead(size + 2) for size in self._sizes]  # the leads where offset deltas take two bytes
        all_equal = all(after == afters[0] for after in afters)
        self._afters = [afters[0]] if all_equal else list(afters)

    def write(self, parts: list[bytes], frame: bytes, end: bytes, delta: int) -> int:
        """Add the records as `write_facts` does; return the next offset delta. `end` is the `encode_time_end` of all records."""
        count = self.records
        next_delta = delta + count
        pieces = self._pieces.copy()
        pieces[1::5] = VARINTS[delta:next_delta] if next_delta <= len(VARINTS) else [varint(n) for n in range(delta, next_delta)]
        pieces[3::5] = self._cut(frame)
        afters = self._afters
        pieces[4::5] = [afters[0] + end] * count if len(afters) == 1 else [after + end for after in afters]
        if next_delta > _TWO_BYTES_FROM:
            first = max(_TWO_BYTES_FROM - delta, 0)  # the first record whose delta takes more than a byte
            if next_delta > _THREE_BYTES_FROM:
                pieces[5 * first :: 5] = [_lead(self._sizes[n] + len(pieces[5 * n + 1])) for n in range(first, count)]
            else:
                pieces[5 * first :: 5] = self._two_byte_leads[first:]
        parts += pieces
        return next_delta

    def values(self, frame: bytes, time_ms: int) -> list[bytes]:
        """The values, in the order of the keys."""
        time = encode_time_end(time_ms)[:_TIME_BYTES]
        afters = self._afters * (self.records // len(self._afters))
        return [self._head + cut + after + time for cut, after in zip(self._cut(frame), afters, strict=True)]


class OneRecordForm(RecordForm):
    """The template for one fact, as in most commits."""

    __slots__ = ("_after", "_key", "_lead", "_position", "_position_end")

    def __init__(self, keys: Sequence[bytes], head: bytes, afters: Sequence[bytes], positions: Sequence[int], frame_bytes: int) -> None:
        super().__init__(keys, head, afters, positions, frame_bytes)
        self._lead, _, self._key, _, _ = self._pieces
        (self._after,) = afters
        self._position = positions[0]
        self._position_end = positions[0] + CUT_BYTES

    def write(self, parts: list[bytes], frame: bytes, end: bytes, delta: int) -> int:
        if delta >= _TWO_BYTES_FROM:
            return super().write(parts, frame, end, delta)
        parts += (self._lead, VARINTS[delta], self._key, frame[self._position : self._position_end], self._after, end)
        return delta + 1


def make_record_form(keys: Sequence[bytes], head: bytes, afters: Sequence[bytes], positions: Sequence[int], frame_bytes: int) -> RecordForm:
    return (RecordForm if len(keys) > 1 else OneRecordForm)(keys, head, afters, positions, frame_bytes)


@lru_cache(256)
def _make_cutter(positions: tuple[int, ...], frame_bytes: int) -> Callable[[bytes], tuple[bytes, ...]]:
    """A function that cuts eight bytes at each of the ascending positions out of a frame of this size."""
    format, end = "", 0
    for position in positions:
        format += f"{position - end}x{CUT_BYTES}s"
        end = position + CUT_BYTES
    return Struct(f"{format}{frame_bytes - end}x").unpack
