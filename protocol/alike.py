"""Find runs of consecutive pieces of the same size and layout, which can then be decoded together.

Logs are full of such runs, since producers send the same layout for hours. One slice compares a byte of all pieces, so the cost for
each piece is small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

RUN_MIN: Final = 6  # pieces; a shorter run is read one by one in the same time


def alike(data: bytes, at: int, size: int, count: int, places: Sequence[int]) -> int:
    """The number of pieces, of `count` pieces of `size` bytes from `at` on, that equal the first one in these places.

    A result below RUN_MIN only means that the run is shorter than RUN_MIN. Put the places that differ most often first.
    """
    for place in places:
        if count < RUN_MIN:
            break
        begin = at + place
        count -= len(data[begin : at + count * size : size].lstrip(data[begin : begin + 1]))
    return count
