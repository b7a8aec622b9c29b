"""Who may write which log. A broker asks its LogStore for a log and appends through the OwnedLog that it gets.

No asyncio in it: stores call back in the thread of whoever drives them. Safety never rests on clocks or leases: the log
itself refuses an older epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from protocol.batch import Fact
from storage.errors import AppendFailed


class LogId(NamedTuple):
    name: str
    partition: int

    def __str__(self) -> str:
        return f"{self.name}-{self.partition}"


class HeldBy(NamedTuple):
    """Somebody else owns the log."""

    who: str


class Unreadable(NamedTuple):
    """The log cannot be opened: `damaged` until a human decides what to do, or until the disk reads again."""

    reason: str
    damaged: bool


class NodeInfo(NamedTuple):
    """A live node, and where its clients find it: (listener, host, port)."""

    id: int
    addresses: tuple[tuple[str, str, int], ...]
    rack: str | None = None


class ClusterView(Protocol):
    """Who is there and who owns which log; cached, no I/O."""

    def nodes(self) -> list[NodeInfo]: ...

    def owner(self, log: LogId) -> NodeInfo | None: ...


class OwnedLog(Protocol):
    """A log that is ours to write, until somebody claims it at a newer epoch."""

    epoch: int

    def usable(self) -> bool:
        """Cheap; asked before every answer that rests on the log."""
        ...

    def replay(self) -> Iterator[list[Fact]]:
        """Key and value of every record, in order, as far as they are safe; some at a time, and the caller paces it."""
        ...

    def append(self, batch: bytes | bytearray, records: int, done: Callable[[int | AppendFailed], None]) -> None:
        """In order; `done` hears the offset of the first record when the batch is as safe as asked for, or that it is not there."""
        ...

    def watch(self, failed: Callable[[AppendFailed], None]) -> None:
        """`failed` hears of what breaks the log while nobody waits for it: a flush behind the replies."""
        ...

    def recover(self, done: Callable[[AppendFailed | None], None]) -> None:
        """After a failure: cut off what was not acknowledged and find out whether writing works again."""
        ...

    def release(self) -> None: ...


Acquired = Callable[[OwnedLog | HeldBy | Unreadable], None]


class LogStore(Protocol):
    """Hands out logs and tells who else is there."""

    def view(self) -> ClusterView: ...

    def acquire(self, log: LogId, done: Acquired) -> None:
        """Own the log from now on. `done` is called at once or later, in the thread of whoever drives the store."""
        ...

    def close(self) -> None: ...
