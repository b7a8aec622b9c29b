"""Delete topics, and the offsets that groups committed for them.

Nothing is removed before the deletion is durable; `partitions.py` removes the folders. The registry keeps a deletion until folders and
offsets are removed, so that the next start completes it after a crash. An offsets partition that does not serve removes the offsets when
it is loaded; after a failed append it removes them again.

A deletion may be repeated when a new topic has the name already, also by a node that has not read yet that it is complete. Which offsets are
whose follows from their order in the partition's log, not from times: before the first commit after a deletion, the partition removes the
offsets of the deleted topic and notes the deletion's number in its log. A partition that has noted the number never removes offsets for
that deletion again.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable

from broker.groups.group_journal import LOADING, SERVING, GroupJournal
from broker.groups.journal import Journal
from broker.groups.shards import Shards
from broker.runtime.contain import Contained, report_defect
from broker.topics.partitions import Partitions
from broker.topics.registry import DeletedTopic, TopicRegistry
from protocol.errors import ErrorCode

SLICE_SECONDS = 0.005  # offsets are removed for so long before the loop runs
REGISTRY_RETRY_SECONDS = 1.0  # while the registry cannot be read


def no_waiter(error: int) -> None:
    """The `done` callback of a deletion that no request waits for."""


class Deletion:
    """The topics deleted by one request.

    The registry holds this object as it holds a reply (`coordinator.hold`), and calls `release` when the deletion is durable. From then on the
    object tracks which partitions still have to remove the offsets of the topics.
    """

    __slots__ = ("_deletions", "defective", "done", "topics", "waiting")

    def __init__(self, deletions: Deletions, topics: list[DeletedTopic], done: Callable[[int], None]) -> None:
        self._deletions = deletions
        self.topics = topics
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
        self._begun = 0  # the number of the last deletion that has begun
        for journal in shards.journals:
            journal.on_serving = self._on_serving

    def delete(self, names: Iterable[str], done: Callable[[int], None]) -> None:
        """Delete topics; `done` gets 0 when that is durable and the offsets of all serving groups are removed, else the error."""
        now = self._registry_journal.wall
        topics = [self._topics.delete(name, now) for name in names]
        for topic in topics:
            self._partitions.deleted(topic)
        self._registry_journal.hold_reply(Deletion(self, [self._topics.deleted[topic.id] for topic in topics], done))

    def resume(self, deleted: Iterable[DeletedTopic]) -> None:
        """After a start, remove the offsets of topics that were deleted before, in each partition when it is loaded."""
        topics = list(deleted)
        if topics:
            self.begin(Deletion(self, topics, no_waiter))

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
            self._registry_journal.hold_reply(Deletion(self, topics, no_waiter))

    def begin(self, deletion: Deletion) -> None:
        """Remove the offsets committed for the deleted topics, in all partitions of __consumer_offsets: the deletion is durable now."""
        deletion.waiting = set(self._shards.journals)
        self._begun = max([self._begun, *[topic.number for topic in deletion.topics]])
        self._open.append(deletion)
        self.enqueue([deletion])

    def enqueue(self, deletions: Iterable[Deletion]) -> None:
        """Visit all partitions to remove the offsets of these deletions."""
        idle = not self._queue
        for deletion in deletions:
            self._queue.append((deletion, list(self._shards.journals)))
            for journal in self._shards.journals:
                journal.queued_deletions += 1
        if idle and self._queue:
            self._remove_slice()

    def _remove_slice(self) -> None:
        """Remove offsets for at most SLICE_SECONDS, then let the loop run and continue.

        A deletion is answered when all its partitions were visited.
        """
        until = self._monotonic() + SLICE_SECONDS
        while self._queue:
            deletion, journals = self._queue[0]
            while journals:
                self._visit(deletion, journals.pop())
                if self._monotonic() >= until:
                    self._loop.call_soon(Contained(self._remove_slice, self._work_failed))
                    return
            self._queue.popleft()
            done, deletion.done = deletion.done, no_waiter  # the partitions of an open deletion may be visited again
            done(ErrorCode.NONE)

    def _visit(self, deletion: Deletion, journal: GroupJournal) -> None:
        journal.queued_deletions -= 1
        if not journal.refusal:
            self._remove_offsets(deletion, journal)

    def settle(self, journal: GroupJournal) -> None:
        """Remove now what the queue would remove later in this partition: a request reads or changes its offsets."""
        for deletion, journals in self._queue:
            if journal in journals:
                journals.remove(journal)
                self._visit(deletion, journal)

    def prepare_commit(self, journal: GroupJournal, topics: Iterable[tuple[str, object]]) -> int:
        """Prepare a partition for a commit to these topics (names, and their partitions); returns an error if the client must try again.

        The offsets follow the noted number of the newest deletion.
        """
        applied = journal.shard.deletions_applied
        if applied == self._topics.last_deletion:
            return SERVING
        if applied > self._topics.last_deletion:
            return LOADING  # the partition's former node knew deletions, and perhaps new topics, that this node has not read yet
        not_durable = [topic for topic in self._topics.deleted.values() if topic.number > self._begun]
        if not_durable:
            names = {name for name, _ in topics}
            if any(topic.name in names for topic in not_durable):
                return LOADING
        last = min([topic.number for topic in not_durable], default=self._topics.last_deletion + 1) - 1
        if last > applied:
            self.settle(journal)
            if not journal.refusal and not any(journal in deletion.defective for deletion in self._open):
                journal.call(journal.shard.note_deletions, last, journal.now, journal.wall)
        return journal.refusal

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
            applied = journal.shard.deletions_applied
            names = {topic.name for topic in deletion.topics if not topic.number or topic.number > applied}
            journal.call(journal.shard.forget_topics, names, journal.now, journal.wall)
        except Exception as error:
            report_defect("offsets of deleted topics could not be removed", error, log=journal.name)
            deletion.defective.add(journal)
            return
        journal.hold_reply(RemovedOffsets(self, deletion, journal))

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
