"""Batches in the bytes that a log stores, and copies with changed bytes but a valid checksum."""

from __future__ import annotations

from collections.abc import Sequence

from google_crc32c import value as crc32c

from protocol.batch import stamp


def stamped(batches: Sequence[bytes], step: int) -> bytes:
    """Concatenated batches, whose base offsets are `step` apart."""
    out = bytearray()
    for number, batch in enumerate(batches):
        at = len(out)
        out += batch
        stamp(out, at, step * number, 3)
    return bytes(out)


def sealed(batch: bytes | bytearray) -> bytes:
    """The batch with a valid checksum, whatever else is wrong with it."""
    return bytes(batch[:17]) + int(crc32c(bytes(batch[21:]))).to_bytes(4, "big") + bytes(batch[21:])


def patched(batch: bytes | bytearray, at: int, data: bytes) -> bytes:
    """The batch with other bytes at a position, and a valid checksum."""
    return sealed(bytes(batch[:at]) + data + bytes(batch[at + len(data) :]))


def holed(batch: bytes, last_offset_delta: int) -> bytes:
    """A batch as the cleaner leaves it: the offsets of removed records still count."""
    return patched(batch, 23, last_offset_delta.to_bytes(4, "big"))
