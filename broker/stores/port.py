"""The port to a broker's store, in addition to the ports of `storage.store`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from storage import LogId, LogStore, NodeInfo


class BrokerStore(LogStore, Protocol):
    cluster_id: str
    topic_ids: dict[str, str]  # name -> id

    @property
    def data_path(self) -> str:
        """The place of the logs, as text for messages."""
        ...

    def start(self, me: NodeInfo) -> None:
        """Set the advertised addresses, known once the listeners are open."""
        ...

    def unchecked_logs(self) -> list[LogId]:
        """Logs that have not been opened since a crash, and may have to be repaired."""
        ...

    def flush_topics(self) -> None:
        """Start flushing all unflushed topic logs."""
        ...

    def finish(self, all_written: bool, done: Callable[[str], None]) -> None:
        """Flush and close every log; if `all_written`, the next start need not check them. `done` gets the first problem, or ""."""
        ...
