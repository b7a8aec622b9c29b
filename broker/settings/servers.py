"""The settings of NATS JetStream. Parse the addresses of its servers: `nats://user:password@host:4222,host:4223`, and the file with their login."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from broker.backends.table import JETSTREAM
from broker.logging.secrets import note_secrets, redacted
from broker.settings.config import Notice
from broker.settings.sources import CollectedSettings

if TYPE_CHECKING:
    import ssl

    from broker.settings.config import Config

PORT: Final = 4222
CLUSTER_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
CREDENTIALS_BYTES_MAX: Final = 4096


class Servers(NamedTuple):
    """The servers of one JetStream cluster, and the login."""

    addresses: tuple[tuple[str, int], ...]
    user: str = ""  # or a token, if there is no password
    password: str = ""
    tls: bool = False
    ca_file: str = ""  # certificate authorities of the servers; "": the system's

    def login(self) -> dict[str, str]:
        if self.password:
            return {"user": self.user, "pass": self.password}
        return {"auth_token": self.user} if self.user else {}

    def ssl_context(self) -> ssl.SSLContext:
        import ssl  # not needed without TLS

        return ssl.create_default_context(cafile=self.ca_file or None)

    def __str__(self) -> str:
        """Without the login."""
        scheme = "tls" if self.tls else "nats"
        return f"{scheme}://" + ",".join(f"{host}:{port}" for host, port in self.addresses)

    def __repr__(self) -> str:
        return str(self)


def servers_of(config: Config) -> Servers:
    """The servers of `store`, with the login from the file if there is one. Raises ValueError with the reason."""
    servers = parse_servers(config.store.reveal(), config.store_tls_ca_location)
    if not config.store_credentials_location:
        return servers
    user, password = read_credentials(config.store_credentials_location)
    return servers._replace(user=user, password=password)


def check_store(collected: CollectedSettings, values: Mapping[str, Any]) -> None:
    """Report settings with which a node over JetStream cannot start."""
    try:
        servers = parse_servers(values["store"].reveal())
    except ValueError as error:
        collected.add_problem(collected.given_or_default("store"), str(error))
    else:
        if values["store.credentials.location"]:
            origin = collected.given_or_default("store.credentials.location")
            try:
                readable = check_credentials_file(servers, values["store.credentials.location"])
            except ValueError as wrong:
                collected.add_problem(origin, str(wrong))
            else:
                if readable:
                    collected.notices.append(Notice("login can be read by every user of this machine: chmod o= takes that away", origin.fields))
    if not CLUSTER_NAME.fullmatch(values["cluster.name"]):
        collected.add_problem(collected.given_or_default("cluster.name"), "must be 1 to 64 letters, digits, - and _")
    if "node.id" not in collected.given:
        collected.add_problem(collected.given_or_default("store"), "needs a node.id (--node-id N) that no other node has")
    if "log.dirs" in collected.given:  # no error, since the container image sets it
        collected.notices.append(Notice("setting without effect", collected.given["log.dirs"].fields))


def check_credentials_file(servers: Servers, path: str) -> bool:
    """Whether all users can read the file. Raises ValueError if the login cannot be used."""
    if servers.login():
        raise ValueError("store has a login, too; give one of them")
    read_credentials(path)
    return bool(os.stat(path).st_mode & (stat.S_IROTH | stat.S_IWOTH))


def read_credentials(path: str) -> tuple[str, str]:
    """User and password, or a token and "". Raises ValueError with the reason."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(CREDENTIALS_BYTES_MAX + 1).strip()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not UTF-8 text") from None
    note_secrets({text, *text.split(), *text.split(":", 1)[1:]})
    if not text or not text.isprintable() or len(text) > CREDENTIALS_BYTES_MAX:
        raise ValueError(f"{path} must have one line, user:password or a token")
    user, _, password = text.partition(":")
    return user, password


def parse_servers(text: str, ca_file: str = "") -> Servers:
    """Raises ValueError with the reason, which shows no login."""
    scheme, colon, hosts = text.partition("://")
    if not colon or scheme not in JETSTREAM.schemes:
        raise ValueError(f"must begin with {' or '.join(JETSTREAM.prefixes)}")
    addresses = []
    user = password = ""
    for part in hosts.split(","):
        part = part.strip().removeprefix(f"{scheme}://")
        not_an_address = f"{redacted(part)!r} is not HOST:PORT" + ("; write %40, %2F and the like for marks in a login" if "@" in hosts else "")
        try:
            split = urlsplit(f"//{part}")
            host, port = split.hostname, split.port
        except ValueError:
            raise ValueError(not_an_address) from None
        if not host or split.path or split.query or split.fragment:
            raise ValueError(not_an_address)
        addresses.append((host, port or PORT))
        user, password = unquote(split.username or "") or user, unquote(split.password or "") or password
    return Servers(tuple(addresses), user, password, scheme == "tls", ca_file)
