"""A node that is stopped (SIGSTOP) for longer than its members' sessions and continued (SIGCONT) still owns its logs."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.members import CONFLUENT, KAFKA_PYTHON
from tests.nodes.campaign import GROUP, PARTITIONS, PROBED, Campaign
from tests.nodes.cluster import Nodes
from tests.running import wait_until

pytestmark = pytest.mark.clients

# librdkafka gives up its seat itself after a session without a reply (docs/clients.md), so its session is longer than the stop.
SESSIONS_MS = {KAFKA_PYTHON: 6_000, CONFLUENT: 20_000}
FROZEN_SECONDS = 8.0
RETURN_SECONDS = 30.0


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[Campaign]:
    campaign = Campaign(tmp_path, 7, (KAFKA_PYTHON, CONFLUENT), print, 3, SESSIONS_MS, ("cluster.node.timeout.ms=0",))
    yield campaign
    campaign.close()


def freeze(nodes: Nodes, id: int) -> tuple[dict[str, str], dict[int, int]]:
    """SIGSTOP the group's coordinator, check that no other node serves its logs, then SIGCONT. Return its status and end offsets from before."""
    status, led = nodes.status(id), nodes.ends(id, PROBED, PARTITIONS)
    ends_by_node = {node: nodes.ends(node, PROBED, PARTITIONS) for node in nodes.ids if node != id}
    nodes.signal(signal.SIGSTOP, id)
    try:
        until = time.monotonic() + FROZEN_SECONDS
        while time.monotonic() < until:
            for node, before in ends_by_node.items():
                assert nodes.ends(node, PROBED, PARTITIONS) == before, f"node {node} serves partitions of the frozen node {id}"
                assert nodes.coordinator(GROUP, node) in (id, -1)
            time.sleep(0.1)
    finally:
        nodes.signal(signal.SIGCONT, id)
    return status, led


def check_unchanged(before: dict[str, str], after: dict[str, str]) -> None:
    """Check that the node owns the same logs, since the same times; these are computed from two clocks, so they differ by milliseconds."""
    assert before.keys() == after.keys()
    for name, value in before.items():
        if name.endswith(".ms") and value:
            assert abs(int(value) - int(after[name])) < 1_000, name
        else:
            assert after[name] == value, name


def test_a_frozen_node_keeps_its_logs_and_its_members_their_seats(campaign: Campaign) -> None:
    nodes = campaign.nodes
    campaign.begin()
    seats, before = campaign.seated(), nodes.rebalances(GROUP)
    coordinator = nodes.coordinator(GROUP)
    committed = nodes.committed(GROUP)
    status, led = freeze(nodes, coordinator)
    assert led, "no partition would show a change of owner"

    after = wait_until(lambda: nodes.committed(GROUP), RETURN_SECONDS)
    assert all(after[partition] >= offset for partition, offset in committed.items()), "a committed offset went back"
    assert nodes.ends(coordinator, PROBED, PARTITIONS) == led
    assert nodes.coordinator(GROUP) == coordinator
    assert campaign.seated() == seats
    for member in campaign.members:
        member.await_progress()
    check_unchanged(status, nodes.status(coordinator))
    assert [line["event"] for line in nodes.lines if line["event"] in ("node does not answer and is killed", "node has ended and is started again")] == []
    assert before
    assert nodes.rebalances(GROUP) == before

    campaign.end()
    assert campaign.violations == []
    assert nodes.stop() == 0
