"""Requests to other nodes, over real connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.cluster.peers import Peers
from broker.stores.node_sockets import connect_protocol, listen
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
async def test_requests_in_flight_end_with_the_node_they_were_sent_to(tmp_path: Path, ends: str) -> None:
    loop = asyncio.get_running_loop()
    requested = asyncio.Semaphore(0)

    async def connect(node: int, new_protocol: Callable[[], Any]) -> None:
        await connect_protocol(loop, new_protocol, str(tmp_path), node)

    async with await loop.create_unix_server(lambda: SilentNode(requested), sock=listen(str(tmp_path), OTHER)):
        peers = Peers(loop, lambda: [NodeInfo(OTHER, ())], connect, 1 << 20)
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
