"""The Unix socket of each node, `nodes/ID.sock` in the data directory, at which the other nodes and the supervisor reach it.

Only the user who runs the nodes may connect, and containers with networks of their own that share the directory find the socket too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any, Final

ADDRESS_BYTES_MAX: Final = 107  # of the path of a Unix socket, on Linux
BACKLOG: Final = 512  # a connection beyond it is refused
MODE: Final = 0o600


def socket_path(folder: str, node: int) -> str:
    return f"{folder}/{node}.sock"


@contextlib.contextmanager
def _address(folder: str, node: int) -> Iterator[str]:
    """The path of the socket; if it is too long for an address, a path through a descriptor of its folder."""
    path = socket_path(folder, node)
    if len(os.fsencode(path)) <= ADDRESS_BYTES_MAX:
        yield path
        return
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield socket_path(f"/proc/self/fd/{descriptor}", node)
    finally:
        os.close(descriptor)


class NodeSocket(socket.socket):
    """The listening socket of this node; `close` removes its file."""

    def __init__(self, path: str) -> None:
        super().__init__(socket.AF_UNIX, socket.SOCK_STREAM)
        self._path = path

    def close(self) -> None:
        remove_file(self._path)
        super().close()


def listen(folder: str, node: int) -> NodeSocket:
    """Listen in place of the node's previous process; the caller holds the node's lock. Raises OSError."""
    path = socket_path(folder, node)
    remove_file(path)
    with _address(folder, node) as address:
        sock = NodeSocket(path)
        try:
            sock.setblocking(False)
            sock.bind(address)
            os.chmod(address, MODE)  # nobody can connect before `listen`
            sock.listen(BACKLOG)
        except BaseException:
            sock.close()
            raise
        return sock


def remove_file(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)


def connect(folder: str, node: int) -> socket.socket:
    """Raises OSError at once if the node does not listen, or its backlog is full."""
    with _address(folder, node) as address:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.connect(address)
        except BaseException:
            sock.close()
            raise
        return sock


async def connect_protocol(loop: asyncio.AbstractEventLoop, new_protocol: Callable[[], Any], folder: str, node: int) -> None:
    """As `connect`, for a protocol of the loop."""
    sock = connect(folder, node)
    try:
        transport, _ = await loop.create_unix_connection(new_protocol, sock=sock)
    except BaseException:
        sock.close()
        raise
    if transport.is_closing() and not isinstance(loop, asyncio.BaseEventLoop):
        sock.detach()  # uvloop closes the descriptor, but tells the socket only later, and only if the transport is still open then
