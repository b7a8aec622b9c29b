"""Links between nodes that end while they are made leave no socket open, with both event loops."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import socket
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.cluster.peers import Peers
from broker.net.acceptor import AcceptedSockets
from broker.stores import node_sockets
from protocol.messages.node_requests import NodeRequest
from storage import NodeInfo
from tests.support.connections import ConnectionHarness
from tests.support.peers import LOOPS

pytestmark = [pytest.mark.once, pytest.mark.plain]  # replaces a function of a module


@pytest.mark.parametrize("passes", range(6))
@pytest.mark.parametrize("loop", LOOPS)
def test_a_link_that_ends_while_it_is_made(loop: str, passes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(node_sockets, "connect", lambda folder, node: ours)
    replies: list[object] = []

    async def send_and_close() -> None:
        running = asyncio.get_running_loop()
        peers = Peers(
            running,
            lambda: [NodeInfo(2, (), "")],
            lambda node, new_protocol: node_sockets.connect_protocol(running, new_protocol, str(tmp_path), node),
            1_000,
        )
        peers.send(2, NodeRequest(), replies.append)
        for _ in range(passes):
            await asyncio.sleep(0)
        peers.close()
        await asyncio.sleep(0.01)

    factory = importlib.import_module("uvloop").new_event_loop if loop == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(send_and_close())
    assert ours.fileno() == -1
    assert replies == [None]
    assert is_closed(theirs)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_link_whose_other_end_has_closed_already(loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The descriptor is closed once: another file may have its number a moment later."""
    ours, theirs = socket.socketpair()
    theirs.close()
    number = ours.fileno()
    monkeypatch.setattr(node_sockets, "connect", lambda folder, node: ours)

    async def connect() -> None:
        await node_sockets.connect_protocol(asyncio.get_running_loop(), asyncio.Protocol, str(tmp_path), 2)
        await asyncio.sleep(0.01)

    factory = importlib.import_module("uvloop").new_event_loop if loop == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(connect())
    assert ours.fileno() == -1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


class Marker:
    pass


def test_a_link_that_ended_while_it_was_made_is_not_collected_before_its_connection_is_closed() -> None:
    frames: list[weakref.ref[Marker]] = []

    async def connect(node: int, new_protocol: Callable[[], Any]) -> None:
        marker = Marker()
        frames.append(weakref.ref(marker))
        await asyncio.get_running_loop().create_future()

    async def send_and_collect() -> None:
        peers = Peers(asyncio.get_running_loop(), lambda: [NodeInfo(2, (), "")], connect, 1_000)
        peers.send(2, NodeRequest(), lambda reply: None)
        await asyncio.sleep(0)
        peers.node_ended(2)
        gc.collect()
        assert frames[0]() is not None

    asyncio.run(send_and_collect())


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("passes", range(3))
def test_an_accepted_socket_is_closed_when_the_loop_ends(loop: str, passes: int) -> None:
    ours, theirs = socket.socketpair()

    async def accept_and_cancel() -> None:
        accepted = AcceptedSockets(asyncio.get_running_loop(), NoConnections(), loop != "uvloop")  # type: ignore[arg-type]
        accepted.connect(ConnectionHarness().connection, ours)
        for _ in range(passes):
            await asyncio.sleep(0)
        for task in list(accepted._tasks):
            task.cancel()
        await asyncio.sleep(0.01)

    factory = importlib.import_module("uvloop").new_event_loop if loop == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(accept_and_cancel())
    assert ours.fileno() == -1
    assert is_closed(theirs)


class NoConnections:
    def ended(self, connection: object, reason: str) -> None: ...


def is_closed(sock: socket.socket) -> bool:
    """Whether the other end is closed."""
    sock.setblocking(False)
    try:
        while sock.recv(1_000):
            pass
    except BlockingIOError:
        return False
    finally:
        sock.close()
    return True
