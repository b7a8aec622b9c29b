"""Parse HOST:PORT: addresses, names, IPv6 in brackets. Names are not resolved here."""

from __future__ import annotations

import re
import socket

HOST_CHARACTERS = re.compile(r"[0-9A-Za-z_-]+(\.[0-9A-Za-z_-]+)*\.?")
NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")


def packed_address(host: str) -> bytes | None:
    """An address as 4 or 16 bytes, without an IPv6 zone (fe80::1%eth0); None for a name."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.inet_pton(family, host.partition("%")[0] if family == socket.AF_INET6 else host)
    except (OSError, ValueError):
        return None


def unmapped(packed: bytes) -> bytes:
    """The IPv4 address inside an IPv4-mapped IPv6 address (::ffff:127.0.0.1); any other address unchanged."""
    return packed[12:] if packed.startswith(bytes(10) + b"\xff\xff") else packed


def normal_address(text: str) -> str | None:
    """The address as sockets report it (`peername`), IPv4-mapped IPv6 as IPv4; None when `text` is no address."""
    packed = packed_address(text)
    if packed is None:
        return None
    packed = unmapped(packed)
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)


def is_wildcard(host: str) -> bool:
    packed = packed_address(host)
    return not host or (packed is not None and not any(unmapped(packed)))


def reachable_host(host: str) -> str:
    """A host at which this machine reaches a socket that listens on `host`: loopback for a wildcard."""
    if not is_wildcard(host):
        return host
    return "::1" if ":" in host else "127.0.0.1"


def is_loopback(host: str) -> bool:
    """Decided by the spelling: a name other than localhost may resolve to any address, so it does not count as loopback."""
    packed = packed_address(host)
    if packed is None:
        return host.lower().rstrip(".") == "localhost" or host.lower().rstrip(".").endswith(".localhost")
    packed = unmapped(packed)
    return packed[0] == 127 if len(packed) == 4 else packed == bytes(15) + b"\x01"


def format_endpoint(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_endpoint(text: str, lowest_port: int = 0) -> tuple[str, int]:
    """Parse HOST:PORT, with an IPv6 address in brackets; raises ValueError with a reason for people."""
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        if not port.startswith(":") or ":" not in host or packed_address(host) is None:
            raise ValueError("an IPv6 address is written [ADDRESS]:PORT, for example [::1]:9092")
        return host, parse_port(port[1:], lowest_port)
    host, colon, port = text.rpartition(":")
    if not colon:
        if text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) <= 65535:
            raise ValueError(f"the host is missing: write 127.0.0.1:{text}, or 0.0.0.0:{text} for every address of this machine")
        raise ValueError("the port is missing: write HOST:PORT")
    if ":" in host:
        raise ValueError(f"an IPv6 address needs brackets: write [{host}]:{port}" if packed_address(host) else "write HOST:PORT")
    check_host(host)
    return host, parse_port(port, lowest_port)


def parse_port(text: str, lowest: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and lowest <= int(text) <= 65535):
        raise ValueError(f"the port must be {lowest} to 65535, not {text!r}")
    return int(text)


def check_host(host: str) -> None:
    if not host or packed_address(host) is not None:
        return
    # A name whose last label is a number is a malformed address (127.1, 0x7f.1), which resolvers read in different ways.
    if NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
        raise ValueError(f"{host!r} is neither an IPv4 address nor a name")
    if not HOST_CHARACTERS.fullmatch(host) or len(host) > 253:
        raise ValueError(f"{host!r} is not a host name")
