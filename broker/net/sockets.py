"""Open the listening sockets of a listener: one per address of its host name, all on one port."""

from __future__ import annotations

import errno
import socket

from broker.runtime.start import ExitCode, StartError
from broker.settings.listeners import Listener

# With port 0 and several addresses, the port chosen for the first address may be in use on the second.
FREE_PORT_TRIES = 20
_NO_SUCH_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def open_sockets(listener: Listener, backlog: int) -> tuple[list[socket.socket], int]:
    """Open, bind and listen; returns the sockets and their common port."""
    addresses = _resolve(listener)
    for attempt in range(FREE_PORT_TRIES):
        try:
            return _open_all(addresses, listener, backlog)
        except OSError as error:
            if listener.port == 0 and error.errno == errno.EADDRINUSE and attempt + 1 < FREE_PORT_TRIES:
                continue
            raise StartError(f"cannot listen on {listener.endpoint}: {_reason(error)}", ExitCode.LISTEN) from None
    raise AssertionError("the last attempt returns or raises")


def _resolve(listener: Listener) -> list[tuple[int, str, int]]:
    """(family, address, scope) of each address; an empty host is every address of the machine."""
    try:
        resolved = socket.getaddrinfo(listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = _reason(error) if isinstance(error, OSError) else str(error)
        raise StartError(f"cannot listen on {listener.endpoint}: {reason}", ExitCode.LISTEN) from None
    addresses = [(family, str(address[0]), int(address[3]) if len(address) > 3 else 0) for family, _, _, _, address in resolved]
    return list(dict.fromkeys(addresses))


def _open_all(addresses: list[tuple[int, str, int]], listener: Listener, backlog: int) -> tuple[list[socket.socket], int]:
    sockets: list[socket.socket] = []
    port = listener.port
    missing: OSError | None = None
    try:
        for family, address, scope in addresses:
            try:
                sock = _open(family, address, port, scope, backlog)
            except OSError as error:
                # The host name may resolve to a family that the machine lacks: `localhost` to IPv6.
                if error.errno in _NO_SUCH_FAMILY:
                    missing = error
                    continue
                raise
            sockets.append(sock)
            port = sock.getsockname()[1]
        if not sockets and missing is not None:
            raise missing
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets, port


def _open(family: int, address: str, port: int, scope: int, backlog: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # One socket per address: whether an IPv6 socket also accepts IPv4 depends on the system's settings.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((address, port, 0, scope))
        else:
            sock.bind((address, port))
        sock.listen(backlog)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another process uses the port; stop that process, or choose another port with --listen HOST:PORT"
    if error.errno == errno.EADDRNOTAVAIL:
        return "not an address of this machine"
    return (error.strerror or str(error)).lower()
