"""Delete topics, and the offsets that groups committed for them.

Nothing is removed before the deletion is durable; `partitions.py` removes the folders. The registry keeps a deletion until
folders and offsets are gone, so that the next start completes it after a crash. An offsets partition that does not serve
forgets the offsets once it does; after a failed append it forgets them again.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable

from broker.groups.group_journal import GroupJournal
from broker.groups.journal import Journal
from broker.groups.shards import Shards
from broker.runtime.contain import Contained, defect
from broker.topics.partitions import Partitions
from broker.topics.registry import DeletedTopic, Topic, Topics
from protocol.errors import ErrorCode

SLICE_SECONDS = 0.005  # of forgetting offsets, before the loop runs
ALL_COMMITS = (1 << 63) - 1
REGISTRY_RETRY_SECONDS = 1.0  # while the registry cannot be read


def no_waiter(error: int) -> None:
    """The `done` of a deletion without a waiting request."""


class Deletion:
    """The topics deleted by one request: first a held reply of the registry, then the progress of forgetting their offsets."""

    __slots__ = ("_deletions", "defective", "done", "moments", "topics", "waiting")

    def __init__(self, deletions: Deletions, topics: list[Topic], moments: dict[str, int], done: Callable[[int], None]) -> None:
        self._deletions = deletions
        self.topics = topics
        self.moments = moments  # of deletion, by topic name
        self.waiting: set[GroupJournal] = set()  # partitions that have not forgotten the offsets yet
        self.defective: set[GroupJournal] = set()  # those that raised: retried at the next start
        self.done = done

    def release(self) -> None:
        self._deletions.begin(self)

    def fail(self, error: int) -> None:
        self._deletions.failed(self, error)


class Forgotten:
    """A held reply that records when one deletion's tombstones are durable in one offsets partition."""

    __slots__ = ("_deletions", "deletion", "journal")

    def __init__(self, deletions: Deletions, deletion: Deletion, journal: GroupJournal) -> None:
        self._deletions = deletions
        self.deletion = deletion
        self.journal = journal

    def release(self) -> None:
        self._deletions.forgotten(self.deletion, self.journal)

    def fail(self, error: int) -> None:
        self._deletions.not_yet(self)


class Deletions:
    """Deletes topics and forgets their offsets."""

    def __init__(
        self,
        topics: Topics,
        registry: Journal,
        shards: Shards,
        partitions: Partitions,
        loop: asyncio.AbstractEventLoop,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topics = topics
        self._registry = registry
        self._shards = shards
        self._partitions = partitions
        self._loop = loop
        self._monotonic = monotonic
        self._open: list[Deletion] = []
        self._queue: deque[tuple[Deletion, list[GroupJournal]]] = deque()
        for journal in shards.journals:
            journal.served = self._served

    def delete(self, names: Iterable[str], done: Callable[[int], None]) -> None:
        """Delete topics; `done` gets 0 when that is durable and all serving groups have forgotten the offsets, else the error."""
        now = self._registry.wall
        topics = [self._topics.delete(name, now) for name in names]
        for topic in topics:
            self._partitions.deleted(topic)
        moments = {topic.name: now for topic in topics}
        self._registry.reply(Deletion(self, topics, moments, done))

    def resume(self, deleted: Iterable[DeletedTopic]) -> None:
        """After a start, forget the offsets of topics deleted before, in each partition once it is loaded."""
        moments: dict[str, int] = {}
        topics = []
        for topic in deleted:
            moments[topic.name] = max(topic.deleted_ms, moments.get(topic.name, 0))
            topics.append(Topic(topic.name, topic.id, topic.partitions, 0))
        if topics:
            self.begin(Deletion(self, topics, moments, no_waiter))

    def failed(self, deletion: Deletion, error: int) -> None:
        """The registry's append failed or is late: answer, and check later whether the topics are deleted."""
        self._loop.call_soon(Contained(self._check_deleted), deletion)
        deletion.done(error)

    def _check_deleted(self, deletion: Deletion) -> None:
        """Go on with the topics that are deleted after all: a late append may have succeeded, or an earlier batch contained them."""
        if not self._registry.readable:
            self._loop.call_later(REGISTRY_RETRY_SECONDS, Contained(self._check_deleted), deletion)
            return
        gone = [topic for topic in deletion.topics if topic.id in self._topics.deleted]
        moments = {topic.name: deletion.moments[topic.name] for topic in gone}
        if gone:
            self._registry.reply(Deletion(self, gone, moments, no_waiter))

    def begin(self, deletion: Deletion) -> None:
        """Forget the offsets in all partitions, now that the deletion is durable."""
        deletion.waiting = set(self._shards.journals)
        self._open.append(deletion)
        self._queue.append((deletion, list(self._shards.journals)))
        if len(self._queue) == 1:
            self._work()

    def _work(self) -> None:
        """One slice: each deletion visits all partitions once, then its reply leaves."""
        until = self._monotonic() + SLICE_SECONDS
        while self._queue:
            deletion, left = self._queue[0]
            while left:
                journal = left.pop()
                if not journal.refusal:
                    self._forget(deletion, journal)
                if self._monotonic() >= until:
                    self._loop.call_soon(Contained(self._work, self._go_on))
                    return
            self._queue.popleft()
            deletion.done(ErrorCode.NONE)

    def _go_on(self) -> None:
        """Continue after a slice that raised; the partition that raised is off the list."""
        self._loop.call_soon(Contained(self._work, self._go_on))

    def _served(self, journal: GroupJournal) -> None:
        """Forget offsets in a partition that was just loaded, before it answers requests."""
        for deletion in list(self._open):
            if journal in deletion.waiting and journal not in deletion.defective:
                self._forget(deletion, journal)

    def _forget(self, deletion: Deletion, journal: GroupJournal) -> None:
        try:
            journal.call(journal.shard.forget_topics, self._up_to(deletion), journal.now, journal.wall)
        except Exception as error:
            defect("offsets of deleted topics could not be forgotten", error, log=journal.name)
            deletion.defective.add(journal)
            return
        journal.reply(Forgotten(self, deletion, journal))

    def _up_to(self, deletion: Deletion) -> dict[str, int]:
        """The commit time, by topic, up to which offsets are forgotten: no limit unless a topic of that name was created since.

        Offsets committed after the creation stay, even if the clock was set back between deletion and creation.
        """
        by_name = self._topics.by_name
        return {
            name: min(moment, by_name[name].created_ms - 1) if name in by_name else ALL_COMMITS for name, moment in deletion.moments.items()
        }

    def not_yet(self, forgotten: Forgotten) -> None:
        """Wait on after a late append; after a failed one the partition reloads, and forgets again then."""

        def keep_waiting() -> None:
            if not forgotten.journal.refusal:
                forgotten.journal.reply(forgotten)

        self._loop.call_soon(Contained(keep_waiting))

    def forgotten(self, deletion: Deletion, journal: GroupJournal) -> None:
        deletion.waiting.discard(journal)
        if deletion.waiting or deletion not in self._open:
            return
        self._open.remove(deletion)
        if self._registry.writable and self._registry.readable:  # otherwise the next start does it
            for topic in deletion.topics:
                self._topics.offsets_gone(topic.id)
            self._registry.turn.schedule_append(self._registry)
