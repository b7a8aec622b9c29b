"""A node that was frozen while a topic was deleted and created again neither loses a commit for the new topic nor shows one for the deleted one."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.jetstream.cluster import StreamNodes
from tests.nodes.cluster import OFFSET_FETCH_VERSION
from tests.nodes.test_late_node import COMMIT_VERSION, TOPIC, commit, create
from tests.running import Client, wait_until

pytestmark = [pytest.mark.jetstream, pytest.mark.once]

LEASE_SECONDS = 6.0
DELETE_SECONDS = 30.0


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[StreamNodes]:
    nodes = StreamNodes(tmp_path / "data", 3, f"store.lease.ms={LEASE_SECONDS * 1000:.0f}", servers=1)
    try:
        nodes.start()
        yield nodes
    finally:
        nodes.close()


def offsets_of(nodes: StreamNodes, group: str, node: int) -> set[int]:
    with nodes.client(node) as client:
        reply = client.ask(OffsetFetchRequest([OffsetFetchRequestGroup(group, None, -1, None)]), OFFSET_FETCH_VERSION)
    assert not reply.groups[0].error_code
    return {each.committed_offset for topic in reply.groups[0].topics for each in topic.partitions}


@pytest.mark.parametrize("frozen_seconds", [3.0, LEASE_SECONDS + 5.0], ids=["shorter than its lease", "longer than its lease"])
def test_commits_for_a_topic_made_anew_while_the_coordinator_is_frozen(nodes: StreamNodes, frozen_seconds: float) -> None:
    with nodes.client(1) as client:
        create(client)
    nodes.await_settled()
    controller = nodes.controller()
    frozen = next(id for id in nodes.ids if id != controller)
    group = next(name for name in (f"group-{number}" for number in range(1_000)) if nodes.coordinator(name) == frozen)
    with nodes.client(frozen) as committer, nodes.client(controller) as admin:
        admin.socket.settimeout(DELETE_SECONDS)
        assert committer.ask(commit(group, 5), COMMIT_VERSION).topics[0].partitions[0].error_code == 0
        nodes.signal(signal.SIGSTOP, frozen)
        wakes = threading.Timer(frozen_seconds, nodes.signal, (signal.SIGCONT, frozen))
        wakes.start()
        assert admin.ask(DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=30_000), 5).responses[0].error_code == 0
        create(admin)
        committer.send(commit(group, 7), COMMIT_VERSION)  # if the node is still frozen, the first request that it processes
        wakes.join()
        try:
            first = committer.receive(commit(group, 7), COMMIT_VERSION)
        except ConnectionError:
            first = None
    if first is None or first.topics[0].partitions[0].error_code:
        assert wait_until(lambda: is_acknowledged(nodes, group, 7))
    nodes.await_settled()
    assert offsets_of(nodes, group, nodes.coordinator(group)) == {7}


def test_a_topic_is_made_anew_only_when_a_frozen_node_knows_that_it_was_deleted(nodes: StreamNodes) -> None:
    """A client that got no reply finds the new topic by its metadata, or asks again and hears that it exists already."""
    with nodes.client(1) as client:
        create(client)
    nodes.await_settled()
    controller = nodes.controller()
    frozen, third = (id for id in nodes.ids if id != controller)
    group = next(name for name in (f"group-{number}" for number in range(1_000)) if nodes.coordinator(name) == frozen)
    with nodes.client(frozen) as committer, nodes.client(controller) as deleter, nodes.client(controller) as creator, nodes.client(third) as reader:
        assert committer.ask(commit(group, 5), COMMIT_VERSION).topics[0].partitions[0].error_code == 0
        nodes.signal(signal.SIGSTOP, frozen)
        deletion = DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=30_000)
        deleter.send(deletion, 5)
        assert wait_until(lambda: not exists(reader))
        creation = CreateTopicsRequest([CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[])], 30_000)
        creator.send(creation, 7)
        until = time.monotonic() + 2.0
        while time.monotonic() < until:
            assert not exists(reader)
        nodes.signal(signal.SIGCONT, frozen)
        assert deleter.receive(deletion, 5).responses[0].error_code == 0
        assert creator.receive(creation, 7).topics[0].error_code == 0
        assert exists(reader)
    assert offsets_of(nodes, group, frozen) == set()


def exists(client: Client) -> bool:
    error = client.ask(MetadataRequest([MetadataRequestTopic(name=TOPIC)], False), 8).topics[0].error_code
    assert error in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)
    return bool(error != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def is_acknowledged(nodes: StreamNodes, group: str, offset: int) -> bool:
    with nodes.client(nodes.coordinator(group)) as client:
        return not client.ask(commit(group, offset), COMMIT_VERSION).topics[0].partitions[0].error_code
