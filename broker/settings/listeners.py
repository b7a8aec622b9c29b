"""Kafka's `listeners` and `advertised.listeners`: where the broker listens and where clients connect.

Host names are not resolved here: a listener's name is resolved when its socket is opened, an advertised name by the client.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from broker.settings.endpoints import format_endpoint, is_loopback, is_wildcard, packed_address, parse_endpoint

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
NAME_CHARACTERS = re.compile(r"[0-9A-Za-z_-]+")


@dataclass(frozen=True, slots=True)
class Listener:
    """One address to listen on. Port 0 means any free port; advertised port 0 means the port that was chosen."""

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int

    @property
    def is_loopback(self) -> bool:
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
    """A setting and its error."""

    setting: str
    reason: str


def parse_endpoints(setting: str, entries: Sequence[str], bare_names: Sequence[str] = ()) -> tuple[list[Endpoint], list[Problem]]:
    """Parse NAME://HOST:PORT entries. With one bare name, as flags allow, an entry may be HOST:PORT."""
    endpoints, problems = [], []
    for entry in entries:
        name, separator, address = entry.partition("://")
        if not separator and len(bare_names) == 1:
            name, address = bare_names[0], entry
        elif not separator and bare_names:
            question = f"which of the listeners {', '.join(bare_names)} does {entry} belong to? Write NAME://HOST:PORT"
            problems.append(Problem(setting, question))
            continue
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
    """Parse listener.security.protocol.map: NAME:PROTOCOL, ..."""
    protocols: dict[str, str] = {}
    problems = []
    for entry in entries:
        name, colon, protocol = entry.upper().rpartition(":")
        if not colon or not NAME_CHARACTERS.fullmatch(name) or protocol not in PROTOCOLS:
            problems.append(Problem("listener.security.protocol.map", f"{entry!r} is not NAME:PROTOCOL with one of {', '.join(PROTOCOLS)}"))
        protocols[name] = protocol
    return protocols, problems


def check_protocols(endpoints: Sequence[Endpoint], protocols: dict[str, str]) -> list[Problem]:
    """Allow only PLAINTEXT. Without a map, a listener named like a protocol has that protocol, any other PLAINTEXT; a map must be complete."""
    problems = []
    for endpoint in endpoints:
        protocol = protocols.get(endpoint.name) if protocols else endpoint.name
        if protocol is None:
            problems.append(Problem("listener.security.protocol.map", f"it has no protocol for listener {endpoint.name}"))
        elif protocol in PROTOCOLS and protocol != "PLAINTEXT":
            reason = f"listener {endpoint.name} needs {protocol}, which is not supported; only PLAINTEXT is, without any protection"
            problems.append(Problem("listeners", reason))
    return problems


def check_ports(endpoints: Sequence[Endpoint]) -> list[Problem]:
    """Kafka's rule: one listener for each port, except that an IPv4 and an IPv6 address may share a port."""
    problems = []
    for port in sorted({endpoint.port for endpoint in endpoints} - {0}):
        sharing = [endpoint for endpoint in endpoints if endpoint.port == port]
        lengths = sorted(len(packed_address(endpoint.host) or b"") for endpoint in sharing)
        if len(sharing) > 1 and lengths != [4, 16]:
            problems.append(Problem("listeners", f"port {port} is used by {' and '.join(endpoint.name for endpoint in sharing)}"))
    return problems


def resolve_listeners(
    listen: Sequence[Endpoint], advertise: Sequence[Endpoint], advertise_hint: str
) -> tuple[tuple[Listener, ...], list[Problem]]:
    """Combine each listener with its advertised address; `advertise_hint` is a hint with {} for the missing value."""
    advertised = {endpoint.name: endpoint for endpoint in advertise}
    names = [endpoint.name for endpoint in listen]
    unknown = [f"{name} is not among the listeners ({', '.join(names)})" for name in advertised if name not in names]
    wildcards = [f"{endpoint}: clients cannot connect to a wildcard; name the host" for endpoint in advertise if is_wildcard(endpoint.host)]
    problems = [Problem("advertised.listeners", reason) for reason in (*unknown, *wildcards)]
    listeners = []
    for name, host, port in listen:
        _, advertised_host, advertised_port = advertised.get(name, Endpoint(name, host, port))
        listeners.append(Listener(name, host, port, advertised_host, advertised_port or port))
    if missing := [listener for listener in listeners if is_wildcard(listener.host) and listener.name not in advertised]:
        problems.append(Problem("listeners", unadvertised_error(listeners, missing, advertise_hint)))
    return tuple(listeners), problems


def unadvertised_error(listeners: Sequence[Listener], missing: Sequence[Listener], advertise_hint: str) -> str:
    """The error for a wildcard without advertised address, with the line to add."""
    if len(listeners) == 1 and advertise_hint.startswith("--"):
        line = f"HOST:{listeners[0].port}"
    else:
        hosts = {listener.name: "HOST" if listener in missing else listener.advertised_host for listener in listeners}
        line = ",".join(str(Endpoint(listener.name, hosts[listener.name], listener.advertised_port)) for listener in listeners)
    where = ", ".join(listener.endpoint for listener in missing)
    return f"clients cannot connect to the wildcard {where}; add {advertise_hint.format(line)}, HOST being how clients reach this machine"
