"""Encode facts as the records of a batch, for internal logs. They share the batch's timestamp.

A record is its length, attributes, timestamp delta, offset delta, length of the key, key, length of the value, value and a
count of headers; each number but the attributes is a zigzag varint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

from protocol.batch_record import VARINTS, Fact, varint

_WIDE_FROM: Final = 64  # an offset delta takes two bytes from here on, and the record one more
_WIDER_FROM: Final = 8_192  # and three from here on
CUT_BYTES: Final = 8
_MOMENT_BYTES: Final = 8
moment_end: Final = Struct(">qx").pack  # a timestamp, and the header count 0


def _lead_of(size: int) -> bytes:
    """The bytes of a record before its offset delta, by its size."""
    return varint(size) + b"\0\0"


_LEADS: Final = tuple([_lead_of(size) for size in range(512)])  # for common sizes


def _lead(size: int) -> bytes:
    return _LEADS[size] if size < 512 else _lead_of(size)


def write_facts(parts: list[bytes], facts: Sequence[Fact], delta: int) -> None:
    """Add their records, of which the first has the offset delta `delta`.

    Written out: a commit of many partitions is mostly this. The tables end where lengths are no longer usual.
    """
    usual = VARINTS
    usual_max = len(usual) - 8  # a record is a few bytes longer than its key and value
    last_key_size = last_size = last_width = -1
    lead = key_head = value_head = b""
    for key, value in facts:
        key_size = len(key)
        head = usual[delta] if delta < usual_max else varint(delta)
        width = len(head)
        delta += 1
        if value is None:
            key_head = varint(key_size)
            parts += (varint(4 + width + len(key_head) + key_size), b"\0\0", head, key_head, key, b"\1\0")
            last_key_size = -1
            continue
        size = len(value)
        if size != last_size or key_size != last_key_size or width != last_width:  # mostly alike, one behind the other
            last_size, last_key_size, last_width = size, key_size, width
            key_head = usual[key_size] if key_size < usual_max else varint(key_size)
            value_head = usual[size] if size < usual_max else varint(size)
            whole = 3 + width + len(key_head) + key_size + len(value_head) + size
            lead = (usual[whole] if whole < usual_max else varint(whole)) + b"\0\0"
        parts += (lead, head, key_head, key, value_head, value, b"\0")


class RecordForm:
    """A template for facts that repeat with another time and other eight bytes in each value; the rest is encoded once.

    The eight bytes are cut out of what brings them, the frame of a request. A value is `head`, these, one of `afters`, and the
    moment in milliseconds.
    """

    __slots__ = ("_afters", "_cut", "_head", "_pieces", "_sizes", "_wide", "records")

    def __init__(self, keys: Sequence[bytes], head: bytes, afters: Sequence[bytes], places: Sequence[int], frame_bytes: int) -> None:
        """At least one key. `places`: where in a frame of so many bytes the eight for each key begin, in their order."""
        self.records = len(keys)
        self._cut = _cutter(tuple(places), frame_bytes)
        self._head = head
        self._sizes: list[int] = []  # of each record, without its offset delta
        self._pieces: list[bytes] = []  # of each: lead, offset delta, key and head, the eight bytes, what is after them
        for key, after in zip(keys, afters, strict=True):
            value_size = len(head) + CUT_BYTES + len(after) + _MOMENT_BYTES
            framed = varint(len(key)) + key + varint(value_size)
            size = 2 + len(framed) + value_size + 1
            self._sizes.append(size)
            self._pieces += (_lead(size + 1), b"", framed + head, b"", b"")
        self._wide = [_lead(size + 2) for size in self._sizes]  # the leads where offset deltas take two bytes
        alike = all(after == afters[0] for after in afters)
        self._afters = [afters[0]] if alike else list(afters)

    def write(self, parts: list[bytes], frame: bytes, end: bytes, delta: int) -> int:
        """As `write_facts`; the offset delta behind the last one. `end` is the `moment_end` of all of them."""
        count = self.records
        behind = delta + count
        pieces = self._pieces.copy()
        pieces[1::5] = VARINTS[delta:behind] if behind <= len(VARINTS) else [varint(n) for n in range(delta, behind)]
        pieces[3::5] = self._cut(frame)
        afters = self._afters
        pieces[4::5] = [afters[0] + end] * count if len(afters) == 1 else [after + end for after in afters]
        if behind > _WIDE_FROM:
            wide = max(_WIDE_FROM - delta, 0)  # the first whose delta takes more than a byte
            if behind > _WIDER_FROM:
                pieces[5 * wide :: 5] = [_lead(self._sizes[n] + len(pieces[5 * n + 1])) for n in range(wide, count)]
            else:
                pieces[5 * wide :: 5] = self._wide[wide:]
        parts += pieces
        return behind

    def values(self, frame: bytes, moment: int) -> list[bytes]:
        """Only the values, in the order of the keys."""
        time = moment_end(moment)[:_MOMENT_BYTES]
        afters = self._afters * (self.records // len(self._afters))
        return [self._head + cut + after + time for cut, after in zip(self._cut(frame), afters, strict=True)]


class OneRecordForm(RecordForm):
    """The template for one fact, as in most commits."""

    __slots__ = ("_after", "_behind", "_key", "_lead", "_place")

    def __init__(self, keys: Sequence[bytes], head: bytes, afters: Sequence[bytes], places: Sequence[int], frame_bytes: int) -> None:
        super().__init__(keys, head, afters, places, frame_bytes)
        self._lead, _, self._key, _, _ = self._pieces
        (self._after,) = afters
        self._place = places[0]
        self._behind = places[0] + CUT_BYTES

    def write(self, parts: list[bytes], frame: bytes, end: bytes, delta: int) -> int:
        if delta >= _WIDE_FROM:
            return super().write(parts, frame, end, delta)
        parts += (self._lead, VARINTS[delta], self._key, frame[self._place : self._behind], self._after, end)
        return delta + 1


def form_of(keys: Sequence[bytes], head: bytes, afters: Sequence[bytes], places: Sequence[int], frame_bytes: int) -> RecordForm:
    return (RecordForm if len(keys) > 1 else OneRecordForm)(keys, head, afters, places, frame_bytes)


@lru_cache(256)
def _cutter(places: tuple[int, ...], frame_bytes: int) -> Callable[[bytes], tuple[bytes, ...]]:
    """Cuts eight bytes at each of the places, which come in order, out of a frame of so many."""
    form, behind = "", 0
    for place in places:
        form += f"{place - behind}x{CUT_BYTES}s"
        behind = place + CUT_BYTES
    return Struct(f"{form}{frame_bytes - behind}x").unpack
