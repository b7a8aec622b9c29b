"""Locates keys and values of the records of thousands of batches at once: step k reads record k of each batch.

An unusual batch (with headers, wrong lengths or long varints) is "irregular": this module only detects it, and the reference decoder,
`protocol.batch.records`, reads it and describes errors. When few batches have records left, they are read one by one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.batches import Bytes, Ints
from protocol.batch_record import RECORD_BYTES_MIN

PADDING: Final = 64  # bytes after the last batch that may be read
STEP_BATCHES_MIN: Final = 24  # from so many batches on, a numpy step is faster than reading them one by one
SIZE_BYTES_MAX: Final = 4  # of a length varint; longer ones are irregular
TIME_BYTES_MAX: Final = 8
TIME_MAX: Final = 1 << 61


class Batches(NamedTuple):
    """The position of the records of each batch, and its header fields."""

    begin: Ints
    end: Ints
    records: Ints
    last_delta: Ints
    base_ms: Ints


class RecordFields(NamedTuple):
    """The fields of each record, in the order of batches. A size of -1 means null."""

    batch: NDArray[np.int64]
    delta: Ints
    delta_ms: Ints
    key_at: Ints
    key_size: Ints
    value_at: Ints
    value_size: Ints
    irregular: NDArray[np.bool_]  # of each batch; records of irregular batches are skipped


def walk(data: Bytes, batches: Batches) -> RecordFields:
    """`data` has PADDING bytes after the last batch."""
    count = batches.records
    irregular = (count < 0) | (count * RECORD_BYTES_MIN > batches.end - batches.begin) | (np.abs(batches.base_ms) > TIME_MAX)
    irregular |= (count == 0) & (batches.begin != batches.end)
    counts = np.where(irregular, 0, count)
    slots = np.concatenate([[0], np.cumsum(counts)])
    total = int(slots[-1])
    fields = np.empty((6, total), np.int64)
    order = np.argsort(-counts, kind="stable")
    active = order[counts[order] > 0]
    at = batches.begin[active].copy()
    delta = np.full(len(active), -1, np.int64)
    step = 0
    while len(active) >= STEP_BATCHES_MIN:
        at, delta, invalid = _step(data, batches, active, at, delta, fields, slots[active] + step)
        step += 1
        done = counts[active] <= step
        invalid |= done & (at != batches.end[active])
        if invalid.any() or done.any():
            irregular[active[invalid]] = True
            remaining = ~(invalid | done)
            active, at, delta = active[remaining], at[remaining], delta[remaining]
    if len(active):
        raw = data.tobytes()
        for index, begin, before in zip(active.tolist(), at.tolist(), delta.tolist(), strict=True):
            first = int(slots[index]) + step
            try:
                places = _remaining_records(raw, begin, int(batches.end[index]), int(counts[index]) - step, before, int(batches.last_delta[index]))
            except IndexError:
                places = None
            if places is None:
                irregular[index] = True
            else:
                fields[:, first : first + len(places)] = np.array(places, np.int64).T
    batch = np.repeat(np.arange(len(count)), counts)
    if irregular.any():
        is_usual = ~irregular[batch]
        batch, fields = batch[is_usual], fields[:, is_usual]
    return RecordFields(batch, fields[0], fields[1], fields[2], fields[3], fields[4], fields[5], irregular)


def _step(data: Bytes, batches: Batches, active: Ints, at: Ints, before: Ints, fields: Ints, slots: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Read one record of each active batch."""
    size, at, invalid = _varints(data, at, SIZE_BYTES_MAX)
    end = at + size
    # From here on a wrong batch keeps its position, so that no position exceeds the batches.
    invalid |= (size < 0) | (end > batches.end[active])
    end = np.where(invalid, at, end)
    delta_ms, at, malformed = _varints(data, np.where(invalid, at, at + 1), TIME_BYTES_MAX)
    invalid |= malformed
    delta, at, malformed = _varints(data, at, SIZE_BYTES_MAX)
    invalid |= malformed | (delta <= before) | (delta > batches.last_delta[active])
    key_size, key_at, malformed = _varints(data, at, SIZE_BYTES_MAX)
    at = key_at + np.maximum(key_size, 0)
    invalid |= malformed | (at > end)
    at = np.where(invalid, end, at)
    value_size, value_at, malformed = _varints(data, at, SIZE_BYTES_MAX)
    at = value_at + np.maximum(value_size, 0)
    invalid |= malformed | (at + 1 != end)
    invalid |= data[np.where(invalid, 0, at)] != 0  # headers
    for row, column in zip(fields, (delta, delta_ms, key_at, key_size, value_at, value_size), strict=True):
        row[slots] = column
    return end, delta, invalid


def _varints(data: Bytes, at: Ints, bytes_max: int) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """The zigzag varint at each position, the position after it, and whether it has more than `bytes_max` bytes."""
    byte = data[at].astype(np.int64)
    raw = byte & 127
    at = at + 1
    more = byte > 127
    invalid = np.zeros(len(at), bool)
    if more.any():
        index = np.flatnonzero(more)
        for place in range(1, bytes_max):
            byte = data[at[index]].astype(np.int64)
            raw[index] |= (byte & 127) << (7 * place)
            at[index] += 1
            index = index[byte > 127]
            if not len(index):
                break
        invalid[index] = True
    return (raw >> 1) ^ -(raw & 1), at, invalid


def _remaining_records(data: bytes, at: int, end: int, count: int, before: int, last_delta: int) -> list[tuple[int, ...]] | None:
    """The remaining records of one batch; None, or IndexError, if it is irregular."""
    rows: list[tuple[int, ...]] = []
    for _ in range(count):
        size, at = _varint(data, at, SIZE_BYTES_MAX)
        stop = at + size
        if size < 0 or stop > end:
            return None
        delta_ms, at = _varint(data, at + 1, TIME_BYTES_MAX)
        delta, at = _varint(data, at, SIZE_BYTES_MAX)
        if not before < delta <= last_delta:
            return None
        before = delta
        key_size, key_at = _varint(data, at, SIZE_BYTES_MAX)
        at = key_at + max(key_size, 0)
        if at > stop:
            return None
        value_size, value_at = _varint(data, at, SIZE_BYTES_MAX)
        at = value_at + max(value_size, 0)
        if at + 1 != stop or data[at]:
            return None
        rows.append((delta, delta_ms, key_at, key_size, value_at, value_size))
        at = stop
    return rows if at == end else None


def _varint(data: bytes, at: int, bytes_max: int) -> tuple[int, int]:
    """The zigzag varint at one position, and the position after it; both are too large for any batch if it has more than `bytes_max` bytes."""
    byte = data[at]
    at += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), at
    raw = byte & 127
    for place in range(1, bytes_max):
        byte = data[at]
        at += 1
        raw |= (byte & 127) << (7 * place)
        if byte < 128:
            return (raw >> 1) ^ -(raw & 1), at
    return 1 << 62, at + (1 << 62)
