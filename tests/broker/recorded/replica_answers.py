"""Replies of Apache Kafka, with one broker, to reassignment and election tools: `python -m tests.broker.recorded.replica_answers` writes
replica_answers.json, for an authorizer that allows everything and one that allows nothing on the cluster.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from protocol.errors import ErrorCode
from protocol.message import Part
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic
from protocol.messages.alter_replica_log_dirs import AlterReplicaLogDir, AlterReplicaLogDirsRequest, AlterReplicaLogDirTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumRequestPartitionData, DescribeQuorumRequestTopicData
from protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest, ListPartitionReassignmentsTopics
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.recorded.fields import recorded_fields
from tests.broker.recorded.topic_rights import DENYING
from tests.kafka_process import kafka
from tests.oracle import kafka_jars
from tests.running import Client

ANSWERS = Path(__file__).with_name("replica_answers.json")
TOPIC, OTHER = "three", "one"
PREFERRED, UNCLEAN = 0, 1
Question = tuple[Callable[[str], Any], int]  # (the request, made from the path of the data directory; version)


def elect(partitions: dict[str, list[int]] | None, type: int = PREFERRED, timeout_ms: int = 5000) -> Callable[[str], Any]:
    listed = None if partitions is None else [TopicPartitions(name, indices) for name, indices in partitions.items()]
    return lambda folder: ElectLeadersRequest(type, listed, timeout_ms)


def elect_twice(folder: str) -> Any:
    return ElectLeadersRequest(PREFERRED, [TopicPartitions(TOPIC, [0, 0]), TopicPartitions(TOPIC, [1])], 5000)


def reassign(*topics: tuple[str, dict[int, list[int] | None]], change: bool = True) -> Callable[[str], Any]:
    listed = [ReassignableTopic(name, [ReassignablePartition(index, to) for index, to in partitions.items()]) for name, partitions in topics]
    return lambda folder: AlterPartitionReassignmentsRequest(5000, change, listed)


def reassign_twice(folder: str) -> Any:
    partitions = [ReassignablePartition(0, [1]), ReassignablePartition(0, [1])]
    return AlterPartitionReassignmentsRequest(5000, True, [ReassignableTopic(TOPIC, partitions), ReassignableTopic(TOPIC, partitions)])


def reassign_in(ms: int) -> Any:
    return AlterPartitionReassignmentsRequest(ms, True, [ReassignableTopic(TOPIC, [ReassignablePartition(0, [1])])])


def reassigning(partitions: dict[str, list[int]] | None) -> Callable[[str], Any]:
    listed = None if partitions is None else [ListPartitionReassignmentsTopics(name, indices) for name, indices in partitions.items()]
    return lambda folder: ListPartitionReassignmentsRequest(5000, listed)


def move(*dirs: tuple[str, str, list[int]]) -> Callable[[str], Any]:
    """Move replicas to folders; in a path, `{}` stands for the data directory."""
    return lambda folder: AlterReplicaLogDirsRequest(
        [AlterReplicaLogDir(path.format(folder), [AlterReplicaLogDirTopic(topic, indices)]) for path, topic, indices in dirs]
    )


def quorum(*topics: tuple[str, list[int]]) -> Callable[[str], Any]:
    listed = [DescribeQuorumRequestTopicData(name, [DescribeQuorumRequestPartitionData(index) for index in indices]) for name, indices in topics]
    return lambda folder: DescribeQuorumRequest(listed)


QUESTIONS: dict[str, Question] = {
    "elect": (elect({TOPIC: [0, 1, 2], OTHER: [0]}), 2),
    "elect v0": (elect({TOPIC: [0]}), 0),
    "elect v1": (elect({TOPIC: [0]}), 1),
    "elect of all": (elect(None), 2),
    "elect of nothing": (elect({}), 2),
    "elect of no partition": (elect({TOPIC: []}), 2),
    "elect missing partitions": (elect({TOPIC: [0, 3, -1], "nowhere": [0, 1], "": [0]}), 2),
    "elect twice": (elect_twice, 2),
    "elect, unclean": (elect({TOPIC: [0, 7]}, UNCLEAN), 2),
    "elect, unknown election type": (elect({TOPIC: [0], "nowhere": [0]}, 2), 2),
    "elect at once": (elect({TOPIC: [0]}, timeout_ms=0), 2),
    "elect with a negative timeout": (elect({TOPIC: [0]}, timeout_ms=-5), 1),
    "reassign at once": (lambda folder: reassign_in(0), 1),
    "reassigning at once": (lambda folder: ListPartitionReassignmentsRequest(0, [ListPartitionReassignmentsTopics(TOPIC, [0])]), 0),
    "reassign to the current broker": (reassign((TOPIC, {0: [1], 1: [1]}), (OTHER, {0: [1]})), 1),
    "reassign to the current broker, v0": (reassign((TOPIC, {0: [1]})), 0),
    "reassign to another broker": (reassign((TOPIC, {0: [2], 1: [1, 2], 2: [2, 1]})), 1),
    "reassign to no broker": (reassign((TOPIC, {0: []})), 1),
    "reassign to one broker twice": (reassign((TOPIC, {0: [1, 1]})), 1),
    "reassign to invalid broker ids": (reassign((TOPIC, {0: [-1], 1: [2, 2]})), 1),
    "reassign without more copies": (reassign((TOPIC, {0: [1, 2], 1: [1]}), change=False), 1),
    "reassign missing partitions": (reassign((TOPIC, {3: [1], -1: [1], 4: None}), ("nowhere", {0: [1], 1: None})), 1),
    "reassign nothing": (reassign(), 1),
    "reassign no partition": (reassign((TOPIC, {}), ("nowhere", {})), 1),
    "cancel a reassignment": (reassign((TOPIC, {0: None}), (OTHER, {0: None, 1: None})), 1),
    "reassign twice": (reassign_twice, 1),
    "reassigning": (reassigning(None), 0),
    "reassigning some topics": (reassigning({TOPIC: [0, 1], "nowhere": [0], OTHER: []}), 0),
    "move to the current folder": (move(("{}", TOPIC, [0, 1]), ("{}", OTHER, [0])), 2),
    "move to the current folder, v1": (move(("{}", TOPIC, [0])), 1),
    "move by another name": (move(("{}/", TOPIC, [0]), ("{}/../data", TOPIC, [1])), 2),
    "move elsewhere": (move(("/elsewhere", TOPIC, [0])), 2),
    "move to a relative folder": (move(("data", TOPIC, [0]), ("", TOPIC, [1])), 2),
    "move missing partitions": (move(("{}", TOPIC, [0, 3, -1]), ("{}", "nowhere", [0])), 2),
    "move twice": (move(("{}", TOPIC, [0, 0]), ("/elsewhere", TOPIC, [0])), 2),
    "move nothing": (move(), 2),
    "quorum": (quorum(("__cluster_metadata", [0])), 1),
    "quorum v2": (quorum(("__cluster_metadata", [0])), 2),
    "quorum of another partition, v2": (quorum(("__cluster_metadata", [1])), 2),
    "quorum of nothing, v2": (quorum(), 2),
    "quorum v0": (quorum(("__cluster_metadata", [0])), 0),
    "quorum of another partition": (quorum(("__cluster_metadata", [1])), 1),
    "quorum of two partitions": (quorum(("__cluster_metadata", [0, 1])), 1),
    "quorum of another topic": (quorum((TOPIC, [0])), 1),
    "quorum of nothing": (quorum(), 1),
    "quorum of no partition": (quorum(("__cluster_metadata", [])), 1),
}
DENIED = "not authorized"
STANDARD = {  # error messages of Kafka that differ from ours
    "Leader election not needed for topic partition.": ErrorCode.ELECTION_NOT_NEEDED,
    "This server does not host this topic-partition.": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "Cluster authorization failed.": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    DENIED: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}
OFFSETS = ("high_watermark", "log_end_offset", "leader_epoch", "last_fetch_timestamp", "last_caught_up_timestamp")


def plain(value: Any, name: str = "") -> Any:
    if name in ("replica_directory_id", "listeners"):
        return "known"  # values only Kafka has: ids of directories, listeners of controllers
    if isinstance(value, Part):
        return {name: plain(getattr(value, name), name) for name in recorded_fields(type(value)) if name != "throttle_time_ms"}
    if isinstance(value, list):
        return sorted([plain(item) for item in value], key=json.dumps)
    if name in OFFSETS:  # positions in Kafka's metadata log, where our values must differ
        return "known" if value >= 0 else "unknown"
    if isinstance(value, str) and value.endswith("permission."):
        return DENIED  # Kafka's message has the text of an internal object
    return value


def ask(port: int, *, allowed: bool) -> dict[str, Any]:
    with Client(port) as client:
        client.ask(CreateTopicsRequest([CreatableTopic(TOPIC, 3, 1, [], []), CreatableTopic(OTHER, 1, 1, [], [])], 5000, False), 7)
        for _ in range(100):
            topics = client.ask(MetadataRequest([MetadataRequestTopic(name=TOPIC), MetadataRequestTopic(name=OTHER)]), 12).topics
            if all(len(topic.partitions) and not any(partition.error_code for partition in topic.partitions) for topic in topics):
                break
        folder = client.ask(DescribeLogDirsRequest(None), 4).results[0].log_dir if allowed else "/data"
        return {name: plain(client.ask(request(folder), version)) for name, (request, version) in QUESTIONS.items()}


def main() -> None:
    answers = {}
    with kafka() as port:
        answers["allowed"] = ask(port, allowed=True)
    with tempfile.TemporaryDirectory() as classes:
        subprocess.run(["javac", "-cp", f"{kafka_jars()}/*", "-d", classes, *map(str, DENYING)], check=True)
        with kafka(Path(classes), authorizer_class_name="DenyingTopics") as port:
            answers["denied"] = ask(port, allowed=False)
    lines = [
        f"{json.dumps(principal)}: {{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in replies.items()) + "\n}"
        for principal, replies in answers.items()
    ]
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
