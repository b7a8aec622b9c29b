"""Write replies straight to the client's socket, and bytes that the socket does not accept through the transport.

The transport writes to the socket at once, too, but its bookkeeping costs about 5 % of a heartbeat's processor time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, Protocol


class Transport(Protocol):
    """The methods of an asyncio transport that a connection calls."""

    def write(self, data: bytes, /) -> None: ...
    def writelines(self, parts: list[bytes], /) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def get_write_buffer_size(self) -> int: ...
    def get_extra_info(self, name: str) -> Any: ...
    def is_closing(self) -> bool: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


def plain_socket(transport: Transport) -> int:
    """The descriptor of the transport's socket; -1 if it has none that may be written to directly."""
    if transport.get_extra_info("sslcontext") is not None:
        return -1
    socket = transport.get_extra_info("socket")
    return int(socket.fileno()) if socket is not None else -1


def idle_socket(transport: Transport) -> int:
    """The descriptor of a plain socket to which files may be sent now; -1 also while the transport has unsent bytes."""
    return -1 if transport.get_write_buffer_size() or transport.is_closing() else plain_socket(transport)


class Sockets:
    """Functions for the machine's sockets; the simulator passes its own functions."""

    def __init__(self, plain_socket: Callable[[Transport], int], write: Callable[[int, bytes], int]) -> None:
        """`write` returns the number of bytes that the socket accepts; BlockingIOError: none now."""
        self.plain_socket = plain_socket
        self.write = write


OS_SOCKETS: Final = Sockets(plain_socket, os.write)


class ReplyWriter:
    """Writes in order: straight to the socket only while the transport has no unsent bytes.

    May be used until `connection_lost`: the event loop closes the socket only afterwards.
    """

    __slots__ = ("_socket", "_socket_write", "_transport", "_transport_used")

    def __init__(self, transport: Transport, sockets: Sockets) -> None:
        self._transport = transport
        self._socket = sockets.plain_socket(transport)
        self._socket_write = sockets.write
        self._transport_used = self._socket < 0  # the transport may have unsent bytes

    def write(self, data: bytes) -> None:
        if not data:  # a request without a reply
            return
        if self._transport_used and not self._transport_is_empty():
            self._transport.write(data)
            return
        try:
            write = self._socket_write  # a local variable: calling the attribute is slower
            accepted = write(self._socket, data)
        except BlockingIOError:
            accepted = 0
        except OSError:
            self._transport.abort()  # the client is gone
            return
        if accepted < len(data):
            self._transport_used = True
            self._transport.write(data[accepted:])

    def writelines(self, parts: list[bytes]) -> None:
        self._transport_used = True
        self._transport.writelines(parts)

    def _transport_is_empty(self) -> bool:
        """Whether the socket may be written to again."""
        if self._socket < 0 or self._transport.get_write_buffer_size():
            return False
        self._transport_used = False
        return True
