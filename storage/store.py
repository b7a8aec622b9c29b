"""Who may write which log. A broker asks its LogStore for a log and appends through the OwnedLog that it gets.

No asyncio in it: stores call back in the thread of whoever drives them. Safety never rests on clocks or leases: the log
itself refuses an older epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from storage.errors import AppendFailed


class LogId(NamedTuple):
    name: str
    partition: int

    def __str__(self) -> str:
        return f"{self.name}-{self.partition}"


class Position(NamedTuple):
    """Where an append went: the offset of its first record."""

    offset: int


class HeldBy(NamedTuple):
    """Somebody else owns the log."""

    who: str


class OwnedLog(Protocol):
    """A log that is ours to write, until somebody claims it at a newer epoch."""

    epoch: int

    def usable(self) -> bool:
        """Cheap; asked before every answer that rests on the log."""
        ...

    def replay(self) -> Iterator[bytes]:
        """Whole batches, in order, as far as they are safe; the caller paces it."""
        ...

    def append(self, batch: bytes, records: int, done: Callable[[Position | AppendFailed], None]) -> None:
        """In order; `done` is called when the batch is as safe as asked for, or is not there."""
        ...

    def recover(self, done: Callable[[AppendFailed | None], None]) -> None:
        """After a failure: cut off what was not acknowledged and find out whether writing works again."""
        ...

    def release(self) -> None: ...


class LogStore(Protocol):
    """Hands out logs. Who else is there (nodes, their logs) comes with stores that several nodes share."""

    def acquire(self, log: LogId, done: Callable[[OwnedLog | HeldBy], None]) -> None: ...

    def close(self) -> None: ...
