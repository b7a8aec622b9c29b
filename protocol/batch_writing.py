"""Facts -> the records of a batch, for logs of our own. All of them share the batch's timestamp.

A record is its length, attributes, timestamp delta, offset delta, length of the key, key, length of the value, value and a
count of headers; each number but the attributes is a zigzag varint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocol.batch_record import VARINTS, Fact, varint
from protocol.fact_layouts import read_facts

_WIDE_FROM: Final = 64  # an offset delta takes two bytes from here on, and the record one more
_WIDER_FROM: Final = 8_192  # and three from here on
_NO_HEADERS: Final = b"\0"


def _lead_of(size: int) -> bytes:
    """The end of the record before, and what of one of this size comes before its offset delta."""
    return _NO_HEADERS + varint(size) + b"\0\0"


_LEADS: Final = tuple([_lead_of(size) for size in range(512)])  # sizes that are usual


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
    """Facts that come again and again with other values of the same sizes: everything else is made once."""

    __slots__ = ("_pieces", "_sizes", "_wide")

    def __init__(self, keys: Sequence[bytes], value_sizes: Sequence[int]) -> None:
        """At least one key, and for each the size of its value."""
        self._sizes: list[int] = []  # of each record, without its offset delta
        self._pieces: list[bytes] = []  # lead, offset delta, key and value of each, and what ends the last one
        for key, value_size in zip(keys, value_sizes, strict=True):
            framed = varint(len(key)) + key + varint(value_size)
            size = 2 + len(framed) + value_size + 1
            self._sizes.append(size)
            self._pieces += (_lead(size + 1), b"", framed, b"")
        self._pieces[0] = self._pieces[0][1:]
        self._pieces.append(_NO_HEADERS)
        self._wide = [_lead(size + 2) for size in self._sizes]  # the leads where offset deltas take two bytes

    @property
    def records(self) -> int:
        return len(self._sizes)

    def write(self, parts: list[bytes], values: Sequence[bytes], delta: int) -> None:
        """As `write_facts`, with these values."""
        count = len(self._sizes)
        behind = delta + count
        pieces = self._pieces.copy()
        pieces[1::4] = VARINTS[delta:behind] if behind <= len(VARINTS) else [varint(n) for n in range(delta, behind)]
        pieces[3::4] = values
        if behind > _WIDE_FROM:
            wide = max(_WIDE_FROM - delta, 0)  # the first whose delta takes more than a byte
            if behind > _WIDER_FROM:
                pieces[4 * wide : -1 : 4] = [_lead(self._sizes[n] + len(pieces[4 * n + 1])) for n in range(wide, count)]
            else:
                pieces[4 * wide : -1 : 4] = self._wide[wide:]
            if not wide:
                pieces[0] = pieces[0][1:]
        parts += pieces

    def facts(self, values: Sequence[bytes]) -> list[Fact]:
        """For whoever wants keys and values."""
        parts: list[bytes] = []
        self.write(parts, values, 0)
        facts: list[Fact] = []
        written = b"".join(parts)
        read_facts(written, 0, len(written), len(values), facts)
        return facts


class OneRecordForm(RecordForm):
    """The same for one fact, as most commits are."""

    __slots__ = ("_key", "_lead")

    def __init__(self, key: bytes, value_size: int) -> None:
        super().__init__((key,), (value_size,))
        self._lead, _, self._key, _, _ = self._pieces

    def write(self, parts: list[bytes], values: Sequence[bytes], delta: int) -> None:
        if delta < _WIDE_FROM:
            parts += (self._lead, VARINTS[delta], self._key, values[0], _NO_HEADERS)
        else:
            super().write(parts, values, delta)


def form_of(keys: Sequence[bytes], value_sizes: Sequence[int]) -> RecordForm:
    return RecordForm(keys, value_sizes) if len(keys) > 1 else OneRecordForm(keys[0], value_sizes[0])
