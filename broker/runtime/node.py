"""The identity and addresses of this broker, as clients see them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

DRAINED: Final = "node.drained"  # the setting of a broker resource by which one of several nodes is drained


def names_drained(settings: Iterable[Any]) -> bool:
    return any(setting.name == DRAINED for setting in settings)


@dataclass(frozen=True, slots=True)
class Node:
    id: int
    cluster_id: str
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Address:
    """The advertised address of one listener, with the real port, and the address that it listens on."""

    name: str
    host: str
    port: int
    listen_host: str = ""
    listen_port: int = 0
