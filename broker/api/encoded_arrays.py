"""Replies whose long array is encoded element by element, apart from the fields around it."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.wire import put_compact_count, put_legacy_count


def put_array(message: bytes, behind: int, elements: Sequence[bytes], count: int, flexible: bool) -> bytes:
    """`message` was encoded with an empty array, `behind` bytes before its end: put the encoded elements there."""
    counts: list[bytes] = []
    put_count = put_compact_count if flexible else put_legacy_count
    put_count(counts, 0)
    put_count(counts, count)
    at = len(message) - behind
    return b"".join((message[: at - len(counts[0])], counts[1], *elements, message[at:]))
