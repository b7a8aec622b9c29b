"""Delete the committed offsets of deleted topics on all nodes: each node deletes them in its own partitions, and reports to the controller.

The controller keeps a deletion in the registry until all partitions have deleted the offsets. After a change of controller every node
repeats the deletion, which changes nothing if it was complete, and reports again.
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
from broker.topics.registry import TopicRegistry

Report = Callable[[list[bytes], int], None]


class SharedDeletions(Deletions):
    """Deletions on one of several nodes. `report` gets the ids of the topics, and the partition that has deleted their offsets."""

    report: Report
    publish: Callable[[int], None]  # gets the number of the last deletion, before a client learns of it

    def begin(self, deletion: Deletion) -> None:
        if self._registry_journal.owns_log:
            self.publish(max(topic.number for topic in deletion.topics))
        super().begin(deletion)

    def removed(self, deletion: Deletion, journal: GroupJournal) -> None:
        if deletion in self._open:
            self.report([topic.id for topic in deletion.topics], journal.partition)

    def delete_offsets_again(self) -> None:
        """Delete the offsets of all open deletions again, and so report them again: the registry was read again."""
        self.enqueue(self._open)

    def forget_completed(self, topic_ids: Iterable[bytes]) -> None:
        """Forget the deletions of these topics: no partition has offsets of them."""
        completed = set(topic_ids)
        self._open = [deletion for deletion in self._open if not completed.issuperset(topic.id for topic in deletion.topics)]

    def failed(self, deletion: Deletion, error: int) -> None:
        if not self._registry_journal.owns_log:  # another node is the controller now, and knows whether the topics are deleted
            deletion.done(error)
        else:
            super().failed(deletion, error)


class DeletionReports:
    """Reports to the controller which partitions have deleted the offsets of deleted topics; on the controller, collects the reports."""

    def __init__(self, loop: asyncio.AbstractEventLoop, turn: Turn, topics: TopicRegistry, registry: Registry, send: Callable[[list[bytes], list[int]], None]) -> None:
        """`send` reports topic ids and partitions to the controller, if there is one."""
        self._loop = loop
        self._turn = turn
        self._topics = topics
        self._registry = registry
        self._send = send
        self._to_report: dict[bytes, set[int]] = {}
        self._remaining: dict[bytes, set[int]] = {}  # on the controller: the partitions that still have offsets of a deleted topic
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
            if self._registry.is_controller:
                self.process(ids, numbers)
            else:
                self._send(ids, list(numbers))

    def process(self, ids: Iterable[bytes], partitions: Collection[int]) -> None:
        """On the controller: process a report; the registry completes a deletion when no partition has offsets of the topic."""
        journal = self._registry.journal
        for id in ids:
            if not (self._registry.is_controller and journal.writable and id in self._topics.deleted):
                continue
            remaining = self._remaining.setdefault(id, set(range(self._topics.by_name[CONSUMER_OFFSETS].partition_count)))
            remaining.difference_update(partitions)
            if not remaining:
                del self._remaining[id]
                self.deletions.forget_completed([id])
                self._topics.offsets_gone(id)
                self._turn.call_first_at_turn_end(journal)

    def repeat_all(self) -> None:
        """The complete registry was read again, from the log or from another controller: repeat all open deletions and their reports."""
        self._remaining.clear()
        self.deletions.delete_offsets_again()
