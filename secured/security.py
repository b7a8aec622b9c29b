"""How to get into one cluster: what `secured.settings` makes of a file. Commands without a file import no more than this."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from secured.sasl import Sasl
    from secured.tls import Tls


class Security:
    """`source`: the file, for messages; `bootstrap`: its bootstrap.servers; `notes`: what a user should know; `secrets`: texts that are never shown."""

    __slots__ = ("bootstrap", "notes", "sasl", "secrets", "source", "tls")

    def __init__(
        self, source: str = "", tls: Tls | None = None, sasl: Sasl | None = None, bootstrap: str = "", notes: tuple[str, ...] = (), secrets: frozenset[str] = frozenset()
    ) -> None:
        self.source = source
        self.tls = tls
        self.sasl = sasl
        self.bootstrap = bootstrap
        self.notes = notes
        self.secrets = secrets

    def __repr__(self) -> str:
        return f"Security({self.source!r})"


OPEN: Final = Security()  # without TLS and login
