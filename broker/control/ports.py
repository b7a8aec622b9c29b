"""The ports of a cluster's listeners, which stay the same when the cluster restarts, and which no other process gets meanwhile."""

from __future__ import annotations

import socket
from dataclasses import replace

from broker.net.sockets import open_sockets
from broker.settings.listeners import Listener


class Ports:
    def __init__(self) -> None:
        self._held: dict[str, socket.socket] = {}  # by the listener's name

    def hold(self, listener: Listener) -> int:
        """The port of this listener, which nobody else gets until `close`."""
        held = self._held.get(listener.name)
        if held is None:
            held = self._held[listener.name] = hold_port(listener)
        return int(held.getsockname()[1])

    def open(self, listener: Listener, backlog: int) -> tuple[list[socket.socket], int]:
        port = self.hold(listener)
        sockets, _ = open_sockets(replace(listener, port=port), backlog)
        return sockets, port

    def close(self) -> None:
        for held in self._held.values():
            held.close()
        self._held.clear()


def hold_port(listener: Listener) -> socket.socket:
    """A socket that is bound to the port and does not listen: connections are refused while nothing else listens there."""
    family, kind, protocol, _, address = socket.getaddrinfo(listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock
