"""Nodes on a full disk: no process ends, reads go on, and nothing acknowledged is lost."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from protocol.batch import build_facts
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.nodes.cluster import Nodes
from tests.running import start, wait_until
from tests.support.small_disk import fill, mounted

pytestmark = [pytest.mark.clients, pytest.mark.once]

TOPIC = "orders"
PARTITIONS = 6
ENDED = ("node has ended and is started again", "node does not answer and is killed")


def create(nodes: Nodes, node: int, name: str) -> int:
    topic = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[])
    with nodes.client(node) as client:
        return int(client.ask(CreateTopicsRequest([topic], 5_000), 7).topics[0].error_code)


def leaders(nodes: Nodes) -> dict[int, int]:
    with nodes.client(1) as client:
        topic = client.ask(MetadataRequest([MetadataRequestTopic(name=TOPIC)]), 8).topics[0]
    return {partition.partition_index: partition.leader_id for partition in topic.partitions}


def produce(nodes: Nodes, leader: int, partition: int) -> tuple[int, int]:
    batch = build_facts([(b"key", bytes(2_000))], 1)
    request = ProduceRequest(None, 1, 5_000, [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(partition, batch)])])
    with nodes.client(leader) as client:
        reply = client.ask(request, 8).responses[0].partition_responses[0]
    return int(reply.error_code), reply.base_offset


def readable(nodes: Nodes, leader: int, partition: int) -> int:
    """The high watermark, with the first record read."""
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=TOPIC, partitions=[FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)])])
    with nodes.client(leader) as client:
        reply = client.ask(request, 8).responses[0].partitions[0]
    assert (reply.error_code, bool(reply.records)) == (0, True)
    return int(reply.high_watermark)


def test_a_full_disk_ends_no_node_and_loses_nothing(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", 24 << 10) as disk:
        nodes = Nodes(disk / "data", 3)
        try:
            nodes.start()
            assert create(nodes, 1, TOPIC) == 0
            nodes.await_settled()
            owners = leaders(nodes)
            acknowledged: dict[int, int] = {}
            for partition, leader in owners.items():
                wait_until(lambda partition=partition, leader=leader: produce(nodes, leader, partition)[0] == 0)  # type: ignore[misc]
                acknowledged[partition] = readable(nodes, leader, partition)
            filler = fill(disk)
            until = time.monotonic() + 3.0
            refused = set()
            while time.monotonic() < until:
                for partition, leader in owners.items():
                    error, offset = produce(nodes, leader, partition)
                    if error:
                        refused.add(error)
                    else:
                        acknowledged[partition] = offset + 1
                    assert readable(nodes, leader, partition) >= acknowledged[partition]
            assert refused == {ErrorCode.KAFKA_STORAGE_ERROR}
            wait_until(lambda: create(nodes, 2, f"topic-{time.monotonic_ns()}") == ErrorCode.KAFKA_STORAGE_ERROR)
            assert [line["event"] for line in nodes.lines if line["event"] in ENDED] == []
            filler.unlink()
            for partition, end in acknowledged.items():
                wait_until(lambda partition=partition: produce(nodes, leaders(nodes)[partition], partition)[0] == 0)  # type: ignore[misc]
                assert readable(nodes, leaders(nodes)[partition], partition) > end
            nodes.stop()
        finally:
            nodes.close()


def test_nodes_say_what_does_not_fit_when_the_disk_is_full_at_their_first_start(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", 2 << 10) as disk:
        process = start("--nodes", "2", "--data", str(disk / "data"), "--listen", "127.0.0.1:0", "--set", "log.level=error")
        output, errors = process.communicate(timeout=30)
        assert process.returncode != 0
        assert "log-owners cannot be allocated: No space left on device" in errors, (output, errors)
