"""Keys and values of records one behind the other: what is in most of them is laid out like the one before."""

from __future__ import annotations

from struct import Struct
from typing import Final

from protocol.batch_record import VARINT_SHIFT_MAX, CorruptBatch, Fact, longer_varint


class Layout:
    """How long what is in a record is: one without headers, whose timestamp and offset take a byte each, has its key and
    value at places that one Struct knows. The three parts that say so are compared.
    """

    __slots__ = ("key_head", "lead", "size", "unpack", "value_head")

    def __init__(self, data: bytes, begin: int, delta_at: int, key_at: int, key_end: int, value_at: int, value_end: int) -> None:
        self.lead = data[begin:delta_at]
        self.key_head = data[delta_at + 1 : key_at]
        self.value_head = data[key_end:value_at]
        self.size = value_end + 1 - begin
        heads = delta_at - begin, key_at - delta_at - 1, key_end - key_at, value_at - key_end, value_end - value_at
        self.unpack: Final = Struct(f"{heads[0]}sB{heads[1]}s{heads[2]}s{heads[3]}s{heads[4]}sB").unpack_from


class FactLayouts:
    """Reads keys and values, and remembers the layout of the record before: in most logs nearly all are alike."""

    __slots__ = ("_last_size", "_layout")

    def __init__(self) -> None:
        self._layout: Layout | None = None
        self._last_size = 0  # of the last record that had another one

    def read(self, data: bytes, at: int, end: int, count: int, facts: list[Fact]) -> None:
        """Add key and value of so many records. Written out: replaying a log that was cleaned is this function."""
        layout = self._layout
        lead: bytes
        delta: int
        key_head: bytes
        key: bytes
        value_head: bytes
        value: bytes
        headers: int
        for _ in range(count):
            if layout is not None and at + layout.size <= end:
                lead, delta, key_head, key, value_head, value, headers = layout.unpack(data, at)
                if lead == layout.lead and value_head == layout.value_head and key_head == layout.key_head and delta < 128 and not headers:
                    facts.append((key, value))
                    at += layout.size
                    continue
            begin = at
            n = data[at]
            at += 1
            if n > 127:
                more = data[at]
                if more < 128:
                    n += (more << 7) - 128
                    at += 1
                else:
                    n, at = longer_varint(data, at, n, VARINT_SHIFT_MAX)
            stop = at + (n >> 1)
            if n & 1 or stop > end:
                raise CorruptBatch(f"a record of {n >> 1} bytes with {end - at} left")
            timestamp_at = at + 1
            at += 1
            while data[at] > 127:  # the timestamp, unread
                at += 1
            at += 1
            delta_at = at
            while data[at] > 127:  # the offset, unread
                at += 1
            at += 1
            short = at - timestamp_at == 2
            n = data[at]
            at += 1
            if n > 127:
                n, at = longer_varint(data, at, n, VARINT_SHIFT_MAX)
            key_at = at
            if n & 1:
                key = b""
                short = False
            else:
                at += n >> 1
                key = data[key_at:at]
            key_end = at
            n = data[at]
            at += 1
            if n > 127:
                n, at = longer_varint(data, at, n, VARINT_SHIFT_MAX)
            if n & 1:
                facts.append((key, None))
            else:
                value_at = at
                at += n >> 1
                facts.append((key, data[value_at:at]))
                if short and at + 1 == stop and not data[at]:
                    if stop - begin == self._last_size:
                        layout = self._layout = Layout(data, begin, delta_at, key_at, key_end, value_at, at)
                    self._last_size = stop - begin
            if at >= stop:
                raise CorruptBatch("a record's fields are longer than the record")
            at = stop


def read_facts(data: bytes, at: int, end: int, count: int, facts: list[Fact]) -> None:
    """The same for who reads one batch alone."""
    FactLayouts().read(data, at, end, count, facts)
