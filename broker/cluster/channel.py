"""The channel between nodes: each node accepts links from the other nodes, apart from the connections of clients.

Only nodes reach the channel: over a data directory it is a Unix socket in it (`UnixChannel`), over JetStream subjects of NATS. It serves only
requests of nodes, which the listeners of clients do not serve. The limits on clients do not apply to it, so clients cannot keep nodes apart.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final, Protocol

from broker.logging.logs import log
from broker.net.acceptor import AcceptedSockets
from broker.net.connection import Connection, ConnectionContext
from broker.net.connections import Connections
from broker.runtime.contain import Contained
from broker.runtime.node import Address

FORWARDING_BYTES: Final = 65_536  # how much a request or reply grows at most when it is forwarded
ACCEPTS_PER_CALL: Final = 32
RETRY_SECONDS: Final = 1.0
WARN_SECONDS: Final = 15.0
CHANNEL: Final = Address("NODES", "", 0)
PEER: Final = "another node"  # in place of a client's address


class NodeChannel(Protocol):
    """How this node reaches the other nodes, and they reach it."""

    async def connect(self, node: int, new_protocol: Callable[[], Any]) -> None:
        """Open a link: the loop connects the protocol with a transport. Raises OSError."""
        ...

    def start(self) -> None:
        """Accept links from now on; those that other nodes have opened meanwhile wait."""
        ...

    def close(self) -> None:
        """Accept no more links."""
        ...


class AcceptedLinks:
    """The links that other nodes have opened to this node."""

    def __init__(self, context: ConnectionContext, connections: Connections, links_max: int) -> None:
        """`links_max`: more than the nodes open, so that only a defect reaches it."""
        self._context = context
        self.connections = connections
        self._links_max = links_max
        self._warned_until = 0.0

    def new(self, now: float) -> Connection | None:
        """The connection of a new link; None: there are too many. `now`: the time of the loop."""
        if len(self.connections.live) >= self._links_max:
            self.warn(now, f"{self._links_max} links are open")
            return None
        connection = Connection(self._context, CHANNEL, PEER)
        self.connections.add(connection)
        return connection

    def warn(self, now: float, reason: str) -> None:
        if now >= self._warned_until:
            self._warned_until = now + WARN_SECONDS
            log.warning("link of another node is refused", reason=reason)


class UnixChannel:
    """The channel of a node over a data directory. `connect_to`: connects a protocol to the socket of another node."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        connect_to: Callable[[int, Callable[[], Any]], Any],
        links: AcceptedLinks,
        buffered_protocol: bool,
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._connect_to = connect_to
        self._links = links
        self._accepted = AcceptedSockets(loop, links.connections, buffered_protocol)
        self._closed = False

    async def connect(self, node: int, new_protocol: Callable[[], Any]) -> None:
        await self._connect_to(node, new_protocol)

    def start(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._sock.fileno(), Contained(self._readable, self._retry_later))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()

    def _retry_later(self) -> None:
        self._loop.remove_reader(self._sock.fileno())
        self._loop.call_later(RETRY_SECONDS, Contained(self.start))

    def _readable(self) -> None:
        for _ in range(ACCEPTS_PER_CALL):
            try:
                accepted, _address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptor is free, although some are reserved for links
                self._links.warn(self._loop.time(), error.strerror or str(error))
                self._retry_later()
                return
            self._admit(accepted)

    def _admit(self, accepted: socket.socket) -> None:
        connection = self._links.new(self._loop.time())
        if connection is None:
            accepted.close()
            return
        self._accepted.connect(connection, accepted)
