"""Requests to other nodes, over real connections."""

from __future__ import annotations

import asyncio

import pytest

from broker.cluster.peers import Peers
from protocol.messages.node_requests import NodeRequest, NodeResponse
from storage import NodeInfo

pytestmark = [pytest.mark.asyncio, pytest.mark.once]

OTHER = 2


class SilentNode(asyncio.Protocol):
    """Reads requests and answers none."""

    def __init__(self, requested: asyncio.Semaphore) -> None:
        self._requested = requested

    def data_received(self, data: bytes) -> None:
        self._requested.release()


@pytest.mark.parametrize("ends", ["the node", "the peers"])
async def test_requests_in_flight_end_with_the_node_they_were_sent_to(ends: str) -> None:
    loop = asyncio.get_running_loop()
    requested = asyncio.Semaphore(0)
    async with await loop.create_server(lambda: SilentNode(requested), "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        peers = Peers(loop, lambda: [NodeInfo(OTHER, (("PLAINTEXT", "127.0.0.1", port),))], 1 << 20)
        replies: list[NodeResponse | None] = []
        for send in (peers.send, peers.forward, peers.forward):
            send(OTHER, NodeRequest(4, 1), replies.append)
            await asyncio.wait_for(requested.acquire(), 20)
        assert replies == []
        if ends == "the node":
            peers.node_ended(OTHER)
        else:
            peers.close()
        assert replies == [None, None, None]
