"""The ledger of committed offsets: one number after another for each group and topic. One thread uses it."""

from __future__ import annotations

from collections.abc import Collection

from tests.nodes.torture.topics import Incarnation, Wrong

NUMBERS = 1_000_000  # offsets of one incarnation: an offset that was fetched tells its incarnation
NO_OFFSET = -1


class Account:
    """A group's offset for one partition of a topic name."""

    def __init__(self, group: str, topic: str, partition: int, wrong: Wrong) -> None:
        self.group = group
        self.topic = topic
        self.partition = partition
        self.commits = 0
        self._incarnation = 0
        self._next = 0
        self._acknowledged = NO_OFFSET
        self._late: set[int] = set()  # without a reply: the request may have its effect at any later time, also for the next topic
        self._wrong = wrong

    def begin(self, incarnation: Incarnation) -> int:
        """The offset to commit next."""
        self._follow(incarnation)
        self._next += 1
        return incarnation.number * NUMBERS + self._next

    def acknowledged(self, offset: int) -> None:
        self._acknowledged = offset
        self.commits += 1

    def unanswered(self, offset: int) -> None:
        self._late.add(offset)

    def allowed(self, incarnation: Incarnation) -> frozenset[int]:
        """What a fetch may give."""
        self._follow(incarnation)
        return frozenset(self._late | {self._acknowledged})

    def fetched(self, incarnation: Incarnation, offset: int, node: int) -> None:
        allowed: Collection[int] = self.allowed(incarnation)
        if offset not in allowed:
            kind = "an offset of the deleted topic" if 0 <= offset < incarnation.number * NUMBERS else "an acknowledged commit is lost"
            self._wrong(kind, f"{self.group} has {offset} for {incarnation} partition {self.partition} on node {node}; it may have {sorted(allowed)[-3:]}")

    def _follow(self, incarnation: Incarnation) -> None:
        if incarnation.number != self._incarnation:
            self._incarnation = incarnation.number
            self._next = 0
            self._acknowledged = NO_OFFSET
