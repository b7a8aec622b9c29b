"""Pieces of one size that stand one behind the other, and whether they are alike: then they can be read together.

A log is full of them, for what writes it says the same for hours. A place is looked at in all pieces in one go, so of many
a single one costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

RUN_MIN: Final = 6  # shorter runs are not worth it


def alike(data: bytes, at: int, size: int, count: int, places: Sequence[int]) -> int:
    """Of `count` pieces of `size` bytes from `at` on, how many have what the first one has in these places; less than RUN_MIN
    is less than that, no more. Places that tell most come first.
    """
    for place in places:
        if count < RUN_MIN:
            break
        begin = at + place
        count -= len(data[begin : at + count * size : size].lstrip(data[begin : begin + 1]))
    return count
