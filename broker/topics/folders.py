"""What becomes of the folders of topics that are no more.

When a deletion is durable each folder is renamed at once, as Kafka does, so that a topic of the same name may begin anew;
checkpoints forget its logs; the registry forgets the topic; and after a while the files go. Whatever of this a dead
broker left undone is done at the next start. What belongs to no topic of ours, for a Kafka wrote it, is left as it is.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection, Sequence
from functools import partial

from broker.groups.journal import Journal
from broker.internal_topics import CONSUMER_OFFSETS, NOTES_LOG, REGISTRY_LOG
from broker.logging.logs import get_logger
from broker.runtime.contain import Contained
from broker.stores.local import LocalStore, id_text, log_id_of
from broker.stores.owned import LocalLog
from broker.topics.registry import DeletedTopic, Topics
from storage import LogId
from storage.flush import read_topic_id
from storage.removal import folders_set_aside, remove_folder, set_folder_aside

log = get_logger("broker.topics")

RETRY_SECONDS = 15.0
NAMES_TOLD_MAX = 5


class TopicFolders:
    """Those of one data directory."""

    def __init__(self, topics: Topics, registry: Journal, store: LocalStore, loop: asyncio.AbstractEventLoop) -> None:
        self._topics = topics
        self._registry = registry
        self._store = store
        self._disk = store.disk
        self._loop = loop

    def take_stock(self, delete_delay_ms: int) -> set[LogId]:
        """At the start: which partitions of our topics have a folder."""
        path = self._store.directory.path
        self.remove_later(folders_set_aside(self._disk, path), delete_delay_ms)
        found = set()
        unknown = []
        for name in self._disk.list(path):
            id = log_id_of(name)
            if id is None or id.name in (CONSUMER_OFFSETS, NOTES_LOG, REGISTRY_LOG):
                continue
            topic = self._topics.by_name.get(id.name)
            if topic is not None and id.partition < topic.partitions:
                found.add(id)
            else:
                unknown.append(name)
        if unknown:
            shown = ", ".join(unknown[:NAMES_TOLD_MAX])
            log.warning("folders of no topic that is known are left as they are", count=len(unknown), folders=shown)
        return found

    def finish_deletion(self, deleted: DeletedTopic, delete_delay_ms: int) -> list[LogId]:
        """What a dead broker did not come to: its folders are set aside, and those partitions told whose names are free.

        Not so where another topic of the same name has a folder: it began when checkpoints had forgotten this one. Raises
        OSError.
        """
        free = []
        for index in range(deleted.partitions):
            id = LogId(deleted.name, index)
            self.set_aside(id, deleted.id, None, delete_delay_ms)
            if not self._disk.exists(self._store.directory.log_folder(*id)):
                free.append(id)
        return free

    def set_aside(self, id: LogId, topic_id: bytes, owned: LocalLog | None, delete_delay_ms: int) -> None:
        """Rename the folder of a deleted topic's partition, if there is one that is its own. Raises OSError."""
        if self._store.owned(id) is not owned:
            return  # the name is another log's, which opened its folder since
        folder = self._store.directory.log_folder(*id)
        moved = ""
        if owned is not None:
            moved = owned.log.set_folder_aside(uuid.uuid4().hex)
            self._store.drop(id)
        elif self._disk.exists(folder) and self._belongs(folder, id.name, topic_id):
            moved = set_folder_aside(self._disk, folder, uuid.uuid4().hex)
        if moved:
            self.remove_later([moved], delete_delay_ms)

    def _belongs(self, folder: str, name: str, topic_id: bytes) -> bool:
        found = read_topic_id(self._disk, folder)
        return found == id_text(topic_id) or (not found and name not in self._topics.by_name)

    def forget(self, topic_id: bytes, ids: Collection[LogId], done: Callable[[], None]) -> None:
        """No folder has a name of the topic any more; when `done` is called, no checkpoint names it either."""
        self._store.clerk.submit(partial(self._forget, ids), Contained(partial(self._forgotten, topic_id, ids, done)))

    def _forget(self, ids: Collection[LogId]) -> None:
        directory = self._store.directory
        self._disk.sync_folder(directory.path)
        directory.forget(ids)

    def _forgotten(self, topic_id: bytes, ids: Collection[LogId], done: Callable[[], None], result: object) -> None:
        if isinstance(result, Exception):
            log.warning("checkpoints of a deleted topic stay", reason=str(result))
            self._loop.call_later(RETRY_SECONDS, Contained(self.forget), topic_id, ids, done)
            return
        if self._registry.writable and self._registry.readable:
            self._topics.folders_gone(topic_id)
            self._registry.turn.touch(self._registry)
        done()

    def remove_later(self, folders: Sequence[str], delay_ms: int) -> None:
        """Their files are given back when so much time has passed."""
        if folders:
            self._loop.call_later(delay_ms / 1000, Contained(self._remove), folders)

    def _remove(self, folders: Sequence[str]) -> None:
        self._store.topic_workers.submit(partial(self._remove_all, folders), self._removed)

    def _remove_all(self, folders: Sequence[str]) -> list[str]:
        """Those that stayed, in a worker thread."""
        stayed = []
        for folder in folders:
            try:
                remove_folder(self._disk, folder)
            except OSError as error:
                log.warning("folder of a deleted topic stays", folder=folder, reason=str(error))
                stayed.append(folder)
        return stayed

    def _removed(self, stayed: list[str]) -> None:
        if stayed and not isinstance(stayed, Exception):
            self._loop.call_later(RETRY_SECONDS, Contained(self._remove), stayed)
