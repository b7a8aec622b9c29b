"""A request and its reply on their way between a client and the broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Exchange:
    """A request on its way, until its reply has left."""

    __slots__ = ("began", "client_id", "correlation_id", "key", "on_reply", "reply_bytes", "size", "version")

    def __init__(self, key: int, version: int, correlation_id: int, client_id: str, size: int, began: float) -> None:
        self.key = key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.size = size
        self.began = began
        self.reply_bytes = 0
        self.on_reply: Callable[[bytes], None] | None = None  # gets the reply instead of the client


class Done(NamedTuple):
    """A request that was answered, for the list of the last requests."""

    wall_ms: int
    connection: int
    peer: str
    api: str
    version: int
    client_id: str
    request_bytes: int
    reply_bytes: int
    error: str
    ms: float
    fault: int | None
