"""Connections between simulated nodes. This file has the end of the connecting node; the other end is the same as for a client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from simulator.network import Delays, Stream
from simulator.world import World

if TYPE_CHECKING:
    from simulator.cluster_node import ClusterNode


class PeerTransport:
    """An asyncio transport: the connecting node's end of a connection between two nodes."""

    def __init__(self, world: World, node: ClusterNode, protocol: Any) -> None:
        self._node = node
        self._world = world
        self._life = node.life
        self._protocol = protocol
        self._stream: Stream | None = None
        self._closing = False

    def connected(self, stream: Stream) -> None:
        self._stream = stream
        self._node.peer_links[self] = None
        self._protocol.connection_made(self)

    # Called by the node.

    def write(self, data: bytes) -> None:
        if not self._closing and self._stream is not None:
            self._stream.send(bytes(data))

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._node.peer_links.pop(self, None)
            if self._stream is not None:
                self._stream.close()
            self._node.loop.call_soon(self._protocol.connection_lost, None)

    abort = close

    # Called by the network.

    def received(self, data: bytes) -> None:
        if self._node.life == self._life:
            self._node.loop.post(self._deliver, data)

    def _deliver(self, data: bytes) -> None:
        if not self._closing:
            self._world.events += 1
            self._protocol.data_received(data)

    def lost(self) -> None:
        if self._node.life == self._life:
            self._node.loop.post(self._end)

    def _end(self) -> None:
        if not self._closing:
            self._closing = True
            self._node.peer_links.pop(self, None)
            self._protocol.connection_lost(None)

    def process_died(self) -> None:
        """The process of the node has ended: its system closes the connection, and the bytes already sent still arrive."""
        if self._stream is not None:
            self._stream.close()


async def connect_peer(
    world: World, delays: Delays, node: ClusterNode, target: ClusterNode | None, protocol_factory: Callable[[], Any]
) -> tuple[PeerTransport, Any]:
    """A connection of `node` to `target`; raises ConnectionRefusedError if the target does not listen."""
    await asyncio.sleep(world.between(delays.low, delays.high) / 1e9)
    listening = target.channel if target is not None else None
    if target is None or listening is None or listening.closed:
        raise ConnectionRefusedError(111, "Connection refused")
    protocol = protocol_factory()
    transport = PeerTransport(world, node, protocol)
    transport.connected(target.accept(delays, f"127.0.0.{node.id}", transport.received, transport.lost))
    return transport, protocol
