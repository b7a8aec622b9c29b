"""Headers of record batches as numpy columns, with the layout of `protocol.batch`."""

from __future__ import annotations

from inspect import signature
from struct import Struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from protocol.batch import HEADER, HEADER_BYTES, LENGTH_AT, LENGTH_FROM, BatchHeader

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

_KINDS: Final = {"q": ">i8", "i": ">i4", "I": ">u4", "h": ">i2", "b": "i1"}
_FIELDS: Final = list(signature(BatchHeader).parameters)
HEADER_TYPE: Final = np.dtype([(name, _KINDS[kind]) for name, kind in zip(_FIELDS, HEADER.format.lstrip(">"), strict=True)])
assert HEADER_TYPE.itemsize == HEADER_BYTES

_length: Final = Struct(f">{LENGTH_AT}xi").unpack_from


def headers_at(data: bytes, positions: list[int]) -> NDArray[Any]:
    """The batch headers at these positions; each must be complete."""
    if not positions:
        return np.empty(0, HEADER_TYPE)
    every = np.ndarray((len(data) - HEADER_BYTES + 1,), dtype=f"V{HEADER_BYTES}", buffer=data, strides=(1,))
    return every[np.array(positions, np.int64)].view(HEADER_TYPE)


def whole_batches(data: bytes) -> list[int]:
    """The start of each complete batch, and the end of the last; the data must begin with a sound batch."""
    positions = [0]
    at = 0
    end = len(data)
    last = end - HEADER_BYTES
    while at <= last:
        at += LENGTH_FROM + _length(data, at)[0]
        if not positions[-1] < at <= end:
            break
        positions.append(at)
    return positions
