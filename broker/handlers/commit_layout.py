"""A commit that differs from the one before in its offsets alone is read by taking these out of it.

A consumer commits the same partitions for hours. What is the same is compared as one number, and all offsets are read at
once; where they stand is found by writing the request twice, so nothing of its format is known here.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

from broker.dispatch import Constant
from broker.group_journal import GroupJournal
from broker.topics import Topic
from coordinator import Commit
from protocol.messages.offset_commit import OffsetCommitRequest

# What is kept of a connection's commits has a bound: larger ones are read anew each time.
LAYOUT_BYTES_MAX: Final = 4_096
# A client whose commits keep changing is not followed for ever.
LAYOUTS_MAX: Final = 16

_OFFSET_BYTES: Final = 8
_ANY_OFFSET: Final = b"\xff" * _OFFSET_BYTES


class Layout:
    """One request, with room for other offsets: `read` fills them in."""

    __slots__ = ("_fixed", "_mask", "_offsets", "_partitions", "_size", "commit", "journal", "reply", "request", "topics", "version")

    def __init__(
        self, request: OffsetCommitRequest, version: int, commit: Commit, journal: GroupJournal, topics: list[Topic], reply: Constant
    ) -> None:
        self.request = request
        self.version = version
        self.commit = commit
        self.journal = journal
        self.topics = topics
        self.reply = reply
        self._partitions = [one for topic in request.topics for one in topic.partitions]
        kept = [one.committed_offset for one in self._partitions]
        with_zeros, with_ones = self._written(0), self._written(-1)
        for one, offset in zip(self._partitions, kept, strict=True):
            one.committed_offset = offset
        self._size = len(with_zeros)
        self._fixed = int.from_bytes(with_zeros, "big")
        differing = self._fixed ^ int.from_bytes(with_ones, "big")
        self._mask = (1 << 8 * self._size) - 1 ^ differing
        self._offsets = _offsets_in(differing.to_bytes(self._size, "big"))

    def _written(self, offset: int) -> bytes:
        for one in self._partitions:
            one.committed_offset = offset
        return self.request.encode(self.version)

    def read(self, data: bytes, at: int) -> bool:
        """Whether the body from `at` to the end has this layout; its offsets are in the request then."""
        if len(data) - at != self._size or int.from_bytes(data[at:], "big") & self._mask != self._fixed:
            return False
        for one, offset in zip(self._partitions, self._offsets.unpack_from(data, at), strict=True):
            one.committed_offset = offset
        return True


@lru_cache(1024)
def _struct(form: str) -> Struct:
    return Struct(form)


def _offsets_in(differing: bytes) -> Struct:
    form, end = ">", 0
    at = differing.find(_ANY_OFFSET)
    while at >= 0:
        form += f"{at - end}xq"
        end = at + _OFFSET_BYTES
        at = differing.find(_ANY_OFFSET, end)
    return _struct(form)


class CommitMemory:
    """Of one connection: the layout of its commits, once two in a row were of the same size."""

    __slots__ = ("_made", "_size", "layout")

    def __init__(self) -> None:
        self.layout: Layout | None = None
        self._size = 0
        self._made = 0

    def worth_a_layout(self, size: int) -> bool:
        """Asked after a commit of `size` bytes that no layout fits."""
        again = size == self._size and size <= LAYOUT_BYTES_MAX and self._made < LAYOUTS_MAX
        self._size = size
        self.layout = None
        if again:
            self._made += 1
        return again
