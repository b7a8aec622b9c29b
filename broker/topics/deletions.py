"""Delete topics, and the offsets that groups committed for them.

Nothing is removed before the deletion is durable; `partitions.py` removes the folders. The registry keeps a deletion until folders and
offsets are removed, so that the next start completes it after a crash. An offsets partition that does not serve removes the offsets when
it is loaded; after a failed append it removes them again.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable

from broker.groups.group_journal import GroupJournal
from broker.groups.journal import Journal
from broker.groups.shards import Shards
from broker.runtime.contain import Contained, report_defect
from broker.topics.partitions import Partitions
from broker.topics.registry import DeletedTopic, Topic, TopicRegistry
from protocol.errors import ErrorCode

SLICE_SECONDS = 0.005  # offsets are removed for so long before the loop runs
ALL_COMMITS = (1 << 63) - 1
REGISTRY_RETRY_SECONDS = 1.0  # while the registry cannot be read


def no_waiter(error: int) -> None:
    """The `done` callback of a deletion that no request waits for."""


class Deletion:
    """The topics deleted by one request.

    The registry holds this object as it holds a reply (`coordinator.hold`), and calls `release` when the deletion is durable. From then on the
    object tracks which partitions still have to remove the offsets of the topics.
    """

    __slots__ = ("_deletions", "defective", "deleted_ms", "done", "topics", "waiting")

    def __init__(self, deletions: Deletions, topics: list[Topic], deleted_ms: dict[str, int], done: Callable[[int], None]) -> None:
        self._deletions = deletions
        self.topics = topics
        self.deleted_ms = deleted_ms  # by topic name
        self.waiting: set[GroupJournal] = set()  # partitions whose offsets are not removed yet
        self.defective: set[GroupJournal] = set()  # partitions that raised, which the next start retries
        self.done = done

    def release(self) -> None:
        self._deletions.begin(self)

    def fail(self, error: int) -> None:
        self._deletions.failed(self, error)


class RemovedOffsets:
    """Held by an offsets partition like a reply, until the tombstones of one deletion are durable there."""

    __slots__ = ("_deletions", "deletion", "journal")

    def __init__(self, deletions: Deletions, deletion: Deletion, journal: GroupJournal) -> None:
        self._deletions = deletions
        self.deletion = deletion
        self.journal = journal

    def release(self) -> None:
        self._deletions.removed(self.deletion, self.journal)

    def fail(self, error: int) -> None:
        self._deletions.keep_waiting(self)


class Deletions:
    """Deletes topics and their committed offsets."""

    def __init__(
        self,
        topics: TopicRegistry,
        registry_journal: Journal,
        shards: Shards,
        partitions: Partitions,
        loop: asyncio.AbstractEventLoop,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topics = topics
        self._registry_journal = registry_journal
        self._shards = shards
        self._partitions = partitions
        self._loop = loop
        self._monotonic = monotonic
        self._open: list[Deletion] = []
        self._queue: deque[tuple[Deletion, list[GroupJournal]]] = deque()
        for journal in shards.journals:
            journal.on_serving = self._on_serving

    def delete(self, names: Iterable[str], done: Callable[[int], None]) -> None:
        """Delete topics; `done` gets 0 when that is durable and the offsets of all serving groups are removed, else the error."""
        now = self._registry_journal.wall
        topics = [self._topics.delete(name, now) for name in names]
        for topic in topics:
            self._partitions.deleted(topic)
        self._registry_journal.hold_reply(Deletion(self, topics, {topic.name: now for topic in topics}, done))

    def resume(self, deleted: Iterable[DeletedTopic]) -> None:
        """After a start, remove the offsets of topics that were deleted before, in each partition when it is loaded."""
        deleted_ms: dict[str, int] = {}
        topics = []
        for topic in deleted:
            deleted_ms[topic.name] = max(topic.deleted_ms, deleted_ms.get(topic.name, 0))
            topics.append(Topic(topic.name, topic.id, topic.partition_count, 0))
        if topics:
            self.begin(Deletion(self, topics, deleted_ms, no_waiter))

    def failed(self, deletion: Deletion, error: int) -> None:
        """Answer with the error of the registry's append, and check later whether the topics were deleted anyway."""
        self._loop.call_soon(Contained(self._check_deleted), deletion)
        deletion.done(error)

    def _check_deleted(self, deletion: Deletion) -> None:
        """Continue with the topics that were deleted: a late append may have succeeded, or an earlier batch has their facts."""
        if not self._registry_journal.readable:
            self._loop.call_later(REGISTRY_RETRY_SECONDS, Contained(self._check_deleted), deletion)
            return
        topics = [topic for topic in deletion.topics if topic.id in self._topics.deleted]
        if topics:
            self._registry_journal.hold_reply(Deletion(self, topics, deletion.deleted_ms, no_waiter))

    def begin(self, deletion: Deletion) -> None:
        """Remove the offsets committed for the deleted topics, in all partitions of __consumer_offsets: the deletion is durable now."""
        deletion.waiting = set(self._shards.journals)
        self._open.append(deletion)
        self._queue.append((deletion, list(self._shards.journals)))
        if len(self._queue) == 1:
            self._remove_slice()

    def _remove_slice(self) -> None:
        """Remove offsets for at most SLICE_SECONDS, then let the loop run and continue.

        A deletion is answered when all its partitions were visited.
        """
        until = self._monotonic() + SLICE_SECONDS
        while self._queue:
            deletion, journals = self._queue[0]
            while journals:
                journal = journals.pop()
                if not journal.refusal:
                    self._remove_offsets(deletion, journal)
                if self._monotonic() >= until:
                    self._loop.call_soon(Contained(self._remove_slice, self._work_failed))
                    return
            self._queue.popleft()
            deletion.done(ErrorCode.NONE)

    def _work_failed(self) -> None:
        """Continue after a slice that raised; the partition at which it raised is already off the list."""
        self._loop.call_soon(Contained(self._remove_slice, self._work_failed))

    def _on_serving(self, journal: GroupJournal) -> None:
        """Remove offsets in a partition that was just loaded, before it answers requests."""
        for deletion in list(self._open):
            if journal in deletion.waiting and journal not in deletion.defective:
                self._remove_offsets(deletion, journal)

    def _remove_offsets(self, deletion: Deletion, journal: GroupJournal) -> None:
        try:
            journal.call(journal.shard.forget_topics, self._commit_time_limits(deletion), journal.now, journal.wall)
        except Exception as error:
            report_defect("offsets of deleted topics could not be removed", error, log=journal.name)
            deletion.defective.add(journal)
            return
        journal.hold_reply(RemovedOffsets(self, deletion, journal))

    def _commit_time_limits(self, deletion: Deletion) -> dict[str, int]:
        """The commit time, by topic, up to which offsets are removed: no limit unless a topic of that name was created since.

        Offsets committed after the creation stay, even if the clock was set back between deletion and creation.
        """
        by_name = self._topics.by_name
        return {
            topic.name: min(deletion.deleted_ms[topic.name], by_name[topic.name].created_ms - 1) if topic.name in by_name else ALL_COMMITS
            for topic in deletion.topics
        }

    def keep_waiting(self, held: RemovedOffsets) -> None:
        """Continue to wait after a late append. After a failed append the partition is reloaded, which removes the offsets again."""

        def hold_again() -> None:
            if not held.journal.refusal:
                held.journal.hold_reply(held)

        self._loop.call_soon(Contained(hold_again))

    def removed(self, deletion: Deletion, journal: GroupJournal) -> None:
        deletion.waiting.discard(journal)
        if deletion.waiting or deletion not in self._open:
            return
        self._open.remove(deletion)
        if self._registry_journal.writable and self._registry_journal.readable:  # otherwise the next start completes the deletion
            for topic in deletion.topics:
                self._topics.offsets_gone(topic.id)
            self._registry_journal.turn.call_first_at_turn_end(self._registry_journal)
