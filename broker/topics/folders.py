"""Remove the log folders of deleted topics.

When a deletion is durable, each folder is renamed (set aside), so that a topic of the same name can be created. Then the topic's
checkpoint entries are removed, which the registry notes. The files are deleted later. The next start completes deletions that a crash
interrupted. Folders of unknown topics, which a Kafka broker may have written, are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial

from broker.groups.journal import Journal
from broker.logging.logs import log
from broker.runtime.contain import Contained
from broker.topics.registry import DeletedTopic, TopicRegistry
from storage import LogId, TopicLog, TopicStore

RETRY_SECONDS = 15.0
NAMES_SHOWN_MAX = 5


class TopicFolders:
    """The folders of deleted topics in one store."""

    def __init__(self, topics: TopicRegistry, registry_journal: Journal, store: TopicStore, loop: asyncio.AbstractEventLoop) -> None:
        self._topics = topics
        self._registry_journal = registry_journal
        self._store = store
        self._loop = loop

    def existing_logs(self, delete_delay_ms: int) -> set[LogId]:
        """At the start, list the partitions that have a log; warn about unknown folders."""
        existing = set()
        unknown = []
        for id in self._store.list_existing_logs(delete_delay_ms):
            topic = self._topics.by_name.get(id.name)
            if topic is not None and id.partition < topic.partition_count:
                existing.add(id)
            else:
                unknown.append(str(id))
        if unknown:
            log.warning("folders of unknown topics are left as they are", count=len(unknown), folders=", ".join(unknown[:NAMES_SHOWN_MAX]))
        return existing

    def finish_deletion(self, deleted: DeletedTopic, ids: Collection[LogId], delete_delay_ms: int) -> tuple[list[LogId], OSError | None]:
        """Rename the folders that a crashed broker, or an earlier controller, left.

        Returns the logs whose folders could not be renamed, and the last reason; None: other nodes still have these logs open.
        """
        remaining = []
        problem = None
        for id in ids:
            try:
                self.set_aside(id, deleted.id, None, delete_delay_ms)
            except BlockingIOError:
                remaining.append(id)
            except OSError as error:
                remaining.append(id)
                problem = error
        return remaining, problem

    def free_names(self, ids: Collection[LogId]) -> list[LogId]:
        """The logs without a folder; any other folder is that of a newer topic of this name, which has the checkpoint entries under the name."""
        return [id for id in ids if not self._store.exists(id)]

    def set_aside(self, id: LogId, topic_id: bytes, owned: TopicLog | None, delete_delay_ms: int) -> None:
        """Rename the folder of a deleted topic's partition, if it exists and belongs to that topic. Raises OSError."""
        self._store.set_aside(id, topic_id, owned, id.name in self._topics.by_name, delete_delay_ms)

    def forget(self, topic_id: bytes, ids: Collection[LogId], done: Callable[[], None]) -> None:
        """Remove the topic's checkpoint entries, then report that to the registry and call `done`."""
        self._store.forget_topics(ids, partial(self._checkpoints_removed, topic_id, ids, done))

    def _checkpoints_removed(self, topic_id: bytes, ids: Collection[LogId], done: Callable[[], None], failure: Exception | None) -> None:
        if failure is not None:
            log.warning("checkpoints of a deleted topic stay", reason=str(failure))
            self._loop.call_later(RETRY_SECONDS, Contained(self.forget), topic_id, ids, done)
            return
        if self._registry_journal.writable and self._registry_journal.readable:
            self._topics.folders_gone(topic_id)
            self._registry_journal.turn.call_first_at_turn_end(self._registry_journal)
        done()
