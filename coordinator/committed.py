"""The committed offsets of a group of either type, and the commits that are not decoded yet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from coordinator.deadlines import Timed


class UndecodedCommit(Protocol):
    """A commit stored by the fast path (`repeats.py`), whose offsets are decoded only when they are read."""

    def fold(self, offsets: dict[str, TopicOffsets], /) -> None:
        """Decode the commit into `offsets`."""
        ...


class TopicOffsets:
    """The committed offsets of one topic: encoded values by partition, and the common prefix of their record keys."""

    __slots__ = ("key_prefix", "values")

    def __init__(self, key_prefix: bytes) -> None:
        self.key_prefix = key_prefix
        self.values: dict[int, bytes] = {}


class OffsetsOwner(Timed):
    """A group as the owner of committed offsets."""

    __slots__ = ("_offsets", "_undecoded", "id", "newest_undecoded", "offsets_version", "version")

    def __init__(self, id: str) -> None:
        super().__init__()
        self.id = id
        self._offsets: dict[str, TopicOffsets] = {}
        self._undecoded: dict[UndecodedCommit, None] = {}  # commits of the fast path that are not in `_offsets` yet, the newest last
        self.newest_undecoded: UndecodedCommit | None = None
        self.offsets_version = object()  # replaced when an offset changes, except by commits in `_undecoded`
        self.version = 0  # increases when a cached verdict on a heartbeat or commit may be stale

    # A repeated commit is decoded only when offsets are read; usually the next commit replaces it before that.

    @property
    def offsets(self) -> dict[str, TopicOffsets]:
        if self.newest_undecoded is not None:
            self._decode_all()
        return self._offsets

    @offsets.setter
    def offsets(self, offsets: dict[str, TopicOffsets]) -> None:
        self._offsets = offsets

    def add_undecoded(self, commit: UndecodedCommit) -> None:
        """Add the commit, or move it to the end, as the newest."""
        self._undecoded.pop(commit, None)
        self._undecoded[commit] = None
        self.newest_undecoded = commit

    def decode_commit(self, commit: UndecodedCommit) -> None:
        """Decode the commit's offsets, so that the object can be dropped."""
        if commit in self._undecoded:
            self._decode_all()

    def _decode_all(self) -> None:
        self.newest_undecoded = None
        for commit in self._undecoded:
            commit.fold(self._offsets)
        self._undecoded.clear()
        self.invalidate_offsets()

    def invalidate_offsets(self) -> None:
        """Invalidate cached replies to OffsetFetch."""
        self.offsets_version = object()

    def all_offsets(self) -> Iterable[tuple[str, int, bytes]]:
        for topic, stored in self.offsets.items():
            for partition, value in stored.values.items():
                yield topic, partition, value
