"""Opens a channel to a listener as the settings say."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from secured.channel import Channel

if TYPE_CHECKING:
    from secured.security import Security

Dial = Callable[[str, int, float], socket.socket]


def open_channel(host: str, port: int, deadline: float, security: Security, dial: Dial) -> Channel:
    """Connect, with TLS if the settings ask for it. Raises AccessError, OSError, TimeoutError."""
    connected = dial(host, port, deadline)
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if security.tls is None:
            return Channel(connected)
        from secured.tls import encrypt  # connections without TLS do without `ssl`

        return encrypt(connected, host, security.tls, deadline, lambda until: dial(host, port, until))
    except BaseException:
        connected.close()
        raise
