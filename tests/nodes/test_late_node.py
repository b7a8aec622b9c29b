"""A node that was frozen while a topic was deleted and created again takes nothing for the deleted one."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from protocol.batch import build_facts
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.nodes.cluster import OFFSET_FETCH_VERSION, Nodes
from tests.running import Client, wait_until

pytestmark = [pytest.mark.clients, pytest.mark.once]

TOPIC = "orders"
PARTITIONS = 12
ROUNDS = 3
PRODUCE_VERSION, COMMIT_VERSION = 8, 8


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path / "data", 3, "cluster.node.timeout.ms=0")
    try:
        nodes.start()
        yield nodes
    finally:
        nodes.close()


def create(client: Client) -> None:
    topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[])
    wait_until(lambda: client.ask(CreateTopicsRequest([topic], 10_000), 7).topics[0].error_code == 0)


def leaders(client: Client) -> dict[int, int]:
    topic = client.ask(MetadataRequest([MetadataRequestTopic(name=TOPIC)]), 8).topics[0]
    return {partition.partition_index: partition.leader_id for partition in topic.partitions}


def produce(partition: int) -> ProduceRequest:
    batch = build_facts([(b"key", b"value")], 1)
    return ProduceRequest(None, 1, 5_000, [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(partition, batch)])])


def commit(group: str, offset: int) -> OffsetCommitRequest:
    return OffsetCommitRequest(group, -1, "", None, -1, [OffsetCommitRequestTopic(TOPIC, [OffsetCommitRequestPartition(0, offset)])])


def reply_or_none(client: Client, request: Any, version: int) -> Any:
    """The reply; None: the node has closed the connection."""
    try:
        return client.receive(request, version)
    except ConnectionError:
        return None


def test_nothing_is_acknowledged_into_the_log_of_a_topic_that_was_deleted_meanwhile(nodes: Nodes) -> None:
    with nodes.client(1) as client:
        create(client)
        nodes.await_settled()
        led = leaders(client)
    controller = next(id for id in nodes.ids if nodes.status(id)["status.controller"] == "true")
    frozen = next(id for id in nodes.ids if id != controller)
    partition = next(number for number, leader in led.items() if leader == frozen)
    group = next(name for name in (f"group-{number}" for number in range(1_000)) if nodes.coordinator(name) == frozen)
    with nodes.client(frozen) as producer, nodes.client(frozen) as committer, nodes.client(controller) as admin:
        assert producer.ask(produce(partition), PRODUCE_VERSION).responses[0].partition_responses[0].error_code == 0
        assert committer.ask(commit(group, 5), COMMIT_VERSION).topics[0].partitions[0].error_code == 0
        nodes.signal(signal.SIGSTOP, frozen)
        try:
            assert admin.ask(DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=10_000), 5).responses[0].error_code == 0
            create(admin)
            producer.send(produce(partition), PRODUCE_VERSION)
            committer.send(commit(group, 7), COMMIT_VERSION)
        finally:
            nodes.signal(signal.SIGCONT, frozen)
        produced = reply_or_none(producer, produce(partition), PRODUCE_VERSION)
        committed = reply_or_none(committer, commit(group, 7), COMMIT_VERSION)
    acknowledged = produced is not None and produced.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert not acknowledged
    nodes.await_settled()

    def produced_again() -> int:
        with nodes.client(1) as client:
            leader = leaders(client)[partition]
        with nodes.client(leader) as client:
            answer = client.ask(produce(partition), PRODUCE_VERSION).responses[0].partition_responses[0]
        return int(answer.base_offset) if not answer.error_code else -1

    assert wait_until(lambda: produced_again() + 1) == 1, "the log of the new topic begins with the first record that it acknowledged"
    with nodes.client(nodes.coordinator(group)) as client:
        reply = client.ask(OffsetFetchRequest([OffsetFetchRequestGroup(group, None, -1, None)]), OFFSET_FETCH_VERSION)
    offsets = {each.committed_offset for topic in reply.groups[0].topics for each in topic.partitions}
    was_acknowledged = committed is not None and committed.topics[0].partitions[0].error_code == 0
    assert offsets == ({7} if was_acknowledged else set())


@pytest.mark.parametrize("waiting", [1, 5, 60])
def test_clients_that_connected_while_the_node_was_frozen_are_refused_too(nodes: Nodes, waiting: int) -> None:
    """The node accepts all of them within a millisecond or two: each gets an error, or its connection is closed."""
    with nodes.client(1) as client:
        create(client)
    for round in range(ROUNDS):
        nodes.await_settled()
        with nodes.client(1) as client:
            led = leaders(client)
        controller = nodes.controller()
        frozen = next(id for id in nodes.ids if id != controller)
        partition = next(number for number, leader in led.items() if leader == frozen)
        with ExitStack() as stack, nodes.client(controller) as admin:
            producers = [stack.enter_context(nodes.client(frozen)) for _ in range(round)]
            nodes.signal(signal.SIGSTOP, frozen)
            try:
                assert admin.ask(DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=10_000), 5).responses[0].error_code == 0
                create(admin)
                producers += [stack.enter_context(nodes.client(frozen)) for _ in range(waiting)]
                for producer in producers:
                    producer.send(produce(partition), PRODUCE_VERSION)
            finally:
                nodes.signal(signal.SIGCONT, frozen)
            replies = [reply_or_none(producer, produce(partition), PRODUCE_VERSION) for producer in producers]
        acknowledged = [reply for reply in replies if reply is not None and not reply.responses[0].partition_responses[0].error_code]
        nodes.await_settled()
        with nodes.client(1) as client:
            leader = leaders(client)[partition]
        assert nodes.ends(leader, TOPIC, PARTITIONS)[partition] == len(acknowledged), "records were acknowledged into the log of the deleted topic"
