"""Who may not do something with topics is refused as by Kafka: its answers stand in topic_rights.json."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from broker.authorizer import Operation, Resource
from broker.config import load_config
from broker.deletions import Deletions
from broker.handlers.config_changes import ConfigChangeHandlers
from broker.handlers.configs import DescribeConfigsHandlers
from broker.handlers.delete_records import RecordDeletionHandlers
from broker.handlers.log_dirs import LogDirHandlers
from broker.handlers.metadata import MetadataHandlers
from broker.handlers.serving import Serving
from broker.handlers.topic_changes import DeletionHandlers
from broker.handlers.topic_partitions import TopicPartitionHandlers
from broker.handlers.topics import TopicHandlers
from broker.journal import Journal
from broker.node import Node
from broker.setting_sources import SettingSources
from broker.topics import CONSUMER_OFFSETS, Topic, Topics
from tests.broker.group_desk import LATE_MS, Desk, MemoryLog, Peer
from tests.broker.topic_rights import ANSWERS, QUESTIONS, TOPICS, plain

KAFKAS = json.loads(ANSWERS.read_text())


class DenyingTopics:
    """As DenyingTopics.java."""

    open = False

    def allows(self, call: Any, operation: Operation, resource: int, name: str) -> bool:
        if resource == Resource.CLUSTER:
            return operation == Operation.CLUSTER_ACTION
        return not (name.startswith("no-") and f"-{operation.name.lower()}-" in name)


class EmptyPartitions:
    """Of every topic all partitions, open and with nothing in them."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def of(self, topic: Topic) -> list[Any]:
        settings = SimpleNamespace(delete=True)
        return [
            SimpleNamespace(
                topic=topic, index=index, error=0, opened=True, leader_epoch=0, start_offset=0, end_offset=0, settings=settings
            )
            for index in range(topic.partitions)
        ]

    def find(self, name: str, index: int) -> Any:
        topic = self._topics.by_name.get(name)
        return self.of(topic)[index] if topic is not None and 0 <= index < topic.partitions else None

    def created(self, topic: Topic) -> None: ...

    def deleted(self, topic: Topic) -> None: ...


@pytest.fixture
def desk() -> Desk:
    desk = Desk(DenyingTopics(), topics=dict.fromkeys(TOPICS, 2))
    topics = desk.topics
    registry = Journal("__topics", topics, MemoryLog(), desk.turn, 1 << 20, LATE_MS)
    partitions: Any = EmptyPartitions(topics)
    config = load_config()
    loop: Any = desk.loop
    serving = Serving(
        Node(1, "cluster"),
        topics,
        registry,
        partitions,
        Deletions(topics, registry, desk.shards, partitions, loop, lambda: 0.0),
        SettingSources(config, 1, "data"),
        DenyingTopics(),
        1,
        1000,
    )
    clerk: Any = None
    desk.dispatch.serve(
        *MetadataHandlers(serving, True).routes(),
        *TopicHandlers(serving).routes(),
        *DeletionHandlers(serving).routes(),
        *RecordDeletionHandlers(serving, clerk, lambda starts: None).routes(),
        *TopicPartitionHandlers(serving).routes(),
        *LogDirHandlers(serving, "data").routes(),
        *DescribeConfigsHandlers(serving, "info").routes(),
        *ConfigChangeHandlers(serving).routes(),
    )
    return desk


@pytest.mark.parametrize("name", QUESTIONS)
def test_who_may_not_is_refused_as_by_kafka(desk: Desk, name: str) -> None:
    ids = {topic.name: topic.id for topic in desk.topics.by_name.values()}
    request, version = QUESTIONS[name]
    ours = plain(Peer(desk).ask(request(ids), version), ids)
    if "topics" in ours:  # Kafka has no topic of groups before the first group
        ours["topics"] = [one for one in ours["topics"] if one["name"] != CONSUMER_OFFSETS]
    if name == "create":  # what was only validated has an id in Kafka
        for one in ours["topics"]:
            one["topic_id"] = "an id" if one["error_code"] == 0 else one["topic_id"]
    assert json.loads(json.dumps(ours)) == KAFKAS[name]
