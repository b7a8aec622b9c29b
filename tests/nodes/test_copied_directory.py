"""A copy of a directory, made while its nodes run, is another cluster: its nodes and those of the original do not meet."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.messages.describe_cluster import DescribeClusterRequest
from tests.nodes.cluster import Nodes, ServiceProbe
from tests.support.restartable import create_topic

pytestmark = pytest.mark.once

TOPIC, PARTITIONS = "orders", 6
DESCRIBE_CLUSTER = 1


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[Nodes, Nodes]]:
    both = Nodes(tmp_path / "data", 2), Nodes(tmp_path / "copy", 2)
    yield both
    for nodes in both:
        nodes.close()


def store(nodes: Nodes) -> None:
    """Produce one record to each partition."""
    ServiceProbe(nodes, TOPIC, PARTITIONS).seconds(())


def ports(nodes: Nodes, node: int) -> list[int]:
    with nodes.client(node) as client:
        return [broker.port for broker in client.ask(DescribeClusterRequest(), DESCRIBE_CLUSTER).brokers]


def ends(nodes: Nodes) -> list[int]:
    led = [nodes.ends(id, TOPIC, PARTITIONS) for id in nodes.ids]
    return [max(offsets.get(partition, -1) for offsets in led) for partition in range(PARTITIONS)]


def test_nodes_over_a_copy_are_a_cluster_of_their_own(clusters: tuple[Nodes, Nodes]) -> None:
    original, copy = clusters
    original.start()
    create_topic(original.port(1), TOPIC, PARTITIONS)
    original.await_settled()
    store(original)
    shutil.copytree(original.data, copy.data, ignore=shutil.ignore_patterns("*.sock"))
    copy.start()
    for nodes in clusters:
        assert all(ports(nodes, id) == list(map(nodes.port, nodes.ids)) for id in nodes.ids)
    assert ends(copy) == [1] * PARTITIONS
    store(copy)
    store(copy)
    assert ends(copy) == [3] * PARTITIONS
    assert ends(original) == [1] * PARTITIONS
    original.kill(1)
    original.await_settled(1)
    original.await_settled()
    store(original)
    assert copy.is_settled()
    assert [nodes.stop() for nodes in clusters] == [0, 0]
