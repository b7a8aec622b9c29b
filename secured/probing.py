"""What a listener wants that does not answer as the settings say: TLS, none, or a login."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from typing import Final

from secured.channel import Channel, TlsChannel
from secured.deadline import remaining
from secured.errors import AccessError, other_listener

PROBE_SECONDS = 1.0
SASL_HANDSHAKE, API_VERSIONS = 17, 18
UNSUPPORTED_SASL_MECHANISM, UNSUPPORTED_VERSION = 33, 35
REPLY_BYTES_MAX: Final = 1 << 16

Dial = Callable[[float], socket.socket]


def wants_tls() -> AccessError:
    return other_listener("wants TLS", "name a file with security.protocol=SSL, or SASL_SSL for a login, by --config (docs/secured.md)")


def wants_login(mechanisms: list[str]) -> AccessError:
    offered = f" ({', '.join(map(printable, mechanisms))})" if mechanisms else ""
    return other_listener(f"wants a login{offered}", "name a file with security.protocol and sasl.jaas.config by --config, or use --user (docs/secured.md)")


def no_tls() -> AccessError:
    return other_listener("does not speak TLS", "set security.protocol=PLAINTEXT, or SASL_PLAINTEXT for a login")


def printable(text: str) -> str:
    return text if text.isprintable() else repr(text)[1:-1]


def is_tls(data: bytes) -> bool:
    """Whether the data begins as a TLS alert or handshake, of any version."""
    return len(data) >= 2 and data[0] in (0x15, 0x16) and data[1] == 0x03


def soon(deadline: float) -> float:
    return min(deadline, time.monotonic() + PROBE_SECONDS)


def connected(dial: Dial, deadline: float) -> socket.socket:
    connection = dial(deadline)
    try:
        connection.settimeout(remaining(deadline))
    except TimeoutError:
        connection.close()
        raise
    return connection


def speaks_tls(dial: Dial, deadline: float, *, kafka: bool = False) -> bool:
    """`kafka`: whether it also answers as a Kafka broker, as far as that shows without a certificate of the client."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # no certificate is needed: this only detects TLS, and sends no data
    try:
        with connected(dial, soon(deadline)) as plain_socket, context.wrap_socket(plain_socket) as encrypted:
            return not kafka or answers_versions(TlsChannel(encrypted), soon(deadline))
    except ssl.SSLError as error:
        # A TLS alert: the listener wants a client certificate or another version.
        return error.reason is not None and "ALERT" in error.reason
    except OSError:
        return False


def speaks_kafka(dial: Dial, deadline: float) -> bool:
    """Whether the listener answers a request for its versions without TLS."""
    try:
        with connected(dial, soon(deadline)) as connection:
            return answers_versions(Channel(connection), soon(deadline))
    except OSError:
        return False


def answers_versions(channel: Channel, deadline: float) -> bool:
    try:
        channel.send(request_frame(API_VERSIONS, b""), deadline)
        size, correlation_id, error = struct.unpack(">iih", channel.receive_exactly(10, deadline))
    except EOFError:
        return False
    return bool(size >= 6 and correlation_id == 1 and error in (0, UNSUPPORTED_VERSION))


def sasl_mechanisms(open: Callable[[float], Channel], deadline: float) -> list[str] | None:
    """The mechanisms of a SASL listener, which its refusal of an unknown mechanism names; None if the listener has no SASL."""
    until = soon(deadline)
    try:
        channel = open(until)
    except (OSError, AccessError):
        return None
    try:
        channel.send(request_frame(SASL_HANDSHAKE, struct.pack(">h4s", 4, b"NONE")), until)
        (size,) = struct.unpack(">i", channel.receive_exactly(4, until))
        reply = channel.receive_exactly(min(REPLY_BYTES_MAX, max(0, size)), until)
        (error,) = struct.unpack_from(">h", reply, 4)
        return mechanisms_in(reply[4:]) if error in (0, UNSUPPORTED_SASL_MECHANISM) else None
    except (OSError, EOFError, struct.error):
        return None
    finally:
        channel.close()


def mechanisms_in(reply: bytes) -> list[str]:
    """The mechanisms in the body of a reply to SaslHandshake."""
    (count,) = struct.unpack_from(">i", reply, 2)
    at = 6
    mechanisms = []
    for _ in range(count):
        (size,) = struct.unpack_from(">h", reply, at)
        mechanisms.append(reply[at + 2 : at + 2 + size].decode("utf-8", "replace"))
        at += 2 + size
    return mechanisms


def request_frame(key: int, body: bytes) -> bytes:
    """A first request of version 0."""
    request = struct.pack(">hhih6s", key, 0, 1, 6, b"tenure") + body
    return struct.pack(">i", len(request)) + request
