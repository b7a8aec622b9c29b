"""The interface to the nodes of a cluster: their addresses, and the leader of each log. A single broker does not use it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from storage import LogId

NO_NODE = -1


class Endpoint(NamedTuple):
    """A node's address on one listener."""

    id: int
    host: str
    port: int
    rack: str | None


class Leaders(Protocol):
    """All live nodes and the logs they own; cached, without I/O."""

    @property
    def version(self) -> object:
        """Replaced by a new object whenever nodes joined or left, or a log may have another owner or epoch: compare it with `is`."""
        ...

    @property
    def controller(self) -> int:
        """The node that writes the registry of topics; NO_NODE while there is none."""
        ...

    def endpoints(self, listener: str) -> list[Endpoint]:
        """The live nodes that have this listener, by id."""
        ...

    def ids(self) -> set[int]:
        """The live nodes."""
        ...

    def leader(self, log: LogId) -> int:
        """The live owner of the log, or NO_NODE."""
        ...

    def leader_epoch(self, log: LogId) -> int:
        """The epoch of the log's owner; -1 while it is unknown."""
        ...
