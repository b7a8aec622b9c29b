"""The interface to a store that several nodes share: who owns which log, acquiring and releasing logs, and the other nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from storage import Acquired, ClusterView, HeldBy, LogId, Unreadable


class SharedView(ClusterView, Protocol):
    """The cached nodes and owners; reading them does no I/O."""

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
        """Own the log from now on; `done` gets the log, HeldBy if another node owns it, or Unreadable."""
        ...

    def lock_log(self, log: LogId, topic_id: bytes, last_deletion: int) -> HeldBy | Unreadable | int:
        """Lock the log for this node and return its epoch, or why it cannot be locked; `acquire` or `open_topic_log` opens it.

        `topic_id` is that of the log's topic, or NO_TOPIC for an internal log. `last_deletion`: the newest deletion of a topic that this node
        knows. A node that is behind gets HeldBy for a topic's log, which may belong to a new topic.
        """
        ...

    def release_unopened(self, log: LogId, topic_id: bytes) -> None:
        """Give up the lock on the log of a deleted topic that this node locked and did not open."""
        ...

    def release(self, log: LogId, done: Callable[[], None]) -> None:
        """Flush and close the log, for a partition of __consumer_offsets also its notes; then other nodes may acquire it.

        A log that is not owned is ignored.
        """
        ...

    shows_deletions: bool  # every node sees `last_deletion` at once

    @property
    def last_deletion(self) -> int:
        """The number of the last deletion of a topic that a client may know of, as the controller has set it; reading it does no I/O."""
        ...

    def set_last_deletion(self, number: int) -> None:
        """Called by the controller before a client learns of the deletion."""
        ...

    def watch_nodes(self, changed: Callable[[int, bool], None]) -> None:
        """Call `changed` for each node that arrives (True) or ends (False), in the thread of the loop."""
        ...

    def find_new_nodes(self) -> None:
        """Search for new nodes now: an unknown node has sent a greeting."""
        ...

    def when_current(self, done: Callable[[], None]) -> None:
        """Call `done` when the view has all changes that other nodes have made before now; at once, or later."""
        ...
