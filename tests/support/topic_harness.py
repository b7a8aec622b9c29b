"""The code that answers topic requests, in one thread and step by step, over partitions and a registry whose logs are in
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from broker.api.table import CONFIGS, REPLICAS, TOPICS
from broker.net.long_requests import LongRequests
from broker.runtime.node import Node
from broker.security.authorizer import Authorizer
from broker.settings.load import load_config
from broker.topics.deletions import Deletions
from broker.topics.partition import Partition
from broker.topics.registry import Topic, TopicRegistry
from broker.topics.setting_sources import SettingSources
from broker.topics.settings import log_settings
from protocol.messages.metadata import MetadataRequest
from storage import AppendFailed
from tests.support.group_harness import GroupHarness
from tests.support.memory_logs import MemoryTopicLog, MemoryTopicStore


class EmptyPartitions:
    """Finds every partition of every topic, open and empty. `calls` records the topic changes that handlers report."""

    def __init__(self, topics: TopicRegistry) -> None:
        self._topics = topics
        self.calls: list[tuple[str, str]] = []
        self.epoch_changed: Any = None

    def of_topic(self, topic: Topic) -> list[Partition]:
        partitions = [Partition(topic, index, log_settings({}, {}), self) for index in range(topic.partition_count)]
        for partition in partitions:
            partition.use_log(MemoryTopicLog(partition.id))
        return partitions

    def append_failed(self, partition: Partition, failure: AppendFailed) -> None:
        raise failure

    def find(self, name: str, index: int) -> Any:
        topic = self._topics.by_name.get(name)
        return self.of_topic(topic)[index] if topic is not None and 0 <= index < topic.partition_count else None

    def created(self, topic: Topic) -> None:
        self.calls.append(("created", topic.name))

    def partitions_added(self, topic: Topic) -> None:
        self.calls.append((f"grown to {topic.partition_count}", topic.name))

    def altered(self, topic: Topic) -> None:
        self.calls.append(("altered", topic.name))

    def deleted(self, topic: Topic) -> None:
        self.calls.append(("deleted", topic.name))


class TopicHarness(GroupHarness):
    def __init__(
        self, authorizer: Authorizer, topics: dict[str, int], partitions: Callable[[Any], Any] | None = None, settings: Sequence[str] = ()
    ) -> None:
        super().__init__(authorizer, topics=topics)
        served: Any = EmptyPartitions(self.topics) if partitions is None else partitions(self)
        self.partitions = served
        loop: Any = self.loop
        node = Node(1, "cluster")
        parts: Any = SimpleNamespace(
            long_requests=LongRequests(self.turn),
            leaders=None,
            status=dict,
            drain=None,
            config=replace(load_config(settings=settings), num_partitions=1, partitions_max=1000),
            node=node,
            clock=self.clock,
            authorizer=authorizer,
            topics=self.topics,
            registry_journal=self.registry,
            shards=self.shards,
            setting_sources=SettingSources(load_config(settings=settings), node.id, "data"),
            partitions=self.partitions,
            deletions=Deletions(self.topics, self.registry, self.shards, served, loop, lambda: 0.0),
            topic_store=MemoryTopicStore(),
            data_path="data",
        )
        self.dispatch.add_routes(*[module.route(parts) for module in (*TOPICS, *REPLICAS, *CONFIGS)])
        in_steps: Any = self.dispatch.routes[MetadataRequest.API_KEY].handle
        self.metadata = in_steps.args[0]
