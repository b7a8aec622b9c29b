"""Connections to the other nodes, and requests over them.

Requests between nodes share one connection for each node. A forwarded request of a client may wait for a disk, so it has its own
connection until it is answered. The reply is None if it does not arrive in time, or the connection ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from broker.cluster.messages import decode_reply, encode
from broker.logging.logs import log
from broker.runtime.contain import Contained, contained_task, run_contained
from protocol.errors import ProtocolError
from protocol.framing import Framer
from protocol.messages.node_requests import NodeRequest, NodeResponse
from storage import NodeInfo

TIMEOUT_SECONDS: Final = 5.0
FORWARD_TIMEOUT_SECONDS: Final = 30.0
WARN_SECONDS: Final = 15.0  # between two warnings about the same node

Done = Callable[[NodeResponse | None], None]
Connect = Callable[[int, Callable[[], Any]], Coroutine[Any, Any, None]]  # connects a protocol to a node; raises OSError


class Link(asyncio.Protocol):
    """One connection to another node; replies arrive in the order of the requests."""

    def __init__(self, loop: asyncio.AbstractEventLoop, frame_bytes_max: int, ended: Callable[[Link], None]) -> None:
        self._loop = loop
        self._ended = ended
        self._framer = Framer(frame_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._waiting: dict[int, tuple[Done, asyncio.TimerHandle]] = {}
        self._correlation_id = 0
        self.ended = False

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        if self.ended:
            transport.abort()
            return
        for frame in self._unsent:
            transport.write(frame)
        self._unsent.clear()

    def send(self, request: NodeRequest, done: Done, timeout_seconds: float) -> None:
        if self.ended:
            run_contained(done, None)
            return
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        timer = self._loop.call_later(timeout_seconds, Contained(self.end))
        self._waiting[correlation_id] = done, timer
        frame = encode(request, correlation_id)
        if self._transport is None:
            self._unsent.append(frame)
        else:
            self._transport.write(frame)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._framer.feed(data):
                correlation_id, reply = decode_reply(frame)
                done, timer = self._waiting.pop(correlation_id)
                timer.cancel()
                run_contained(done, reply)
        except (ProtocolError, KeyError) as error:
            log.error("reply of another node cannot be read", reason=str(error))
            self.end()

    def connection_lost(self, error: Exception | None) -> None:
        self.end()

    def end(self) -> None:
        """Close the connection; waiting requests get None."""
        if self.ended:
            return
        self.ended = True
        if self._transport is not None:
            self._transport.abort()
        run_contained(self._ended, self)
        waiting, self._waiting = self._waiting, {}
        for done, timer in waiting.values():
            timer.cancel()
            run_contained(done, None)


class Peers:
    """Sends requests to other nodes by their id."""

    def __init__(self, loop: asyncio.AbstractEventLoop, nodes: Callable[[], list[NodeInfo]], connect: Connect, frame_bytes_max: int) -> None:
        self._loop = loop
        self._nodes = nodes
        self._connect_to = connect
        self._frame_bytes_max = frame_bytes_max
        self._links: dict[int, Link] = {}
        self._forwarding: dict[int, list[Link]] = {}  # connections for forwarded requests, idle ones too
        self._warned_until: dict[int, float] = {}
        self._connecting: set[asyncio.Task[None]] = set()  # the loop does not keep its tasks: one whose link has ended would be collected
        self._closed = False

    def send(self, node: int, request: NodeRequest, done: Done) -> None:
        """`done` gets the reply, or None."""
        link = self._links.get(node)
        if link is None or link.ended:
            opened = self._open(node, partial(self._drop, node))
            if opened is None:
                run_contained(done, None)
                return
            link = self._links[node] = opened
        link.send(request, done, TIMEOUT_SECONDS)

    def forward(self, node: int, request: NodeRequest, done: Done) -> None:
        """Like `send`, over a connection that no other request uses meanwhile. `Outgoing` bounds how many there are."""
        links = self._forwarding.setdefault(node, [])
        link = next((link for link in reversed(links) if not link.busy), None)
        if link is None:
            link = self._open(node, partial(self._drop_forwarding, node))
            if link is None:
                run_contained(done, None)
                return
            links.append(link)
        link.send(request, done, FORWARD_TIMEOUT_SECONDS)

    def _open(self, node: int, ended: Callable[[Link], None]) -> Link | None:
        if self._closed or all(info.id != node for info in self._nodes()):
            return None
        link = Link(self._loop, self._frame_bytes_max, ended)
        task = self._loop.create_task(contained_task(self._connect, link, node))
        self._connecting.add(task)
        task.add_done_callback(Contained(self._connecting.discard))
        return link

    async def _connect(self, link: Link, node: int) -> None:
        try:
            await self._connect_to(node, lambda: link)
        except OSError as error:
            now = self._loop.time()
            if self._warned_until.get(node, 0.0) <= now:
                self._warned_until[node] = now + WARN_SECONDS
                log.warning("another node cannot be reached", node=node, reason=error.strerror or str(error))
            link.end()

    def _drop(self, node: int, link: Link) -> None:
        if self._links.get(node) is link:
            del self._links[node]

    def _drop_forwarding(self, node: int, link: Link) -> None:
        links = self._forwarding.get(node, [])
        if link in links:
            links.remove(link)

    def node_ended(self, node: int) -> None:
        """The node is dead: waiting requests get None."""
        links = self._forwarding.pop(node, [])
        link = self._links.pop(node, None)
        if link is not None:
            links.append(link)
        for link in links:
            link.end()

    def close(self) -> None:
        self._closed = True
        for node in {*self._links, *self._forwarding}:
            self.node_ended(node)
