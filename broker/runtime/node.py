"""The identity and addresses of this broker, as clients see them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Node:
    id: int
    cluster_id: str
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Address:
    """The advertised address of one listener, with the real port."""

    name: str
    host: str
    port: int
