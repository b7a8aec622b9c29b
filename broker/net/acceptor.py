"""Accept connections, within the limits on their number.

uvloop's server accepts one connection per pass of the loop, which takes seconds when thousands of clients reconnect. So
this module accepts connections itself, up to 32 per call. At `max.connections` the longest-idle connections are closed
for new ones; if none is idle, accepting pauses, with one log line, and peers wait in the kernel's backlog. Accepting also pauses
while the process is short of descriptors (descriptors.py).
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from broker.logging.logs import log
from broker.net.connection import Connection, ConnectionContext
from broker.net.connections import Connections
from broker.runtime.contain import Contained, contained_task
from broker.runtime.node import Address

ACCEPTS_PER_CALL = 32
LOG_INTERVAL_SECONDS = 10.0  # between two equal log lines: at the limit, accepting pauses repeatedly
RETRY_SECONDS = 1.0  # between attempts to accept again: closed log files free descriptors too
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
READ_BYTES = 262_144


class StandardLoopProtocol(asyncio.BufferedProtocol):
    """Adapts a Connection to asyncio's buffered protocol, whose reads cost a quarter of the reads of a plain protocol.

    All connections share one buffer: the loop fills it and passes it on in one call.
    """

    _buffer = bytearray(READ_BYTES)
    _view = memoryview(_buffer)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def eof_received(self) -> bool:
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._connection.data_received(bytes(self._view[:nbytes]))


class AcceptedSockets:
    """Gives accepted sockets to the loop, each with its connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connections: Connections, buffered_protocol: bool) -> None:
        """`buffered_protocol`: use `StandardLoopProtocol`."""
        self._loop = loop
        self._connections = connections
        self._buffered_protocol = buffered_protocol
        self._tasks: set[asyncio.Task[object]] = set()

    def connect(self, connection: Connection, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        # Connection does not inherit asyncio.Protocol, so that it can be compiled.
        protocol: Any = StandardLoopProtocol(connection) if self._buffered_protocol else connection
        task = self._loop.create_task(contained_task(self._connect, protocol, connection, accepted))
        self._tasks.add(task)
        task.add_done_callback(Contained(partial(self._done, accepted)))

    def _done(self, accepted: socket.socket, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if task.cancelled():  # the loop ends, perhaps before the task has begun
            accepted.close()

    async def _connect(self, protocol: Any, connection: Connection, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, accepted)
        except Exception as error:
            accepted.close()
            self._connections.ended(connection, f"lost while it was accepted: {error}")
            if not isinstance(error, OSError):  # an OSError means that the peer is gone
                raise


class Acceptor:
    """The listening sockets of all listeners; `add_sockets` first, `start` when requests can be answered."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        context: ConnectionContext,
        connections: Connections,
        connections_max: int,
        per_peer_max: Callable[[str], int],
        reserve_from: int,
        buffered_protocol: bool,
    ) -> None:
        """`reserve_from`: the first descriptor number that connections may not use. `buffered_protocol`: as in `AcceptedSockets`."""
        self._loop = loop
        self._context = context
        self._connections = connections
        self._connections_max = connections_max
        self._per_peer_max = per_peer_max
        self._reserve_from = reserve_from
        self._accepted = AcceptedSockets(loop, connections, buffered_protocol)
        self._sockets: list[tuple[socket.socket, Address]] = []
        self._accepting = False
        self._pause_reason = ""
        self._pause_logged = False
        self._next_pause_log = 0.0
        self._limit_reason = f"{connections_max} connections are open (max.connections)"
        self._closed_idle = 0  # idle connections closed since the last log line about them
        self._next_closed_log = 0.0
        self._retry: asyncio.TimerHandle | None = None
        connections.on_removed = self._resume

    def add_sockets(self, sockets: list[socket.socket], listener: Address) -> None:
        """Add listening sockets; a listener has one for each address of its name."""
        self._sockets += [(sock, listener) for sock in sockets]

    def start(self) -> None:
        self._accepting = True
        for sock, listener in self._sockets:
            self._loop.add_reader(sock.fileno(), Contained(self._readable, self._accepting_failed), sock, listener)

    def close(self) -> None:
        self._stop_accepting()
        for sock, _ in self._sockets:
            sock.close()
        self._sockets.clear()
        if self._retry is not None:
            self._retry.cancel()

    def _readable(self, sock: socket.socket, listener: Address) -> None:
        for _ in range(ACCEPTS_PER_CALL):
            if not self._accepting:
                return
            if len(self._connections.live) >= self._connections_max:
                if _has_waiting(sock):
                    self._wait_for_room()
                return
            try:
                accepted, address = sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._pause(f"no descriptor is free: {error.strerror} (open-file limit)")
                return
            self._admit(accepted, str(address[0]), listener)

    def _admit(self, accepted: socket.socket, peer: str, listener: Address) -> None:
        allowed = self._per_peer_max(peer)
        if self._connections.by_peer.get(peer, 0) >= allowed:
            accepted.close()
            log.warning("connection refused", peer=peer, reason=f"{allowed} connections from this address are open (max.connections.per.ip)")
            return
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(self._context, listener, peer)
        self._connections.add(connection)
        self._accepted.connect(connection, accepted)
        # The system assigns the lowest free descriptor, so its number shows how many are in use.
        if accepted.fileno() >= self._reserve_from:
            self._pause(f"descriptors from {self._reserve_from} on are reserved for the served connections (open-file limit)")

    def _accepting_failed(self) -> None:
        """Pause after an unexpected exception: it would recur at once."""
        self._pause("accepting a connection failed")

    def _wait_for_room(self) -> None:
        """Close idle connections, or pause until a connection ends."""
        closed = self._connections.make_room(self._context.clock.tick())
        self._closed_idle += closed
        now = self._loop.time()
        if self._closed_idle and now >= self._next_closed_log:
            self._next_closed_log = now + LOG_INTERVAL_SECONDS
            log.warning("idle connections were closed for new ones", count=self._closed_idle, reason=self._limit_reason)
            self._closed_idle = 0
        if self._connections.making_room:
            self._stop_accepting()
            self._pause_reason = self._limit_reason  # not logged: the pause is short
            self._retry_later()
        else:
            self._pause(self._limit_reason)

    def _pause(self, reason: str) -> None:
        self._stop_accepting()
        now = self._loop.time()
        if not self._pause_logged and now >= self._next_pause_log:
            self._next_pause_log = now + LOG_INTERVAL_SECONDS
            self._pause_logged = True
            log.warning("accepting pauses", reason=reason)
        self._pause_reason = reason
        self._retry_later()

    def _retry_later(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        self._retry = self._loop.call_later(RETRY_SECONDS, Contained(self._resume, self._retry_later))

    def _resume(self) -> None:
        if self._accepting or not self._pause_reason or not self._sockets:
            return
        self._retry_later()
        if not self._has_free_descriptor():
            return
        self.start()
        for sock, listener in list(self._sockets):
            self._readable(sock, listener)
        if self._accepting:
            if self._pause_logged:
                log.info("accepting resumes")
            self._pause_logged = False
            self._retry.cancel()

    def _has_free_descriptor(self) -> bool:
        """Whether one more connection would leave the reserved descriptors free; the first connection is always allowed."""
        try:
            lowest_free = os.dup(self._sockets[0][0].fileno())
        except OSError:
            return False
        os.close(lowest_free)
        return lowest_free < self._reserve_from or not self._connections.live

    def _stop_accepting(self) -> None:
        self._accepting = False
        for sock, _ in self._sockets:
            self._loop.remove_reader(sock.fileno())


def _has_waiting(sock: socket.socket) -> bool:
    """Whether a peer waits to be accepted."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
