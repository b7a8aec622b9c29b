"""Clients that hold all connections of a node neither end it nor slow its links to other nodes."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.metadata import MetadataRequest
from tests.nodes.cluster import Nodes
from tests.running import Client, wait_until

pytestmark = pytest.mark.once

TIMEOUT_SECONDS = 1.0
HELD_SECONDS = 5.0
WAITING = 20  # clients that are not accepted


def nodes_with(folder: Path, setting: str) -> Nodes:
    return Nodes(folder / "data", 2, f"cluster.node.timeout.ms={round(1_000 * TIMEOUT_SECONDS)}", setting)


@pytest.fixture(params=["max.connections.per.ip=3", "max.connections=3"])
def nodes(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Nodes]:
    nodes = nodes_with(tmp_path, request.param)
    nodes.start()
    yield nodes
    nodes.close()


def test_clients_that_hold_all_connections_do_not_end_a_node(nodes: Nodes) -> None:
    pids = [nodes.pid(id) for id in nodes.ids]
    follower = next(id for id in nodes.ids if id != nodes.controller())
    with ExitStack() as held:
        clients: dict[int, Client] = {}
        for id in nodes.ids:
            for _ in range(3):
                clients[id] = held.enter_context(wait_until(lambda id=id: served(nodes, id)))  # type: ignore[misc]
            for _ in range(WAITING):
                with suppress(OSError):
                    held.enter_context(socket.create_connection(("127.0.0.1", nodes.port(id)), 1))
        deadline = time.monotonic() + HELD_SECONDS
        number = 0
        while time.monotonic() < deadline:
            begin = time.monotonic()
            reply = clients[follower].ask(CreateTopicsRequest([CreatableTopic(f"topic-{number}", 1, 1)], 5_000), 7)
            assert time.monotonic() - begin < 0.9 * TIMEOUT_SECONDS
            assert [topic.error_code for topic in reply.topics] == [0]
            number += 1
            time.sleep(0.2)
        assert "node does not answer and is killed" not in [line["event"] for line in nodes.lines]
        assert [nodes.pid(id) for id in nodes.ids] == pids


def served(nodes: Nodes, id: int) -> Client | None:
    """A client that the node has accepted."""
    client = Client(nodes.port(id))
    with suppress(OSError):
        client.ask(MetadataRequest([]), 12)
        return client
    client.socket.close()
    return None
