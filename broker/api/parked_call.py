"""Calls that the shard parks on their member until the other members have done their part."""

from __future__ import annotations

from broker.net.dispatch import Call


class ParkedCall:
    """A JoinGroup or SyncGroup without an answer yet, unless it is void."""

    __slots__ = ("_call", "connection")

    def __init__(self, call: Call) -> None:
        self._call: Call | None = call
        self.connection = call.connection

    def fail(self, error: int) -> None:
        if self._call is not None:
            self._call.fail(error)

    def void(self) -> None:
        self._call = None
