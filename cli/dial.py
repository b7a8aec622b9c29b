"""Connects to a host name over TCP, and fails at the deadline even if the resolver or a firewall does not answer."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

from secured.deadline import remaining

__all__ = ["UnknownHostError", "dial", "remaining"]


class UnknownHostError(OSError):
    """The resolver does not know the name; `reason` is its error."""

    def __init__(self, host: str, error: OSError | UnicodeError) -> None:
        self.reason = str(getattr(error, "strerror", None) or error)
        super().__init__(getattr(error, "errno", None), f"{host}: {self.reason}")


def dial(host: str, port: int, deadline: float) -> socket.socket:
    """Connect to the first address of the name that accepts. Each address gets a share of the time, as a firewall may drop packets to one."""
    entries = look_up(host, port, deadline)
    failure: Exception = TimeoutError()
    for number, entry in enumerate(entries):
        share = remaining(deadline) / (len(entries) - number)
        try:
            return connect(entry, time.monotonic() + share)
        except OSError as error:
            failure = error
    raise failure


def look_up(host: str, port: int, deadline: float) -> list[Any]:
    """The addresses of a name. getaddrinfo has no timeout, so it runs in a thread."""
    entries: list[Any] = []
    failures: list[OSError | UnicodeError] = []

    def resolve() -> None:
        try:
            entries.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            failures.append(error)

    thread = threading.Thread(target=resolve, daemon=True)
    thread.start()
    thread.join(remaining(deadline))
    if failures:
        raise UnknownHostError(host, failures[0])
    if not entries:
        raise TimeoutError
    return entries


def connect(entry: Any, deadline: float) -> socket.socket:
    family, kind, protocol, _, address = entry
    connection = socket.socket(family, kind, protocol)
    try:
        connection.settimeout(remaining(deadline))
        connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection
