"""Find runs of consecutive records or batches of the same size and layout, which can then be decoded together.

Logs contain many such runs, since producers send the same layout for hours. One slice compares a byte of all pieces (records or
batches), so the cost for each piece is small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

RUN_MIN: Final = 6  # pieces; decoding a shorter run piece by piece takes the same time


def count_equal(data: bytes, at: int, size: int, count: int, positions: Sequence[int]) -> int:
    """Of `count` pieces of `size` bytes from `at` on, count the leading ones that equal the first in the bytes at these `positions`.

    A result below RUN_MIN only means that the run is shorter than RUN_MIN. List the positions that differ most often first.
    """
    for position in positions:
        if count < RUN_MIN:
            break
        begin = at + position
        count -= len(data[begin : at + count * size : size].lstrip(data[begin : begin + 1]))
    return count
