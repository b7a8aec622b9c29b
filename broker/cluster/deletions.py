"""Deleting topics where partitions of groups are spread over nodes: each node forgets the offsets in its own, and reports that.

The controller keeps a deletion in the registry until all partitions have forgotten the offsets. After a change of controller every node
forgets, which changes nothing then, and reports again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from broker.cluster.registry import Registry
from broker.groups.group_journal import GroupJournal
from broker.internal_topics import CONSUMER_OFFSETS
from broker.runtime.contain import Contained
from broker.runtime.turn import Turn
from broker.topics.deletions import Deletion, Deletions
from broker.topics.registry import Topics

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


class Forgetting:
    """What partitions of groups have forgotten, on its way to the controller; and on the controller, which still have offsets."""

    def __init__(self, loop: asyncio.AbstractEventLoop, turn: Turn, topics: Topics, registry: Registry, send: Callable[[list[bytes], list[int]], None]) -> None:
        """`send` reports to the controller, if there is one: the ids of topics, and the partitions."""
        self._loop = loop
        self._turn = turn
        self._topics = topics
        self._registry = registry
        self._send = send
        self._to_report: dict[bytes, set[int]] = {}
        self._left: dict[bytes, set[int]] = {}  # on the controller: the partitions that still have offsets of a deleted topic
        self.deletions: SharedDeletions

    def report(self, ids: list[bytes], partition: int) -> None:
        """A partition of this node has no offsets of these topics any more."""
        if not self._to_report:
            self._loop.call_soon(Contained(self._report_all))
        for id in ids:
            self._to_report.setdefault(id, set()).add(partition)

    def _report_all(self) -> None:
        reported, self._to_report = self._to_report, {}
        by_partitions: dict[tuple[int, ...], list[bytes]] = {}
        for id, partitions in reported.items():
            by_partitions.setdefault(tuple(sorted(partitions)), []).append(id)
        for numbers, ids in by_partitions.items():
            if self._registry.leading:
                self.reported(ids, numbers)
            else:
                self._send(ids, list(numbers))

    def reported(self, ids: Iterable[bytes], partitions: Collection[int]) -> None:
        """Note a report on the controller, and what no partition has any more in the registry."""
        journal = self._registry.journal
        for id in ids:
            if not (self._registry.leading and journal.writable and id in self._topics.deleted):
                continue
            left = self._left.setdefault(id, set(range(self._topics.by_name[CONSUMER_OFFSETS].partitions)))
            left.difference_update(partitions)
            if not left:
                del self._left[id]
                self.deletions.completed([id])
                self._topics.offsets_gone(id)
                self._turn.schedule_append(journal)

    def begin_anew(self) -> None:
        """The registry was read anew, here or from another controller: report again, count again."""
        self._left.clear()
        self.deletions.repeat()
