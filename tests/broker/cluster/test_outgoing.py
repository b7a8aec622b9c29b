"""How many requests of clients a node forwards at the same time."""

from __future__ import annotations

import asyncio

import pytest

from broker.cluster import outgoing
from broker.cluster.outgoing import BYTES_MAX, Outgoing
from broker.cluster.peers import Done
from broker.settings.descriptors import FORWARDING_LINKS_MAX
from protocol.messages.node_requests import NodeRequest, NodeResponse

pytestmark = [pytest.mark.asyncio, pytest.mark.once]

LARGE = bytes(BYTES_MAX // 2 + 1)


class World:
    def __init__(self) -> None:
        self.sent: list[tuple[int, Done]] = []
        self.replies: list[NodeResponse | None] = []
        self.fails = False
        self.outgoing = Outgoing(asyncio.get_running_loop(), self._forward)

    def _forward(self, node: int, request: NodeRequest, done: Done) -> None:
        if self.fails:
            done(None)
        else:
            self.sent.append((node, done))

    def send(self, node: int, body: bytes = b"request", count: int = 1) -> None:
        for _ in range(count):
            self.outgoing.send(node, NodeRequest(6, 1, body=body), self.replies.append)

    async def answer(self) -> None:
        self.sent.pop(0)[1](NodeResponse())
        await asyncio.sleep(0)


async def test_requests_wait_for_a_link_of_their_node() -> None:
    world = World()
    world.send(2, count=FORWARDING_LINKS_MAX + 2)
    world.send(3)
    assert [node for node, _ in world.sent] == [2] * FORWARDING_LINKS_MAX + [3]
    for _ in range(FORWARDING_LINKS_MAX + 3):
        await world.answer()
    assert world.replies == [NodeResponse()] * (FORWARDING_LINKS_MAX + 3)
    assert (world.outgoing._waiting, world.outgoing._bytes, set(world.outgoing._running.values())) == ({}, 0, {0})


async def test_large_requests_are_sent_one_after_the_other() -> None:
    world = World()
    world.send(2, LARGE)
    world.send(3, LARGE)
    world.send(3)  # behind a request that waits
    assert [node for node, _ in world.sent] == [2]
    await world.answer()
    assert [node for node, _ in world.sent] == [3, 3]


async def test_requests_that_wait_end_with_their_node() -> None:
    world = World()
    world.send(2, count=5_000)
    world.fails = True
    await world.answer()
    assert world.replies == [NodeResponse()] + [None] * (5_000 - FORWARDING_LINKS_MAX)


@pytest.mark.plain  # replaces a constant
async def test_a_request_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "WAIT_SECONDS", 0.01)
    world = World()
    world.send(2, count=FORWARDING_LINKS_MAX + 1)
    async with asyncio.timeout(20):
        while not world.replies:
            await asyncio.sleep(0.01)
    assert world.replies == [None]
    assert not world.outgoing._waiting
