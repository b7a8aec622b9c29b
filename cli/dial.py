"""A TCP connection to a host name before a deadline, with slow resolvers and firewalls in mind."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any


class UnknownHostError(OSError):
    """The name leads nowhere; `reason` is the resolver's."""

    def __init__(self, host: str, error: OSError | UnicodeError) -> None:
        self.reason = str(getattr(error, "strerror", None) or error)
        super().__init__(getattr(error, "errno", None), f"{host}: {self.reason}")


def remaining(deadline: float) -> float:
    """Seconds until a moment of time.monotonic()."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def dial(host: str, port: int, deadline: float) -> socket.socket:
    """The first address of the name that accepts; each gets a share of the time, so that one that drops packets leaves some to the next."""
    found = look_up(host, port, deadline)
    failure: Exception = TimeoutError()
    for number, entry in enumerate(found):
        share = remaining(deadline) / (len(found) - number)
        try:
            return dial_one(entry, time.monotonic() + share)
        except OSError as error:
            failure = error
    raise failure


def look_up(host: str, port: int, deadline: float) -> list[Any]:
    """The addresses of a name. The look-up has no timeout, so a thread does it."""
    found: list[Any] = []
    failures: list[OSError | UnicodeError] = []

    def ask_resolver() -> None:
        try:
            found.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            failures.append(error)

    thread = threading.Thread(target=ask_resolver, daemon=True)
    thread.start()
    thread.join(remaining(deadline))
    if failures:
        raise UnknownHostError(host, failures[0])
    if not found:
        raise TimeoutError
    return found


def dial_one(entry: Any, deadline: float) -> socket.socket:
    family, kind, protocol, _, address = entry
    connection = socket.socket(family, kind, protocol)
    try:
        connection.settimeout(remaining(deadline))
        connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection
