"""Unauthorized topic requests, and the replies of Apache Kafka: `python -m tests.broker.recorded.topic_rights` writes topic_rights.json.

Rights are in the names: "no-create-x" may not be created. No client has rights to the cluster.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from protocol.message import Part
from protocol.messages import alter_configs, incremental_alter_configs
from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.recorded.extremes import write_answers
from tests.broker.recorded.fields import recorded_fields
from tests.kafka_process import kafka
from tests.oracle import kafka_jars
from tests.running import Client

ANSWERS = Path(__file__).with_name("topic_rights.json")
DENYING = (Path(__file__).parents[2] / "clients" / "java" / "Denying.java", Path(__file__).with_name("DenyingTopics.java"))
LATER_SECONDS = 0.3
NO_ID = bytes(16)
TOPICS = (
    "open",
    "no-describe-x",
    "no-delete-x",
    "no-describe-delete-x",
    "no-alter-x",
    "no-describe_configs-x",
    "no-alter_configs-x",
)
Ids = dict[str, bytes]
Question = tuple[Callable[[Ids], Any], int]


def create(*names: str, validate: bool = False) -> Any:
    return CreateTopicsRequest([CreatableTopic(name, 2, 1, [], []) for name in names], 5000, validate)


def by_id(ids: Ids, *names: str) -> list[DeleteTopicState]:
    return [DeleteTopicState(None, ids[name]) for name in names]


def alter(type: int, name: str, validate: bool = True) -> Any:
    settings = [alter_configs.AlterableConfig("segment.ms", "5000")]
    return AlterConfigsRequest([alter_configs.AlterConfigsResource(type, name, settings)], validate)


def change(type: int, name: str, key: str = "segment.ms", value: str = "5000") -> Any:
    settings = [incremental_alter_configs.AlterableConfig(key, 0, value)]
    return IncrementalAlterConfigsRequest([incremental_alter_configs.AlterConfigsResource(type, name, settings)], True)


def configs(*resources: tuple[int, str]) -> Any:
    return DescribeConfigsRequest([DescribeConfigsResource(type, name, ["segment.ms", "consumer.session.timeout.ms"]) for type, name in resources])


def metadata(*names: str, create: bool = False, operations: bool = False) -> Any:
    return MetadataRequest([MetadataRequestTopic(name=name) for name in names], create, False, operations)


QUESTIONS: dict[str, Question] = {
    "create": (lambda ids: create("no-create-new", "may", "no-describe_configs-new", validate=True), 7),
    "create, twice": (lambda ids: create("no-create-new", "no-create-new"), 7),
    "create existing topics": (lambda ids: create("no-create-x", "open"), 7),
    "grow": (
        lambda ids: CreatePartitionsRequest([CreatePartitionsTopic(name, 1, None) for name in ("no-alter-x", "open", "no-alter-nowhere")], 5000),
        3,
    ),
    "records": (
        lambda ids: DeleteRecordsRequest(
            [DeleteRecordsTopic(name, [DeleteRecordsPartition(0, 0), DeleteRecordsPartition(9, 0)]) for name in ("no-delete-x", "open", "no-delete-")]
        ),
        2,
    ),
    "describe": (lambda ids: DescribeTopicPartitionsRequest([TopicRequest("open"), TopicRequest("no-describe-x"), TopicRequest("no-describe-")]), 0),
    "describe all": (lambda ids: DescribeTopicPartitionsRequest([]), 0),
    "describe one with few rights": (lambda ids: DescribeTopicPartitionsRequest([TopicRequest("no-alter_configs-x")]), 0),
    "log dirs": (lambda ids: DescribeLogDirsRequest(None), 4),
    "log dirs v1": (lambda ids: DescribeLogDirsRequest(None), 1),
    "configs": (
        lambda ids: configs((2, "no-describe_configs-x"), (2, "open"), (2, "no-describe_configs-"), (4, "1"), (8, "1"), (32, "no-describe_configs-g")),
        4,
    ),
    "configs of nothing": (lambda ids: configs((3, "x"), (4, "x"), (2, "")), 4),
    "alter a topic": (lambda ids: alter(2, "no-alter_configs-x"), 2),
    "alter a missing one": (lambda ids: alter(2, "no-alter_configs-nowhere"), 2),
    "alter the broker": (lambda ids: alter(4, "1"), 2),
    "alter a group": (lambda ids: change(32, "no-alter_configs-g", "consumer.session.timeout.ms", "45000"), 1),
    "change a topic": (lambda ids: change(2, "no-alter_configs-x"), 1),
    "change a topic, wrong": (lambda ids: change(2, "no-alter_configs-x", "nope"), 1),
    "change the broker": (lambda ids: change(4, "1", "log.cleaner.threads", "1"), 1),
    "change another broker": (lambda ids: change(4, "7", "log.cleaner.threads", "1"), 1),
    "metadata": (lambda ids: metadata("open", "no-describe-x", "no-describe-nowhere", "no-create-nowhere", operations=True), 12),
    "metadata, to be created": (lambda ids: metadata("no-describe-nowhere", "no-create-nowhere", create=True), 12),
    "metadata of all": (lambda ids: MetadataRequest(None), 12),
    "metadata by id": (lambda ids: MetadataRequest([MetadataRequestTopic(ids["no-describe-x"], None), MetadataRequestTopic(ids["open"], None)]), 12),
    "metadata with the cluster's rights": (lambda ids: MetadataRequest([], False, True), 10),
    "cluster": (lambda ids: DescribeClusterRequest(True), 1),
    "delete by name": (
        lambda ids: DeleteTopicsRequest(
            [DeleteTopicState(name, NO_ID) for name in ("no-delete-x", "no-describe-delete-x", "no-delete-nowhere", "no-describe-nowhere", "nowhere")], [], 5000
        ),
        6,
    ),
    "delete by name, v3": (lambda ids: DeleteTopicsRequest([], ["no-delete-x", "no-describe-delete-x", "no-delete-nowhere"], 5000), 3),
    "delete by id": (lambda ids: DeleteTopicsRequest(by_id(ids, "no-delete-x", "no-describe-delete-x"), [], 5000), 6),
    "delete topics that must not be described": (lambda ids: DeleteTopicsRequest(by_id(ids, "no-describe-x"), [], 5000), 6),
}


def plain(value: Any, ids: Ids) -> Any:
    if isinstance(value, Part):
        left_out = ("throttle_time_ms", "error_message", "port", "host", "cluster_id", "configs")
        return {name: plain(getattr(value, name), ids) for name in recorded_fields(type(value)) if name not in left_out}
    if isinstance(value, list):
        return sorted([plain(item, ids) for item in value], key=json.dumps)
    if isinstance(value, bytes):
        return next((name for name, id in ids.items() if id == value), "an id" if value != NO_ID else "no id")
    return value


def main() -> None:
    with tempfile.TemporaryDirectory() as classes:
        subprocess.run(["javac", "-cp", f"{kafka_jars()}/*", "-d", classes, *map(str, DENYING)], check=True)
        with kafka(Path(classes), authorizer_class_name="DenyingTopics") as port, Client(port) as client:
            created = client.ask(create(*TOPICS), 7).topics
            ids = {topic.name: topic.topic_id for topic in created}
            answers = {}
            for name, (request, version) in QUESTIONS.items():
                time.sleep(LATER_SECONDS)
                answers[name] = plain(client.ask(request(ids), version), ids)
    write_answers(ANSWERS, answers)


if __name__ == "__main__":
    main()
