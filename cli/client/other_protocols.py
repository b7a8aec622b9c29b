"""Finds out which protocol a listener speaks if it does not answer as a Kafka broker: TLS, HTTP or another."""

from __future__ import annotations

import socket
import time

from cli.dial import dial
from secured.probing import connected, is_tls, soon, speaks_tls, wants_tls

BANNER_BYTES = 40
HTTP = "is a web server (HTTP), not a Kafka broker"


class NotKafka(Exception):
    """The received bytes are not a Kafka reply. The text is a predicate about the peer: "is a web server"."""


def sender_of(data: bytes) -> str:
    """A predicate about the peer ("is a web server"), by the first bytes of its answer to a Kafka request."""
    if is_tls(data):
        return wants_tls().line
    if data.startswith(b"HTTP/"):
        return HTTP
    text = data[:BANNER_BYTES].split(b"\n")[0].strip()
    if len(text) >= 4 and all(32 <= byte < 127 for byte in text):
        return f"is not a Kafka broker: it sends {text.decode()!r}"
    return "is not a Kafka broker: its answer is not in Kafka's protocol"


def describe_listener(host: str, port: int, deadline: float) -> str | None:
    """A predicate about the listener at the address ("is a web server"); None if its protocol is unknown."""

    def dial_it(until: float) -> socket.socket:
        return dial(host, port, until)

    if speaks_tls(dial_it, half_way(deadline)):
        return wants_tls().line
    return HTTP if speaks_http(host, port, deadline) else None


def half_way(deadline: float) -> float:
    return deadline - max(0.0, deadline - time.monotonic()) / 2


def speaks_http(host: str, port: int, deadline: float) -> bool:
    try:
        with connected(lambda until: dial(host, port, until), soon(deadline)) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return connection.recv(5).startswith(b"HTTP/")
    except OSError:
        return False
