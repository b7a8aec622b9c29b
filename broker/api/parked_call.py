"""Calls that the shard parks on their member until the other members have done their part."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from broker.net.dispatch import Call

Request = TypeVar("Request")
Parked = TypeVar("Parked", bound="ParkedCall")


class ParkedCall:
    """A JoinGroup or SyncGroup without an answer yet."""

    __slots__ = ("_call", "connection")

    def __init__(self, call: Call) -> None:
        self._call: Call | None = call
        self.connection = call.connection

    def ask(self: Parked, step: Callable[[Request, Parked, int, int], None], request: Request, now: int, wall: int) -> None:
        """Let the shard answer or park the call. After an exception whoever called answers, so the shard must not."""
        try:
            step(request, self, now, wall)
        except Exception:
            self._call = None
            raise

    def fail(self, error: int) -> None:
        if self._call is not None:
            self._call.fail(error)
