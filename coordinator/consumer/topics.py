"""The topics of the cluster, as groups see them: a view that changes only between the steps of shards, which are told of each change.

So what a group does depends on the order of steps and changes alone. All shards of a node share one view.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from coordinator.consumer.topic_hash import hash_of_topic


class Topic(NamedTuple):
    """`listed`: whether a listing of all topics has it, and thus an expression may match it."""

    name: str
    id: bytes
    partitions: int
    listed: bool = True


class TopicsView:
    """Topics by name and by id. `version` grows with each change, `created_version` becomes it when a topic is created."""

    __slots__ = ("_hashes", "by_id", "by_name", "created_version", "version")

    def __init__(self) -> None:
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self._hashes: dict[bytes, int] = {}  # by id, of the topics that a group has read
        self.version = 0
        self.created_version = 0

    def change(self, present: Iterable[Topic], deleted: Iterable[str]) -> set[str]:
        """Apply topics that were created or are different, after those that were deleted; return the names of all that have changed."""
        changed: set[str] = set()
        self.version += 1
        for name in deleted:
            gone = self.by_name.pop(name, None)
            if gone is not None:
                self._forget(gone)
                changed.add(name)
        for topic in present:
            before = self.by_name.get(topic.name)
            if before == topic:
                continue
            if before is None or before.id != topic.id:
                self.created_version = self.version
            if before is not None:
                self._forget(before)
            self.by_name[topic.name] = topic
            self.by_id[topic.id] = topic
            changed.add(topic.name)
        return changed

    def _forget(self, topic: Topic) -> None:
        del self.by_id[topic.id]
        self._hashes.pop(topic.id, None)

    def hash_of(self, topic: Topic) -> int:
        """That of Kafka's metadata of the topic (`topic_hash.py`)."""
        hash = self._hashes.get(topic.id)
        if hash is None:
            hash = self._hashes[topic.id] = hash_of_topic(topic.id, topic.name, topic.partitions)
        return hash

    def ids_of(self, names: Iterable[str]) -> set[bytes]:
        """The ids of those that exist."""
        by_name = self.by_name
        return {topic.id for name in names if (topic := by_name.get(name)) is not None}
