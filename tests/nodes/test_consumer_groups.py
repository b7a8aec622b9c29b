"""Groups of the consumer protocol on three nodes: they go on with another coordinator, and hear of topics that any node creates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from tests.nodes.cluster import Nodes
from tests.running import wait_until
from tests.support.restartable import create_topic

pytestmark = [pytest.mark.clients, pytest.mark.once]

GROUP = "g"
NOT_COORDINATOR = 16
TAKE_OVER_SECONDS = 30.0


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path / "data", 3, "group.consumer.assignment.interval.ms=0", "offsets.topic.num.partitions=6")
    try:
        nodes.start()
        yield nodes
    finally:
        nodes.close()


def heartbeat(member: str, epoch: int, topics: list[str] | None = None) -> ConsumerGroupHeartbeatRequest:
    if epoch:
        return ConsumerGroupHeartbeatRequest(GROUP, member, epoch)
    return ConsumerGroupHeartbeatRequest(GROUP, member, 0, None, None, 30_000, topics, None, None, [])


def ask(nodes: Nodes, request: Any, version: int) -> Any:
    with nodes.client(nodes.coordinator(GROUP)) as client:
        return client.ask(request, version)


def described(nodes: Nodes) -> Any:
    return ask(nodes, ConsumerGroupDescribeRequest([GROUP]), 1).groups[0]


def test_a_group_goes_on_when_its_coordinator_is_killed(nodes: Nodes) -> None:
    coordinator = nodes.coordinator(GROUP)
    other = coordinator % 3 + 1
    create_topic(nodes.port(other), "t", 4)
    with nodes.client(other) as client:
        assert client.ask(heartbeat("a", 0, ["t", "u"]), 1).error_code == NOT_COORDINATOR
    joined = ask(nodes, heartbeat("a", 0, ["t", "u"]), 1)
    assert (joined.error_code, joined.member_epoch) == (0, 2)
    assert len(joined.assignment.topic_partitions[0].partitions) == 4
    topics = [OffsetCommitRequestTopic("t", [OffsetCommitRequestPartition(0, 7)])]
    assert ask(nodes, OffsetCommitRequest(GROUP, 2, "a", topics=topics), 9).topics[0].partitions[0].error_code == 0
    before = described(nodes)

    nodes.kill(coordinator)

    def taken_over() -> Any:
        with suppress(OSError):
            now = nodes.coordinator(GROUP, other)
            if now not in (coordinator, -1):
                with nodes.client(now) as client:
                    reply = client.ask(heartbeat("a", 2), 1)
                return reply if not reply.error_code else None
        return None

    reply = wait_until(taken_over, TAKE_OVER_SECONDS, 0.05)
    assert (reply.member_epoch, reply.assignment) == (2, None)
    nodes.await_settled()
    assert described(nodes) == before
    assert nodes.committed(GROUP) == {("t", 0): 7}

    create_topic(nodes.port(nodes.coordinator(GROUP) % 3 + 1), "u", 2)
    told = ask(nodes, heartbeat("a", 2), 1)
    assert (told.error_code, told.member_epoch, sorted(len(topic.partitions) for topic in told.assignment.topic_partitions)) == (0, 3, [2, 4])
