"""Deleting topics where partitions of groups are spread over nodes: each node forgets the offsets in its own, and reports that.

The controller keeps a deletion in the registry until all partitions have forgotten the offsets. After a change of controller every node
forgets, which changes nothing then, and reports again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.groups.group_journal import GroupJournal
from broker.topics.deletions import Deletion, Deletions

Report = Callable[[list[bytes], int], None]


class SharedDeletions(Deletions):
    """`report` gets the ids of the topics and the number of the partition that has forgotten their offsets."""

    report: Report

    def forgotten(self, deletion: Deletion, journal: GroupJournal) -> None:
        if deletion in self._open:
            self.report([topic.id for topic in deletion.topics], journal.partition)

    def repeat(self) -> None:
        """Report again what is forgotten: there is another controller."""
        idle = not self._queue
        for deletion in self._open:
            self._queue.append((deletion, list(self._shards.journals)))
        if idle and self._queue:
            self._go_on()

    def completed(self, ids: Iterable[bytes]) -> None:
        """No partition has offsets of these topics any more."""
        gone = set(ids)
        self._open = [deletion for deletion in self._open if not gone.issuperset(topic.id for topic in deletion.topics)]

    def failed(self, deletion: Deletion, error: int) -> None:
        if not self._registry.owned:  # another node is the controller now, and knows whether the topics are deleted
            deletion.done(error)
        else:
            super().failed(deletion, error)


class Forgotten:
    """Which partitions still have offsets of deleted topics, as the controller knows it."""

    def __init__(self) -> None:
        self._left: dict[bytes, set[int]] = {}

    def clear(self) -> None:
        self._left.clear()

    def note(self, id: bytes, partition: int, partitions: int) -> bool:
        """Returns whether this was the last partition."""
        left = self._left.get(id)
        if left is None:
            left = self._left[id] = set(range(partitions))
        left.discard(partition)
        if left:
            return False
        del self._left[id]
        return True
