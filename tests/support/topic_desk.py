"""Everything that answers for topics, in one thread that does nothing until told: over partitions without logs and a registry whose
log is in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from broker.api.config_changes import ConfigChangeHandlers
from broker.api.configs import DescribeConfigsHandlers
from broker.api.delete_records import RecordDeletionHandlers
from broker.api.log_dirs import LogDirHandlers
from broker.api.metadata import MetadataHandlers
from broker.api.replicas import ReplicaHandlers
from broker.api.serving import Serving
from broker.api.topic_changes import DeletionHandlers
from broker.api.topic_partitions import TopicPartitionHandlers
from broker.api.topics import TopicHandlers
from broker.groups.journal import Journal
from broker.runtime.node import Node
from broker.security.authorizer import Authorizer
from broker.settings.config import load_config
from broker.topics.deletions import Deletions
from broker.topics.registry import Topic, Topics
from broker.topics.setting_sources import SettingSources
from tests.support.group_desk import LATE_MS, Desk, MemoryLog


class EmptyPartitions:
    """Of every topic all partitions, open and with nothing in them; `told` is what they heard."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self.told: list[tuple[str, str]] = []
        self.epoch_changed: Any = None

    def of(self, topic: Topic) -> list[Any]:
        settings = SimpleNamespace(delete=True)
        return [
            SimpleNamespace(
                id=(topic.name, index),
                topic=topic,
                index=index,
                error=0,
                opened=True,
                leader_epoch=0,
                start_offset=0,
                end_offset=0,
                settings=settings,
            )
            for index in range(topic.partitions)
        ]

    def find(self, name: str, index: int) -> Any:
        topic = self._topics.by_name.get(name)
        return self.of(topic)[index] if topic is not None and 0 <= index < topic.partitions else None

    def created(self, topic: Topic) -> None:
        self.told.append(("created", topic.name))

    def grown(self, topic: Topic, before: int) -> None:
        self.told.append((f"grown from {before} to {topic.partitions}", topic.name))

    def altered(self, topic: Topic) -> None:
        self.told.append(("altered", topic.name))

    def deleted(self, topic: Topic) -> None:
        self.told.append(("deleted", topic.name))


class TopicDesk(Desk):
    def __init__(self, authorizer: Authorizer, topics: dict[str, int], partitions: Callable[[TopicDesk], Any] | None = None) -> None:
        super().__init__(authorizer, topics=topics)
        self.registry_log = MemoryLog()
        self.registry = Journal("__topics", self.topics, self.registry_log, self.turn, LATE_MS)
        self.partitions: Any = EmptyPartitions(self.topics) if partitions is None else partitions(self)
        partitions = self.partitions
        loop: Any = self.loop
        clerk: Any = None
        log_starts: Any = SimpleNamespace(log_starts={})
        serving = Serving(
            Node(1, "cluster"),
            self.topics,
            self.registry,
            partitions,
            Deletions(self.topics, self.registry, self.shards, partitions, loop, lambda: 0.0),
            SettingSources(load_config(), 1, "data"),
            authorizer,
            1,
            1000,
        )
        self.serving = serving
        self.metadata = MetadataHandlers(serving, True)
        self.dispatch.serve(
            *self.metadata.routes(),
            *TopicHandlers(serving).routes(),
            *DeletionHandlers(serving).routes(),
            *RecordDeletionHandlers(serving, clerk, log_starts).routes(),
            *TopicPartitionHandlers(serving).routes(),
            *LogDirHandlers(serving, "data").routes(),
            *ReplicaHandlers(serving, "data", self.clock).routes(),
            *DescribeConfigsHandlers(serving, "info").routes(),
            *ConfigChangeHandlers(serving).routes(),
        )
