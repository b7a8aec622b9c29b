"""Who this broker is, as its clients are told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Node:
    id: int
    cluster_id: str
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Address:
    """What clients of one listener are told to connect to; ports are the real ones by now."""

    name: str
    host: str
    port: int
