"""Parse the addresses of the NATS JetStream servers: `nats://user:password@host:4222,host:4223`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    import ssl

PORT: Final = 4222
SCHEMES: Final = ("nats", "tls")


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
        """Without the password."""
        scheme = "tls" if self.tls else "nats"
        return f"{scheme}://" + ",".join(f"{host}:{port}" for host, port in self.addresses)


def parse_servers(text: str, ca_file: str = "") -> Servers:
    """Raises ValueError with the reason."""
    scheme, colon, hosts = text.partition("://")
    if not colon or scheme not in SCHEMES:
        raise ValueError(f"must begin with {' or '.join(f'{scheme}://' for scheme in SCHEMES)}")
    addresses = []
    user = password = ""
    for part in hosts.split(","):
        part = part.strip().removeprefix(f"{scheme}://")
        try:
            split = urlsplit(f"//{part}")
            host, port = split.hostname, split.port
        except ValueError as error:
            raise ValueError(f"{part.rpartition('@')[2]!r} is not HOST:PORT ({error})") from None
        if not host or split.path or split.query:
            raise ValueError(f"{part.rpartition('@')[2]!r} is not HOST:PORT")
        addresses.append((host, port or PORT))
        user, password = unquote(split.username or "") or user, unquote(split.password or "") or password
    return Servers(tuple(addresses), user, password, scheme == "tls", ca_file)
