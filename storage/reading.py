"""Read segments that may be replaced or deleted meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from storage.segment import Segment

T = TypeVar("T")


class PinnedIterator(Generic[T]):
    """An iterator over parts of segments. It keeps the segments' files readable until it ends or is dropped."""

    __slots__ = ("_parts", "_segments")

    def __init__(self, segments: list[Segment], parts: Iterator[T]) -> None:
        self._segments = segments
        self._parts = parts
        for segment in segments:
            segment.pin()

    def __iter__(self) -> PinnedIterator[T]:
        return self

    def __next__(self) -> T:
        try:
            return next(self._parts)
        except BaseException:
            self._unpin_all()
            raise

    # `__del__` instead of `finally` in a generator: a compiled generator that is dropped before its end does not run its `finally`.
    def __del__(self) -> None:
        self._unpin_all()

    def _unpin_all(self) -> None:
        for segment in self._segments:
            segment.unpin()
        self._segments = []
