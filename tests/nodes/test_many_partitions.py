"""Ten thousand partitions over four nodes are served ten seconds after a start, in order or after kill -9 of all nodes.

The limit is on the processor time of all nodes together, as much as two cores have in ten seconds, so that a busy machine does not fail
the test.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.metadata import MetadataRequest
from tests.broker.test_scale import processor_seconds
from tests.nodes.cluster import METADATA_VERSION, SETTLED_SECONDS, Nodes
from tests.running import wait_until

pytestmark = [pytest.mark.alone, pytest.mark.once]

NODES, TOPICS, PARTITIONS = 4, 100, 100
CREATE_TOPICS, TIMEOUT_MS = 7, 60_000
START_SECONDS_MAX, CORES = 10.0, 2


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path_factory.mktemp("nodes") / "data", NODES)
    try:
        nodes.start()
        for number in range(TOPICS):
            with nodes.client(1) as client:
                reply = client.ask(CreateTopicsRequest([CreatableTopic(f"topic-{number}", PARTITIONS, 1)], TIMEOUT_MS), CREATE_TOPICS)
            assert not reply.topics[0].error_code
        nodes.await_settled()
        yield nodes
    finally:
        nodes.close()


def check_served(nodes: Nodes) -> None:
    """All nodes name the same leader for each partition, and each node leads its share."""
    leaders = []
    for id in nodes.ids:
        with nodes.client(id) as client:
            topics = client.ask(MetadataRequest(None), METADATA_VERSION).topics
        leaders.append({(topic.name, partition.partition_index): partition.leader_id for topic in topics for partition in topic.partitions if not topic.is_internal})
    assert all(leader == leaders[0] for leader in leaders)
    assert len(leaders[0]) == TOPICS * PARTITIONS
    led = [list(leaders[0].values()).count(id) for id in nodes.ids]
    assert sum(led) == TOPICS * PARTITIONS
    assert max(led) <= TOPICS * PARTITIONS // NODES + 1


def check_started(nodes: Nodes, begin: float, occasion: str) -> None:
    seconds = time.monotonic() - begin
    spent = sum(processor_seconds(nodes.pid(id)) for id in nodes.ids)
    check_served(nodes)
    print(f"nodes: {TOPICS * PARTITIONS} partitions served by {NODES} nodes {seconds:.1f} s after {occasion}, {spent:.1f} s of processor time")
    assert spent < CORES * START_SECONDS_MAX


def test_all_partitions_are_served_soon_after_a_start(nodes: Nodes) -> None:
    assert nodes.stop() == 0
    nodes.close()
    begin = time.monotonic()
    nodes.start()
    check_started(nodes, begin, "a start")


def test_all_partitions_are_served_soon_after_all_nodes_were_killed(nodes: Nodes) -> None:
    before = [nodes.pid(id) for id in nodes.ids]
    begin = time.monotonic()
    nodes.kill(*nodes.ids)
    wait_until(lambda: not {*before} & {nodes.pid(id) for id in nodes.ids}, SETTLED_SECONDS)
    nodes.await_settled()
    check_started(nodes, begin, "all of them were killed")
