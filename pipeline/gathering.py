"""Extracts fields from bytes at given positions: numbers with numpy, texts with Arrow, without Python objects."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pipeline.batches import Bytes, Ints


def number(data: Bytes, at: Ints, size: int) -> Ints:
    """The big-endian number of `size` bytes at each position."""
    every = np.ndarray((len(data) - size + 1,), dtype=f">i{size}", buffer=data, strides=(1,))
    return every[at].astype(np.int64)


def texts(raw: bytes, at: Ints, size: Ints) -> pa.Array:
    """The text at each position; null if its size is negative."""
    values = blobs(raw, at, size)
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8: replacement characters, as `bytes.decode` writes them
        return pa.array([value if value is None else value.decode("utf-8", "replace") for value in values.to_pylist()], pa.string())


def blobs(raw: bytes, at: Ints, size: Ints) -> pa.Array:
    """The bytes at each position, in rising order; null if the size is negative."""
    # The buffer is cut where each value begins and ends: the pieces are a value and the bytes up to the next value, in turn.
    known = np.flatnonzero(size >= 0)
    cuts = np.empty(2 * len(known) + 1, np.int32)
    cuts[0:-1:2] = at[known]
    cuts[1::2] = at[known] + size[known]
    cuts[-1] = len(raw)
    pieces = pa.Array.from_buffers(pa.binary(), 2 * len(known), [None, pa.py_buffer(cuts), pa.py_buffer(raw)])
    if len(known) == len(size):
        return pieces.take(pa.array(np.arange(0, 2 * len(known), 2, dtype=np.int32)))
    index = np.zeros(len(size), np.int32)
    index[known] = np.arange(0, 2 * len(known), 2, dtype=np.int32)
    return pieces.take(pa.array(index, mask=size < 0))
