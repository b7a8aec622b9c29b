"""Calls that a shard parks until the other members of the group have joined or the leader has synced."""

from __future__ import annotations

from broker.net.dispatch import Call


class ParkedCall:
    """An unanswered JoinGroup or SyncGroup; once discarded, it is never answered."""

    __slots__ = ("_call", "connection")

    def __init__(self, call: Call) -> None:
        self._call: Call | None = call
        self.connection = call.connection

    def fail(self, error: int) -> None:
        if self._call is not None:
            self._call.fail(error)

    def discard(self) -> None:
        self._call = None
