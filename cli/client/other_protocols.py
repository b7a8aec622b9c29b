"""Finds out which protocol a listener speaks if it does not answer as a Kafka broker: TLS, SASL, HTTP or another."""

from __future__ import annotations

import socket
import struct
import time

from cli.dial import dial, remaining
from cli.shown import plain

PROBE_SECONDS = 1.0
BANNER_BYTES = 40
WANTS_TLS = "wants TLS, which this command does not support: name a PLAINTEXT listener"
HTTP = "is a web server (HTTP), not a Kafka broker"
SASL_HANDSHAKE, UNSUPPORTED_SASL_MECHANISM = 17, 33
SASL_REPLY_BYTES_MAX = 1 << 16


class NotKafka(Exception):
    """The received bytes are not a Kafka reply. The text is a predicate about the peer: "is a web server"."""


def wants_sasl_text(mechanisms: list[str]) -> str:
    offered = f" ({', '.join(map(plain, mechanisms))})" if mechanisms else ""
    return f"wants SASL{offered}, which this command does not support: name a PLAINTEXT listener"


def sender_of(data: bytes) -> str:
    """A predicate about the peer ("is a web server"), by the first bytes of its answer to a Kafka request."""
    if is_tls(data):
        return WANTS_TLS
    if data.startswith(b"HTTP/"):
        return HTTP
    text = data[:BANNER_BYTES].split(b"\n")[0].strip()
    if len(text) >= 4 and all(32 <= byte < 127 for byte in text):
        return f"is not a Kafka broker: it sends {text.decode()!r}"
    return "is not a Kafka broker: its answer is not in Kafka's protocol"


def is_tls(data: bytes) -> bool:
    """Whether the data begins as a TLS alert or handshake, of any version."""
    return len(data) >= 2 and data[0] in (0x15, 0x16) and data[1] == 0x03


def describe_listener(host: str, port: int, deadline: float) -> str | None:
    """A predicate about the listener at the address ("is a web server"); None if its protocol is unknown."""
    if speaks_tls(host, port, deadline - max(0.0, deadline - time.monotonic()) / 2):
        return WANTS_TLS
    return HTTP if speaks_http(host, port, deadline) else None


def probe_socket(host: str, port: int, deadline: float) -> socket.socket:
    soon = min(deadline, time.monotonic() + PROBE_SECONDS)
    connection = dial(host, port, soon)
    try:
        connection.settimeout(remaining(soon))
    except TimeoutError:
        connection.close()
        raise
    return connection


def speaks_tls(host: str, port: int, deadline: float) -> bool:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # no certificate is needed: this only detects TLS, and sends no data
    try:
        with probe_socket(host, port, deadline) as plain_socket, context.wrap_socket(plain_socket):
            return True
    except ssl.SSLError as error:
        # A TLS alert: the listener wants a client certificate or another version.
        return error.reason is not None and "ALERT" in error.reason
    except OSError:
        return False


def speaks_http(host: str, port: int, deadline: float) -> bool:
    try:
        with probe_socket(host, port, deadline) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return connection.recv(5).startswith(b"HTTP/")
    except OSError:
        return False


def sasl_mechanisms(host: str, port: int, deadline: float) -> list[str] | None:
    """The mechanisms of a SASL listener, which its refusal of an unknown mechanism names; None if the listener has no SASL."""
    try:
        with probe_socket(host, port, deadline) as connection:
            body = struct.pack(">hhih6sh4s", SASL_HANDSHAKE, 0, 1, 6, b"tenure", 4, b"NONE")
            connection.sendall(struct.pack(">i", len(body)) + body)
            reply = read_exactly(connection, min(SASL_REPLY_BYTES_MAX, *struct.unpack(">i", read_exactly(connection, 4))))
            (error,) = struct.unpack_from(">h", reply, 4)
            return mechanisms_of(reply) if error in (0, UNSUPPORTED_SASL_MECHANISM) else None
    except (OSError, EOFError, struct.error):
        return None


def mechanisms_of(reply: bytes) -> list[str]:
    (count,) = struct.unpack_from(">i", reply, 6)
    at = 10
    mechanisms = []
    for _ in range(count):
        (size,) = struct.unpack_from(">h", reply, at)
        mechanisms.append(reply[at + 2 : at + 2 + size].decode("utf-8", "replace"))
        at += 2 + size
    return mechanisms


def read_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data
