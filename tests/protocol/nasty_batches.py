"""Batches of many small records whose layouts match, or just miss, the fast paths for equal records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from protocol.batch_record import varint

Layout = Callable[[int], bytes]  # the number of a record -> the bytes after its offset delta


def _fields(key: bytes | None, value: bytes | None, headers: bytes = b"\0") -> bytes:
    return b"".join([b"\1" if field is None else varint(len(field)) + field for field in (key, value)]) + headers


_TINY = _fields(None, None)
_EMPTY = _fields(b"", b"")
_LONGER = _fields(None, b"1")
_HEADER = _fields(None, None, b"\2\0\1")  # a record without a name or a value
_AS_LONG = _fields(b"", b"12")

# In each batch, records have one or two sizes, and most have the same layout.
LAYOUTS: Final[dict[str, Layout]] = {
    "tiny": lambda number: _TINY,
    "empty header each": lambda number: _HEADER,
    "sizes that alternate": lambda number: _LONGER if number % 2 else _TINY,
    "keys null and empty in turn": lambda number: _EMPTY if number % 2 else _TINY,
    "every ninth with a header": lambda number: _HEADER if number % 9 == 0 else _AS_LONG,
    "every twentieth longer": lambda number: _TINY if number % 20 else _LONGER,
    "every seventeenth of another kind": lambda number: _EMPTY if number % 17 == 0 else _TINY,
    "every 63rd of another kind": lambda number: _EMPTY if number % 63 == 0 else _TINY,
    "alike up to the middle, then in turn": lambda number: _EMPTY if number > 9_000 and number % 2 else _TINY,
}


def body(layout: Layout, count: int) -> bytes:
    """The bytes of `count` uncompressed records of this layout, all with the batch's own timestamp."""
    parts: list[bytes] = []
    for number in range(count):
        delta = varint(number)
        fields = layout(number)
        parts += (varint(2 + len(delta) + len(fields)), b"\0\0", delta, fields)
    return b"".join(parts)
