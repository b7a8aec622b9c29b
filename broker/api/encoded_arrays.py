"""Build replies with a long array whose elements are encoded separately."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.wire import put_compact_count, put_legacy_count


def put_array(message: bytes, bytes_after: int, elements: Sequence[bytes], count: int, flexible: bool) -> bytes:
    """Insert encoded elements into the empty array of an encoded message; `bytes_after` bytes follow the array."""
    counts: list[bytes] = []
    put_count = put_compact_count if flexible else put_legacy_count
    put_count(counts, 0)
    put_count(counts, count)
    at = len(message) - bytes_after
    return b"".join((message[: at - len(counts[0])], counts[1], *elements, message[at:]))
