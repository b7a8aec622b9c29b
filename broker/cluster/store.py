"""The port to a store that several nodes share: what `LogStore` has, and who else is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from storage import Acquired, ClusterView, HeldBy, LogId, Unreadable


class SharedView(ClusterView, Protocol):
    """Cached; no I/O."""

    @property
    def version(self) -> object:
        """Differs after every change of nodes, owners or epochs."""
        ...

    def epoch(self, log: LogId) -> int:
        """The epoch of the log's owner; -1 while it is unknown."""
        ...


class ClusterStore(Protocol):
    def view(self) -> SharedView: ...

    def acquire(self, log: LogId, done: Acquired) -> None:
        """Own the log from now on; `done` gets HeldBy when another node does."""
        ...

    def take(self, log: LogId) -> HeldBy | Unreadable | int:
        """Lock the log for this node and return its epoch; `acquire` opens it."""
        ...

    def release(self, log: LogId, done: Callable[[], None]) -> None:
        """Flush and close the log, and let other nodes have it; logs that go with it too. For a log that is not owned, nothing."""
        ...

    def watch_nodes(self, changed: Callable[[int, bool], None]) -> None:
        """`changed` hears of each node that comes (True) or goes (False), in the thread of the loop."""
        ...

    def look_for_nodes(self) -> None:
        """Find out now whether nodes have come: one has said so."""
        ...

    def when_current(self, done: Callable[[], None]) -> None:
        """Call `done` when the view has what the other nodes have told before now; at once, or later."""
        ...
