"""The topics of the cluster, as groups see them: a view that only a step of the shard changes (`topics_changed`).

So what a group does depends on its steps alone, and a shard that is replayed sees the same topics at the same step.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Topic(NamedTuple):
    """A topic. `hash` is that of Kafka's metadata of the topic (`topic_hash.py`)."""

    name: str
    id: bytes
    partitions: int
    hash: int


class TopicsView:
    """Topics by name and by id. `version` grows with each change, `created_version` becomes it when a topic is created."""

    __slots__ = ("by_id", "by_name", "created_version", "version")

    def __init__(self) -> None:
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self.version = 0
        self.created_version = 0

    def change(self, present: Iterable[Topic], deleted: Iterable[str]) -> set[str]:
        """Apply topics that were created or are different, after those that were deleted; return the names of all that have changed."""
        changed: set[str] = set()
        self.version += 1
        for name in deleted:
            gone = self.by_name.pop(name, None)
            if gone is not None:
                del self.by_id[gone.id]
                changed.add(name)
        for topic in present:
            before = self.by_name.get(topic.name)
            if before == topic:
                continue
            if before is None or before.id != topic.id:
                self.created_version = self.version
            if before is not None:
                del self.by_id[before.id]
            self.by_name[topic.name] = topic
            self.by_id[topic.id] = topic
            changed.add(topic.name)
        return changed

    def ids_of(self, names: Iterable[str]) -> set[bytes]:
        """The ids of those that exist."""
        by_name = self.by_name
        return {topic.id for name in names if (topic := by_name.get(name)) is not None}
