"""Topics that are deleted, and what of them must go: their folders, and the offsets that groups committed for them.

Nothing goes before the deletion is durable; of the folders `partitions.py` takes care. The registry remembers a deletion
until folders and offsets are gone, so that a crash in between leaves nothing behind. A partition of groups that does not
serve just then forgets the offsets as soon as it does; one whose log refuses forgets them again when it serves again.
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

# How long forgetting keeps the loop at a time.
SLICE_SECONDS = 0.005
ALL_COMMITS = (1 << 63) - 1
# When to look again at a registry that cannot be read.
LOOK_AGAIN_SECONDS = 1.0


def nobody(error: int) -> None:
    """Nobody waits for the end of this deletion."""


class Deletion:
    """Topics that one request deletes: a held reply of the registry, and then whose offsets are still to be forgotten where."""

    __slots__ = ("_deletions", "defective", "done", "moments", "topics", "waiting")

    def __init__(self, deletions: Deletions, topics: list[Topic], moments: dict[str, int], done: Callable[[int], None]) -> None:
        self._deletions = deletions
        self.topics = topics
        self.moments = moments  # of deletion, by name
        self.waiting: set[GroupJournal] = set()
        self.defective: set[GroupJournal] = set()  # of these: not tried again before the next start
        self.done = done

    def release(self) -> None:
        self._deletions.begin(self)

    def fail(self, error: int) -> None:
        self._deletions.failed(self, error)


class Forgotten:
    """Notes of one deletion's tombstones in one partition that they are in its log."""

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
    """Deletes topics, and sees to what they leave behind."""

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
        """`done` is told 0 when the topics are gone for good, offsets included as far as they are served; or why they are not."""
        now = self._registry.wall
        topics = [self._topics.delete(name, now) for name in names]
        for topic in topics:
            self._partitions.deleted(topic)
        moments = {topic.name: now for topic in topics}
        self._registry.reply(Deletion(self, topics, moments, done))

    def resume(self, deleted: Iterable[DeletedTopic]) -> None:
        """After a start: what was deleted before, perhaps without its offsets. Partitions come to it as they are loaded."""
        moments: dict[str, int] = {}
        topics = []
        for topic in deleted:
            moments[topic.name] = max(topic.deleted_ms, moments.get(topic.name, 0))
            topics.append(Topic(topic.name, topic.id, topic.partitions, 0))
        if topics:
            self.begin(Deletion(self, topics, moments, nobody))

    # The registry's log has it, or has not.

    def failed(self, deletion: Deletion, error: int) -> None:
        """Refused, or only late: what has become of it is seen once the registry has dealt with that."""
        self._loop.call_soon(Contained(self._look_again), deletion)
        deletion.done(error)

    def _look_again(self, deletion: Deletion) -> None:
        """A late append may yet come true; after a refusal the topics are back, but for those that an earlier batch deleted."""
        if not self._registry.readable:
            self._loop.call_later(LOOK_AGAIN_SECONDS, Contained(self._look_again), deletion)
            return
        gone = [topic for topic in deletion.topics if topic.id in self._topics.deleted]
        moments = {topic.name: deletion.moments[topic.name] for topic in gone}
        if gone:
            self._registry.reply(Deletion(self, gone, moments, nobody))

    # Offsets.

    def begin(self, deletion: Deletion) -> None:
        deletion.waiting = set(self._shards.journals)
        self._open.append(deletion)
        self._queue.append((deletion, list(self._shards.journals)))
        if len(self._queue) == 1:
            self._work()

    def _work(self) -> None:
        """One slice: each deletion goes once over all partitions, and then its reply leaves."""
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
        """An exception of ours ended a slice; what raised is off the list by then."""
        self._loop.call_soon(Contained(self._work, self._go_on))

    def _served(self, journal: GroupJournal) -> None:
        """It is loaded, perhaps again: nobody has been answered from it yet."""
        for deletion in list(self._open):
            if journal in deletion.waiting and journal not in deletion.defective:
                self._forget(deletion, journal)

    def _forget(self, deletion: Deletion, journal: GroupJournal) -> None:
        try:
            journal.shard.forget_topics(self._up_to(deletion), journal.now, journal.wall)
        except Exception as error:
            defect("offsets of deleted topics could not be forgotten", error, log=journal.name)
            deletion.defective.add(journal)
            journal.broken()
            return
        journal.reply(Forgotten(self, deletion, journal))

    def _up_to(self, deletion: Deletion) -> dict[str, int]:
        """By topic the commit time up to which its offsets go: all of them, unless another topic of that name was created since.

        The clock may have been set back between the deletion and the creation: what was committed behind that stays.
        """
        by_name = self._topics.by_name
        return {
            name: min(moment, by_name[name].created_ms - 1) if name in by_name else ALL_COMMITS for name, moment in deletion.moments.items()
        }

    def not_yet(self, forgotten: Forgotten) -> None:
        """Its append is only late; or it was refused, and then the partition begins anew from its log and forgets again."""

        def wait_on() -> None:
            if not forgotten.journal.refusal:
                forgotten.journal.reply(forgotten)

        self._loop.call_soon(Contained(wait_on))

    def forgotten(self, deletion: Deletion, journal: GroupJournal) -> None:
        deletion.waiting.discard(journal)
        if deletion.waiting or deletion not in self._open:
            return
        self._open.remove(deletion)
        if self._registry.writable and self._registry.readable:  # otherwise the next start does it
            for topic in deletion.topics:
                self._topics.offsets_gone(topic.id)
            self._registry.turn.schedule_append(self._registry)
