"""A killed node with much data: the others serve all of it before the node itself is back.

The time is compared with that of a restart of the killed process in the same run, so that a busy machine does not fail the test.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack

import confluent_kafka
import pytest

from protocol.batch import build_facts
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.nodes.cluster import FIND_COORDINATOR_VERSION, METADATA_VERSION, OFFSET_FETCH_VERSION, PRODUCE_VERSION, Nodes
from tests.running import Client
from tests.support.restartable import create_topic

pytestmark = [pytest.mark.alone, pytest.mark.clients]

TOPIC, PARTITIONS, GROUPS = "big", 200, 1_000
RECORD_BYTES, RECORDS = 100_000, 5_000  # 500 MB
OFFSET_COMMIT = 7
KILLS = 3
SERVICE_SECONDS = 30.0


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path_factory.mktemp("nodes") / "data", 3)
    try:
        nodes.start()
        create_topic(nodes.port(1), TOPIC, PARTITIONS)
        nodes.await_settled()
        write_records(nodes)
        commit_offsets(nodes)
        yield nodes
    finally:
        nodes.close()


def group_names() -> set[str]:
    return {f"group-{number}" for number in range(GROUPS)}


def write_records(nodes: Nodes) -> None:
    settings = {"bootstrap.servers": nodes.bootstrap, "linger.ms": 20, "batch.size": 200_000, "queue.buffering.max.kbytes": 200_000}
    producer = confluent_kafka.Producer(settings)
    value = os.urandom(RECORD_BYTES)
    for number in range(RECORDS):
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60.0) == 0


def commit_offsets(nodes: Nodes) -> None:
    topics = [OffsetCommitRequestTopic(TOPIC, [OffsetCommitRequestPartition(partition, 1, -1, "") for partition in range(10)])]
    with ExitStack() as stack:
        clients = {id: stack.enter_context(nodes.client(id)) for id in nodes.ids}
        for id, groups in coordinators(clients[1], group_names()).items():
            for group in groups:
                reply = clients[id].ask(OffsetCommitRequest(group, -1, "", None, topics=topics), OFFSET_COMMIT)
                assert not any(partition.error_code for partition in reply.topics[0].partitions)


def coordinators(client: Client, groups: set[str]) -> dict[int, list[str]]:
    """The groups by coordinator, according to the node of this client; groups without a coordinator are left out."""
    groups_by_node: dict[int, list[str]] = {}
    for coordinator in client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=sorted(groups)), FIND_COORDINATOR_VERSION).coordinators:
        if not coordinator.error_code:
            groups_by_node.setdefault(coordinator.node_id, []).append(coordinator.key)
    return groups_by_node


def leaders(client: Client, partitions: set[int]) -> dict[int, list[int]]:
    partitions_by_leader: dict[int, list[int]] = {}
    (topic,) = client.ask(MetadataRequest([MetadataRequestTopic(name=TOPIC)], False), METADATA_VERSION).topics
    for partition in topic.partitions:
        if partition.partition_index in partitions:
            partitions_by_leader.setdefault(partition.leader_id, []).append(partition.partition_index)
    return partitions_by_leader


def store_records(client: Client, partitions: list[int]) -> set[int]:
    batch = build_facts([(b"key", b"value")], int(time.time() * 1000))
    data = TopicProduceData(TOPIC, [PartitionProduceData(partition, batch) for partition in partitions])
    reply = client.ask(ProduceRequest(None, -1, 1_000, [data]), PRODUCE_VERSION)
    return {response.index for response in reply.responses[0].partition_responses if not response.error_code}


def fetch_offsets(client: Client, groups: list[str]) -> set[str]:
    reply = client.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None) for group in groups]), OFFSET_FETCH_VERSION)
    fetched = {group.group_id: group for group in reply.groups if not group.error_code}
    assert all(len(group.topics[0].partitions) == 10 for group in fetched.values()), "an acknowledged commit is gone"
    return set(fetched)


def seconds_to_serve_all(nodes: Nodes, live: list[int]) -> float:
    """The seconds until these nodes have stored a record in each partition and returned the offsets of each group."""
    began = time.monotonic()
    partitions, groups = set(range(PARTITIONS)), group_names()
    with ExitStack() as stack:
        clients = {id: stack.enter_context(nodes.client(id)) for id in live}
        while partitions or groups:
            assert time.monotonic() < began + SERVICE_SECONDS, (sorted(partitions), sorted(groups))
            if partitions:
                for id, led in leaders(clients[live[0]], partitions).items():
                    partitions -= store_records(clients[id], led) if id in clients else set()
            if groups:
                for id, coordinated in coordinators(clients[live[0]], groups).items():
                    groups -= fetch_offsets(clients[id], coordinated) if id in clients else set()
    return time.monotonic() - began


def seconds_to_restart(nodes: Nodes, id: int) -> float:
    """The seconds from the end of the node's process until its next process served, by the supervisor's log."""
    times = [line["time"] for line in nodes.lines if line["event"] in ("node has ended and is started again", "node serves") and line["node"] == id]
    died, served = (float(time[17:23]) for time in times[-2:])  # seconds of the minute
    return (served - died) % 60


@pytest.mark.parametrize("kill", range(KILLS))
def test_all_partitions_are_served_before_the_killed_node_is_back(nodes: Nodes, kill: int) -> None:
    nodes.await_settled()
    id = nodes.ids[kill % len(nodes.ids)]
    live = [node for node in nodes.ids if node != id]
    calm = seconds_to_serve_all(nodes, list(nodes.ids))
    nodes.kill(id)
    seconds = seconds_to_serve_all(nodes, live)
    nodes.await_settled()
    restart = seconds_to_restart(nodes, id)
    print(f"nodes: all of {PARTITIONS} partitions with 500 MB and {GROUPS} groups served {seconds:.2f} s after a kill;", end=" ")
    print(f"{calm:.2f} s without one, the killed node listens again after {restart:.2f} s")
    assert seconds < restart
