"""The channel between nodes: who may use it, and what forwarded requests keep."""

from __future__ import annotations

import asyncio
import gc
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from broker.cluster.channel import PEER
from broker.cluster.messages import NodeRequestKind, decode_reply, encode
from broker.internal_topics import CONSUMER_OFFSETS
from broker.net.connection import Connection
from broker.runtime.contain import DEFECTS
from broker.stores.node_sockets import connect
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.node_requests import NodeRequest, NodeResponse
from tests.broker.cluster.test_nodes import Nodes
from tests.support.headers import encode_request
from tests.support.in_loop import AsyncClient

pytestmark = [pytest.mark.asyncio, pytest.mark.once]

ONE, TWO = 1, 2
KIBIBYTE = 1 << 10


@pytest_asyncio.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    nodes = Nodes(tmp_path / "data")
    await nodes.start(ONE, TWO, cluster_nodes=2)
    yield nodes
    await nodes.stop(*nodes.served)


class NodeLink:
    """A link to a node, as another node opens it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, nodes: Nodes, id: int) -> NodeLink:
        return cls(*await asyncio.open_unix_connection(sock=connect(f"{nodes.folder}/nodes", id), limit=1 << 30))

    def send(self, request: NodeRequest) -> None:
        self.writer.write(encode(request, 7))

    async def reply(self) -> NodeResponse:
        async with asyncio.timeout(20):
            size = await self.reader.readexactly(4)
            number, reply = decode_reply(size + await self.reader.readexactly(int.from_bytes(size, "big")))
        assert number == 7
        return reply

    async def ask(self, request: NodeRequest) -> NodeResponse:
        self.send(request)
        return await self.reply()

    def forward(self, request: Any, version: int) -> None:
        self.send(forward(encode_request(request.API_KEY, version, 3, "client", request.encode(version))))


def forward(body: bytes | None) -> NodeRequest:
    return NodeRequest(NodeRequestKind.FORWARD, TWO, target=ONE, listener="PLAINTEXT", client_host="192.0.2.7", body=body)


def inner_connections() -> list[Connection]:
    gc.collect()
    return [found for found in gc.get_objects() if isinstance(found, Connection) and found.peer == "192.0.2.7"]


async def closes(client: AsyncClient, frame: bytes) -> bool:
    client._writer.write(frame)
    return await client.await_close()


async def test_a_listener_of_clients_serves_no_request_of_nodes(nodes: Nodes) -> None:
    for kind in (*NodeRequestKind, 77):
        client = await nodes.served[ONE].connect()
        assert await closes(client, encode(NodeRequest(kind, TWO, target=TWO, offset=1, body=b""), 1))
    assert nodes.broker(ONE).cluster.members.draining == set()


async def test_the_channel_serves_requests_of_nodes_and_nothing_else(nodes: Nodes) -> None:
    link = await NodeLink.open(nodes, ONE)
    assert not (await link.ask(NodeRequest(NodeRequestKind.PROBE, -1))).error_code
    for request, version in ((ApiVersionsRequest("a", "1"), 3), (MetadataRequest(None), 12)):
        other = await NodeLink.open(nodes, ONE)
        other.writer.write(encode_request(request.API_KEY, version, 1, "client", request.encode(version)))
        assert await other.reader.read(1) == b""
        other.writer.close()
    link.writer.close()


async def test_only_the_user_of_the_nodes_reaches_the_channel(nodes: Nodes) -> None:
    for id in (ONE, TWO):
        path = nodes.folder / "nodes" / f"{id}.sock"
        assert stat.S_ISSOCK(path.stat().st_mode)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await nodes.stop(TWO)
    assert not (nodes.folder / "nodes" / "2.sock").exists()


@pytest.mark.parametrize("case", ["nested", "not forwarded", "cut short", "too long", "two", "empty", "none"])
async def test_a_request_that_no_node_forwards_is_refused_and_leaves_nothing(nodes: Nodes, case: str) -> None:
    request = CreateTopicsRequest([CreatableTopic("t", 1, 1)], 5_000)
    whole = encode_request(request.API_KEY, 7, 3, "client", request.encode(7))
    versions = ApiVersionsRequest("a", "1")
    bodies = {
        "nested": encode(forward(whole), 1),
        "not forwarded": encode_request(versions.API_KEY, 3, 1, "client", versions.encode(3)),
        "cut short": whole[:-3],
        "too long": whole + b"1",
        "two": whole + whole,
        "empty": b"",
        "none": None,
    }
    link = await NodeLink.open(nodes, ONE)
    assert (await link.ask(forward(bodies[case]))).error_code == ErrorCode.INVALID_REQUEST
    assert not inner_connections()
    assert not nodes.broker(ONE).cluster.forwarding._local
    link.writer.close()


@pytest.mark.plain  # replaces a handler
@pytest.mark.parametrize("how", ["never ends", "raises", "bytes are wrong"])
async def test_what_forwarded_requests_keep_is_freed_with_their_links(nodes: Nodes, how: str) -> None:
    defects = DEFECTS.count
    broker = nodes.broker(ONE)
    route = broker.dispatch.routes[CreateTopicsRequest.API_KEY]
    handled: list[None] = []

    def handle(call: Any, request: Any) -> None:
        handled.append(None)
        if how == "raises":
            raise SystemError("a defect")

    if how != "bytes are wrong":
        route.handle = handle
    links = [await NodeLink.open(nodes, ONE) for _ in range(8)]
    for link in links:
        request = CreateTopicsRequest([CreatableTopic("t" * 200 + str(number), 1, 1) for number in range(1_000)], 5_000)
        body = encode_request(request.API_KEY, 7, 3, "client", request.encode(7))
        if how == "bytes are wrong":
            body = (200).to_bytes(4, "big") + body[4:204]
        link.send(forward(body))
    if how == "never ends":
        await nodes.until(lambda: len(handled) == len(links))
        assert len(inner_connections()) == len(links)
    else:
        for link in links:
            reply = await link.reply()
            assert reply.error_code or reply.body
        assert DEFECTS.count - defects == (len(links) if how == "raises" else 0)
    for link in links:
        link.writer.close()
    await nodes.until(lambda: not inner_connections())
    assert not broker.cluster.forwarding._local


async def test_a_forwarded_request_ends_with_its_reply(nodes: Nodes) -> None:
    follower = nodes.follower
    await nodes.create(follower, "topic", 1)
    client = nodes.clients[follower]
    for _ in range(3):
        reply = await client.ask(CreateTopicsRequest([CreatableTopic("topic", 1, 1)], 5_000), 7)
        assert [topic.error_code for topic in reply.topics] == [ErrorCode.TOPIC_ALREADY_EXISTS]
    assert not nodes.broker(nodes.controller).cluster.forwarding._local
    gc.collect()
    live = {connection for id in nodes.served for connection in nodes.broker(id).live_connections()}
    assert [found for found in gc.get_objects() if isinstance(found, Connection) and found.peer != PEER and found not in live] == []


async def test_a_request_of_the_greatest_size_is_forwarded(nodes: Nodes) -> None:
    """It is larger when it is forwarded."""
    await nodes.stop(ONE, TWO)
    await nodes.start(ONE, TWO, cluster_nodes=2, socket_request_max_bytes=64 * KIBIBYTE)
    client_id = "c" * 30_000

    def request(padding: int) -> CreateTopicsRequest:
        return CreateTopicsRequest([CreatableTopic("large", 1, 1), CreatableTopic("x" * padding, 1, 1), CreatableTopic("y" * 15_000, 1, 1)], 5_000)

    def size(padding: int) -> int:
        return len(encode_request(CreateTopicsRequest.API_KEY, 7, 1, client_id, request(padding).encode(7))) - 4

    padding = 20_000 + 64 * KIBIBYTE - size(20_000)
    assert size(padding) == 64 * KIBIBYTE
    async with AsyncClient(*await asyncio.open_connection("127.0.0.1", nodes.served[nodes.follower].port), client_id) as client:
        reply = await client.ask(request(padding), 7)
    assert [topic.error_code for topic in reply.topics] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_TOPIC_EXCEPTION]


async def test_many_clients_forward_over_few_links(nodes: Nodes) -> None:
    follower = nodes.follower
    clients = [await nodes.served[follower].connect() for _ in range(60)]
    for number, client in enumerate(clients):
        client.send((CreateTopicsRequest([CreatableTopic(f"topic-{number}", 1, 1)], 5_000), 7))
    most = 0

    async def watch(until: Callable[[], bool]) -> None:
        nonlocal most
        while not until():
            most = max(most, len(nodes.broker(nodes.controller)._node_connections.live))
            await asyncio.sleep(0)

    done: list[Any] = []
    watching = asyncio.create_task(watch(lambda: len(done) == len(clients)))
    done.extend([await client.reply() for client in clients])
    await watching
    assert {topic.error_code for reply in done for topic in reply.topics} == {0}
    assert 1 < most <= 12


@pytest.mark.parametrize("idle", [True, False])
async def test_the_limits_on_clients_do_not_apply_to_nodes(nodes: Nodes, idle: bool) -> None:
    await nodes.stop(ONE, TWO)
    limits: dict[str, Any] = {"max_connections": 3, "connections_max_idle_ms": 300} if idle else {"max_connections_per_ip": 2}
    await nodes.start(ONE, TWO, cluster_nodes=2, **limits)
    await nodes.settle()
    await asyncio.sleep(0.6 if idle else 0)
    for id in (ONE, TWO):
        link = await NodeLink.open(nodes, id)
        assert not (await link.ask(NodeRequest(NodeRequestKind.PROBE, -1))).error_code
        link.writer.close()
        assert nodes.broker(id).cluster.settled
        assert CONSUMER_OFFSETS in nodes.broker(id).topics.by_name
