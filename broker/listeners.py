"""Where the broker listens and what it tells clients to connect to: `listeners` and `advertised.listeners`, as Kafka has them.

Names stay names: what `localhost` means is found out when the socket is opened, what an advertised name means is the client's affair.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
HOST_CHARACTERS = re.compile(r"[0-9A-Za-z_-]+(\.[0-9A-Za-z_-]+)*\.?")
NAME_CHARACTERS = re.compile(r"[0-9A-Za-z_-]+")
NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")


@dataclass(frozen=True, slots=True)
class Listener:
    """One address to listen on; a port of 0 means any free one, an advertised port of 0 the one that was found."""

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int

    @property
    def wildcard(self) -> bool:
        return is_wildcard(self.host)

    @property
    def loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def endpoint(self) -> str:
        return format_endpoint(self.host, self.port)


class Endpoint(NamedTuple):
    """One NAME://HOST:PORT."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{format_endpoint(self.host, self.port)}"


class Problem(NamedTuple):
    """What is wrong with which setting."""

    setting: str
    reason: str


def packed_address(host: str) -> bytes | None:
    """4 or 16 bytes when the host is an address, None when it is a name; an IPv6 zone (fe80::1%eth0) does not count."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.inet_pton(family, host.partition("%")[0] if family == socket.AF_INET6 else host)
    except (OSError, ValueError):
        return None


def unmapped(packed: bytes) -> bytes:
    """::ffff:127.0.0.1 is 127.0.0.1 for every purpose here."""
    return packed[12:] if packed.startswith(bytes(10) + b"\xff\xff") else packed


def normal_address(text: str) -> str | None:
    """An address as sockets report it (`peername`), None when it is none; an IPv4 address inside IPv6 comes out as IPv4."""
    packed = packed_address(text)
    if packed is None:
        return None
    packed = unmapped(packed)
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)


def is_wildcard(host: str) -> bool:
    packed = packed_address(host)
    return not host or (packed is not None and not any(unmapped(packed)))


def is_loopback(host: str) -> bool:
    """By its spelling: other names than localhost may lead anywhere, so they count as beyond loopback."""
    packed = packed_address(host)
    if packed is None:
        return host.lower().rstrip(".") == "localhost" or host.lower().rstrip(".").endswith(".localhost")
    packed = unmapped(packed)
    return packed[0] == 127 if len(packed) == 4 else packed == bytes(15) + b"\x01"


def format_endpoint(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_endpoint(text: str) -> tuple[str, int]:
    """HOST:PORT, with an IPv6 address in brackets; raises ValueError with a reason for people."""
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        if not port.startswith(":") or ":" not in host or packed_address(host) is None:
            raise ValueError("an IPv6 address is written [ADDRESS]:PORT, for example [::1]:9092")
        return host, parse_port(port[1:])
    host, colon, port = text.rpartition(":")
    if not colon:
        raise ValueError("the port is missing: write HOST:PORT")
    if ":" in host:
        raise ValueError(f"an IPv6 address needs brackets: write [{host}]:{port}" if packed_address(host) else "write HOST:PORT")
    check_host(host)
    return host, parse_port(port)


def parse_port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535):
        raise ValueError(f"the port must be 0 to 65535, not {text!r}")
    return int(text)


def check_host(host: str) -> None:
    if not host or packed_address(host) is not None:
        return
    # A name whose last label is a number is an address gone wrong (127.1, 0x7f.1): resolvers disagree about what it means.
    if NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
        raise ValueError(f"{host!r} is neither an IPv4 address nor a name")
    if not HOST_CHARACTERS.fullmatch(host) or len(host) > 253:
        raise ValueError(f"{host!r} is not a host name")


def parse_endpoints(setting: str, entries: Sequence[str], bare_name: str | None) -> tuple[list[Endpoint], list[Problem]]:
    """Entries NAME://HOST:PORT; with a bare_name (what --listen and --advertise allow) also just HOST:PORT."""
    endpoints, problems = [], []
    for entry in entries:
        name, separator, address = entry.partition("://")
        if not separator and bare_name:
            name, address = bare_name, entry
        elif not separator or not NAME_CHARACTERS.fullmatch(name):
            problems.append(Problem(setting, f"{entry!r} is not of the form NAME://HOST:PORT"))
            continue
        try:
            endpoints.append(Endpoint(name.upper(), *parse_endpoint(address)))
        except ValueError as error:
            problems.append(Problem(setting, f"{entry!r}: {error}" if len(entries) > 1 else str(error)))
    names = [endpoint.name for endpoint in endpoints]
    problems += [Problem(setting, f"the listener name {name} is used twice") for name in sorted(set(names)) if names.count(name) > 1]
    return endpoints, problems


def parse_protocols(entries: Sequence[str]) -> tuple[dict[str, str], list[Problem]]:
    """listener.security.protocol.map: NAME:PROTOCOL, ..."""
    protocols: dict[str, str] = {}
    problems = []
    for entry in entries:
        name, colon, protocol = entry.upper().rpartition(":")
        if not colon or not NAME_CHARACTERS.fullmatch(name) or protocol not in PROTOCOLS:
            problems.append(Problem("listener.security.protocol.map", f"{entry!r} is not NAME:PROTOCOL with one of {', '.join(PROTOCOLS)}"))
        protocols[name] = protocol
    return protocols, problems


def check_protocols(endpoints: Sequence[Endpoint], protocols: dict[str, str]) -> list[Problem]:
    """Without a map a listener is what its name says, or PLAINTEXT, the only thing spoken here; a map has to be complete, as in Kafka."""
    problems = []
    for endpoint in endpoints:
        protocol = protocols.get(endpoint.name) if protocols else endpoint.name
        if protocol is None:
            problems.append(Problem("listener.security.protocol.map", f"it has no protocol for listener {endpoint.name}"))
        elif protocol in PROTOCOLS and protocol != "PLAINTEXT":
            reason = f"listener {endpoint.name} asks for {protocol}, which is not spoken here; only PLAINTEXT is, without any protection"
            problems.append(Problem("listeners", reason))
    return problems


def check_ports(endpoints: Sequence[Endpoint]) -> list[Problem]:
    """Kafka's rule: one listener a port, but a pair of an IPv4 and an IPv6 address may share one."""
    problems = []
    for port in sorted({endpoint.port for endpoint in endpoints} - {0}):
        sharing = [endpoint for endpoint in endpoints if endpoint.port == port]
        lengths = sorted(len(packed_address(endpoint.host) or b"") for endpoint in sharing)
        if len(sharing) > 1 and lengths != [4, 16]:
            problems.append(Problem("listeners", f"port {port} is used by {' and '.join(endpoint.name for endpoint in sharing)}"))
    return problems


def resolve_listeners(
    listen: Sequence[Endpoint], advertise: Sequence[Endpoint], how_to_advertise: str
) -> tuple[tuple[Listener, ...], list[Problem]]:
    """Give every listener the address that its clients are told; how_to_advertise is put before the line that is missing."""
    told = {endpoint.name: endpoint for endpoint in advertise}
    names = [endpoint.name for endpoint in listen]
    strangers = [f"{name} is not among the listeners ({', '.join(names)})" for name in told if name not in names]
    wildcards = [f"{endpoint}: clients cannot connect to a wildcard; name the host" for endpoint in advertise if is_wildcard(endpoint.host)]
    problems = [Problem("advertised.listeners", reason) for reason in (*strangers, *wildcards)]
    listeners = []
    for name, host, port in listen:
        _, advertised_host, advertised_port = told.get(name, Endpoint(name, host, port))
        listeners.append(Listener(name, host, port, advertised_host, advertised_port or port))
    if missing := [listener for listener in listeners if listener.wildcard and listener.name not in told]:
        problems.append(Problem("listeners", unadvertised(listeners, missing, how_to_advertise)))
    return tuple(listeners), problems


def unadvertised(listeners: Sequence[Listener], missing: Sequence[Listener], how_to_advertise: str) -> str:
    """The refusal of a wildcard that nobody could connect to, with the line to add."""
    if len(listeners) == 1:
        line = f"HOST:{listeners[0].port}"
    else:
        hosts = {listener.name: "HOST" if listener in missing else listener.advertised_host for listener in listeners}
        line = ",".join(str(Endpoint(listener.name, hosts[listener.name], listener.advertised_port)) for listener in listeners)
    where = ", ".join(listener.endpoint for listener in missing)
    return f"clients cannot connect to the wildcard {where}; add {how_to_advertise} {line}, HOST being how clients reach this machine"
